package operators

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/operate"
)

// call is one call of the API.
type call struct {
	method, path string        // below Root
	verb         string        // of keyadmin, which does the same
	role         keystore.Role // that may make the call
	summary      string
	status       int  // if it succeeds; 0: 200
	pages        bool // it answers one page of a list
	changes      bool // gateways have to apply what it does
	asks         bool // some values take something away, and the call alone does not say so: these need confirm=true

	arguments, result reflect.Type
	serve             func(a *API, r *http.Request, v *visit, arguments any) (answer, error)
}

const (
	get, post, put, patch, del = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete

	read, keys, admin = keystore.RoleRead, keystore.RoleKeys, keystore.RoleAdmin
)

// calls are all calls.
var calls = []call{
	list("/tenants", "tenant list", "List tenants, by name.", (*visit).tenants),
	change[operate.TenantView](post, "/tenants", "tenant create", admin, "Create a tenant.", (*visit).createTenant).created(),
	ask(get, "/tenants/{tenant}", "tenant show", "Show one tenant.", (*visit).showTenant),
	change[operate.TenantView](patch, "/tenants/{tenant}", "tenant rename", admin, "Give a tenant another name.", (*visit).renameTenant),
	change[operate.TenantView](del, "/tenants/{tenant}", "tenant delete", admin, "Delete a tenant whose keys have ended; its usage and its audit log stay.", ofTenant(operate.Operator.DeleteTenant)),
	change[operate.TenantView](post, "/tenants/{tenant}/suspend", "tenant suspend", admin, "Refuse all requests of a tenant until it is resumed.", ofTenant(operate.Operator.SuspendTenant)),
	change[operate.TenantView](post, "/tenants/{tenant}/resume", "tenant resume", admin, "End a suspension.", ofTenant(operate.Operator.ResumeTenant)),
	change[operate.TenantView](put, "/tenants/{tenant}/plan", "tenant set-plan", admin, "Put a tenant on another plan.", (*visit).setPlan).asking(),
	change[operate.TenantView](patch, "/tenants/{tenant}/limits", "tenant set-quota", admin, "Set limits for one tenant.", (*visit).setLimits).asking(),
	change[operate.TenantView](del, "/tenants/{tenant}/limits", "tenant set-quota", admin, "Remove a tenant's own limits: those of its plan apply again.", (*visit).clearLimits).asking(),
	ask(get, "/tenants/{tenant}/usage", "usage show", "Show the requests of a tenant.", (*visit).usage),
	ask(get, "/tenants/{tenant}/usage/minutes", "usage show", "Show the attempts of a tenant by minute.", (*visit).minutes),
	change[operate.TenantView](post, "/tenants/{tenant}/usage/reset", "usage reset", admin, "Set a tenant's usage back to zero.", ofTenant(operate.Operator.ResetUsage)),

	ask(get, "/plans", "plan list", "List all plans.", (*visit).plans),
	change[operate.PlanView](post, "/plans", "plan create", admin, "Create a plan.", (*visit).createPlan).created(),
	change[operate.PlanView](patch, "/plans/{plan}", "plan update", admin, "Change a plan's limits, for all its tenants.", (*visit).updatePlan).asking(),
	change[operate.PlanView](del, "/plans/{plan}", "plan delete", admin, "Delete a plan that no tenant has.", (*visit).deletePlan),

	list("/keys", "key list", "List keys, the newest first.", (*visit).keys),
	change[operate.KeyView](post, "/keys", "key create", keys, "Issue a key; its token is in the answer.", (*visit).createKey).created(),
	ask(get, "/keys/{key}", "key show", "Show one key.", (*visit).showKey),
	change[operate.KeyView](patch, "/keys/{key}", "key update", keys, "Change the name, scopes, allow-list, expiry or limits of a key.", (*visit).updateKey).asking(),
	change[operate.RotationView](post, "/keys/{key}/rotate", "key rotate", keys, "Replace a key; the old one works until its grace period ends. The new token is in the answer.", (*visit).rotateKey).created(),
	change[operate.KeyView](post, "/keys/{key}/disable", "key disable", keys, "Refuse a key until it is enabled.", ofKey(operate.Operator.DisableKey)),
	change[operate.KeyView](post, "/keys/{key}/enable", "key enable", keys, "Accept a key again that was disabled.", ofKey(operate.Operator.EnableKey)),
	change[operate.KeyView](post, "/keys/{key}/revoke", "key revoke", keys, "End a key at once and permanently.", ofKey(operate.Operator.RevokeKey)),
	ask(post, "/keys/whoami", "key whoami", "Show the key of a token.", (*visit).whoami),

	list("/bans", "ban list", "List the current bans, by their end.", (*visit).bans),
	change[operate.BanView](post, "/bans", "ban add", keys, "Ban a key for a while.", (*visit).addBan).created(),
	change[operate.KeyView](del, "/bans/{key}", "ban lift", keys, "End a ban early.", (*visit).liftBan),

	ask(get, "/usage", "usage top", "List the tenants that used most.", (*visit).topUsage),
	ask(get, "/usage/deprecated", "usage deprecated", "List who still calls operations that are deprecated.", (*visit).deprecated),
	ask(post, "/usage/explain", "usage explain", "Would the next request of a key or a tenant pass? If not, why, and until when? Give a key, a tenant or a token.", (*visit).explain),

	list("/audit", "audit", "List changes, the latest first.", (*visit).audit),

	ask(get, "/gateways", "gateway list", "List registered gateways.", (*visit).gateways),
	change[operate.GatewayView](del, "/gateways/{gateway}", "gateway forget", admin, "Stop waiting for a gateway that will not come back.", (*visit).forget),
	ask(get, "/gateways/lost", "gateway lost", "List refusals that the database has lost and gateways keep in force.", (*visit).lost),
	change[operate.LostView](del, "/gateways/lost/{id}", "gateway drop", admin, "End a refusal that the database has lost.", (*visit).dropLost),
}

// ask returns a call that changes nothing.
func ask[R, A any](method, path, verb, summary string, find func(*visit, *A) (R, error)) call {
	return call{
		method: method, path: path, verb: verb, role: read, summary: summary, arguments: reflect.TypeFor[A](), result: reflect.TypeFor[R](),
		serve: func(_ *API, _ *http.Request, v *visit, arguments any) (answer, error) {
			found, err := find(v, arguments.(*A))
			return answer{body: found}, err
		},
	}
}

const (
	rowsDefault = 100
	rowsMax     = 1000
)

// list returns a call that answers one page. find gets how many rows to find at most: one more than the page has. It also returns where
// a page begins that follows a row.
func list[V, A any](path, verb, summary string, find func(v *visit, a *A, most int) (rows []V, after func(i int) string, err error)) call {
	return call{
		method: get, path: path, verb: verb, role: read, summary: summary, pages: true, arguments: reflect.TypeFor[A](), result: reflect.TypeFor[[]V](),
		serve: func(_ *API, _ *http.Request, v *visit, arguments any) (answer, error) {
			rows, after, err := find(v, arguments.(*A), v.limit+1)
			if err != nil || len(rows) <= v.limit {
				return answer{body: rows}, err
			}
			return answer{body: rows[:v.limit], next: after(v.limit - 1)}, nil
		},
	}
}

// change returns a call that changes something. Its view is an R.
func change[R, A any](method, path, verb string, role keystore.Role, summary string, prepare func(*visit, *A) (operate.Operation, error)) call {
	c := call{
		method: method, path: path, verb: verb, role: role, summary: summary, changes: true, arguments: reflect.TypeFor[A](), result: reflect.TypeFor[R](),
	}
	c.serve = func(a *API, r *http.Request, v *visit, arguments any) (answer, error) {
		op, err := prepare(v, arguments.(*A))
		if err != nil {
			return answer{}, err
		}
		if op.Question != "" && v.asks && !v.confirmed {
			return answer{}, failure{http.StatusConflict, "confirmation_required", op.Question + " Nothing was changed: for yes, send it again with ?confirm=true", "confirm"}
		}
		outcome, err := op.Change(v.ctx)
		if err != nil {
			return answer{}, err
		}
		if made, isRotation := outcome.View.(operate.Rotation); isRotation {
			outcome.View = made.RotationView
		}
		return a.confirm(r, v, outcome.Change, outcome.View), nil
	}
	return c
}

// created says that the call creates something.
func (c call) created() call {
	c.status = http.StatusCreated
	return c
}

// asking says that some values of the arguments need confirm=true.
func (c call) asking() call {
	c.asks = true
	return c
}

// tenantRef names a tenant.
type tenantRef struct {
	Tenant string `json:"tenant" required:"yes" help:"The tenant's ID or name."`
}

func (v *visit) tenant(idOrName string) (keystore.Tenant, error) {
	return v.operator.Store.Tenant(v.ctx, idOrName)
}

// ofTenant prepares a change that has no arguments but its tenant.
func ofTenant(prepare func(operate.Operator, keystore.Tenant) operate.Operation) func(*visit, *tenantRef) (operate.Operation, error) {
	return func(v *visit, a *tenantRef) (operate.Operation, error) {
		t, err := v.tenant(a.Tenant)
		return prepare(v.operator, t), err
	}
}

// limits are limits of a plan or a tenant.
type limits struct {
	Minute operate.Limit `json:"minute" help:"Requests in any 60 seconds."`
	Day    operate.Limit `json:"day" help:"Requests in a UTC day."`
	Month  operate.Limit `json:"month" help:"Requests in a month."`
}

func (l limits) limits() plan.Limits {
	return plan.Limits{Minute: int64(l.Minute), Day: int64(l.Day), Month: int64(l.Month)}
}

// limitChanges are changes of limits of a plan or a tenant.
type limitChanges struct {
	Minute operate.LimitChange `json:"minute" help:"Requests in any 60 seconds; 0 removes the limit."`
	Day    operate.LimitChange `json:"day" help:"Requests in a UTC day; 0 removes the limit."`
	Month  operate.LimitChange `json:"month" help:"Requests in a month; 0 removes the limit."`
}

func (l limitChanges) limits() plan.Limits {
	return plan.Limits{Minute: int64(l.Minute), Day: int64(l.Day), Month: int64(l.Month)}
}

// errNoLimit refuses a change that changes nothing. more names what else may be given.
func errNoLimit(more string) error {
	return invalid([]problem{{"minute", "no limit is given: give minute, day, month or " + more}})
}

type findTenants struct {
	Search string           `json:"search" help:"A part of the names, or the ID of one tenant."`
	Plan   operate.PlanName `json:"plan" help:"Only those on this plan."`
	State  state            `json:"state" help:"Only those that are active or suspended."`
}

// state is whether a tenant's requests are served.
type state string

// UnmarshalText reads a state.
func (s *state) UnmarshalText(text []byte) error {
	if *s = state(text); *s != "active" && *s != "suspended" {
		return fmt.Errorf("%q is not a state: use active or suspended", text)
	}
	return nil
}

func (v *visit) tenants(a *findTenants, most int) (views []operate.TenantView, after func(int) string, err error) {
	found, err := v.operator.Store.FindTenants(v.ctx, keystore.TenantFilter{Text: a.Search, Plan: string(a.Plan), State: string(a.State)}, v.after, most)
	if err != nil {
		return nil, nil, err
	}
	plans, err := v.operator.Plans(v.ctx)
	return viewsOf(found, func(t keystore.Tenant) operate.TenantView { return plans.Owner(t).View() }), func(i int) string { return found[i].Name }, err
}

type renameTenant struct {
	tenantRef
	Name operate.TenantName `json:"name" required:"yes" help:"The new name; must be unique."`
}

func (v *visit) renameTenant(a *renameTenant) (operate.Operation, error) {
	t, err := v.tenant(a.Tenant)
	return v.operator.RenameTenant(t, string(a.Name)), err
}

type createTenant struct {
	Name operate.TenantName `json:"name" required:"yes" help:"The tenant's name; must be unique."`
	Plan operate.PlanName   `json:"plan" help:"Its plan (default: free)."`
	limits
	MonthStarts operate.MonthStarts `json:"monthStarts" help:"The day of the UTC month on which its month begins: 1 to 28 (default: 1)."`
}

func (v *visit) createTenant(a *createTenant) (operate.Operation, error) {
	if a.Plan == "" {
		a.Plan = "free"
	}
	return v.operator.CreateTenant(keystore.TenantSpec{
		Name: string(a.Name), Plan: string(a.Plan), Override: a.limits.limits(), MonthStarts: uint8(a.MonthStarts),
	}, false), nil
}

func (v *visit) showTenant(a *tenantRef) (operate.TenantView, error) {
	t, err := v.tenant(a.Tenant)
	if err != nil {
		return operate.TenantView{}, err
	}
	owner, err := v.operator.Owner(v.ctx, t)
	return owner.View(), err
}

type setPlan struct {
	tenantRef
	Plan operate.PlanName `json:"plan" required:"yes" help:"The plan's name."`
	limits
}

func (v *visit) setPlan(a *setPlan) (operate.Operation, error) {
	t, err := v.tenant(a.Tenant)
	if err != nil {
		return operate.Operation{}, err
	}
	return v.operator.MoveTenant(v.ctx, t, string(a.Plan), a.limits.limits(), "give a limit")
}

type setLimits struct {
	tenantRef
	limitChanges
	MonthStarts operate.MonthStarts `json:"monthStarts" help:"The day of the UTC month on which its month begins: 1 to 28."`
}

func (v *visit) setLimits(a *setLimits) (operate.Operation, error) {
	own := a.limits()
	if !own.IsSet() && a.MonthStarts == 0 {
		return operate.Operation{}, errNoLimit("monthStarts")
	}
	t, err := v.tenant(a.Tenant)
	if err != nil {
		return operate.Operation{}, err
	}
	return v.operator.SetQuota(v.ctx, t, own, uint8(a.MonthStarts))
}

func (v *visit) clearLimits(a *tenantRef) (operate.Operation, error) {
	t, err := v.tenant(a.Tenant)
	if err != nil {
		return operate.Operation{}, err
	}
	return v.operator.SetQuota(v.ctx, t, plan.NoLimits, 0)
}

type noArguments struct{}

func (v *visit) plans(*noArguments) ([]operate.PlanView, error) {
	all, err := v.operator.Store.Plans(v.ctx)
	return viewsOf(all, operate.ViewPlan), err
}

type planLimits struct {
	Plan operate.PlanName `json:"plan" required:"yes" help:"The plan's name."`
	limitChanges
	TestMinute operate.LimitChange `json:"testMinute" help:"Requests of test keys in any 60 seconds; 0: as minute."`
}

type createPlan struct {
	Name operate.PlanName `json:"name" required:"yes" help:"Lower-case letters, digits and hyphens."`
	limits
	TestMinute operate.Limit `json:"testMinute" help:"Requests of test keys in any 60 seconds, instead of minute."`
}

func (v *visit) createPlan(a *createPlan) (operate.Operation, error) {
	made := keystore.Plan{Name: string(a.Name), Limits: a.limits.limits(), Test: plan.Limits{Minute: int64(a.TestMinute)}}
	return v.operator.CreatePlan(made, false), nil
}

func (v *visit) updatePlan(a *planLimits) (operate.Operation, error) {
	limits, test := a.limits(), plan.Limits{Minute: int64(a.TestMinute)}
	if !limits.IsSet() && !test.IsSet() {
		return operate.Operation{}, errNoLimit("testMinute")
	}
	return v.operator.UpdatePlan(v.ctx, string(a.Plan), limits, test)
}

type planRef struct {
	Plan operate.PlanName `json:"plan" required:"yes" help:"The plan's name."`
}

func (v *visit) deletePlan(a *planRef) (operate.Operation, error) {
	return v.operator.DeletePlan(string(a.Plan)), nil
}

func (v *visit) gateways(*noArguments) ([]operate.GatewayView, error) {
	_, views, err := v.operator.ViewGateways(v.ctx)
	return views, err
}

type gatewayRef struct {
	Gateway string `json:"gateway" required:"yes" help:"The gateway's ID."`
}

func (v *visit) forget(a *gatewayRef) (operate.Operation, error) {
	views, err := v.gateways(nil)
	return operate.Operation{Laggard: "may still wait for this gateway", Change: func(ctx context.Context) (operate.Outcome, error) {
		change, err := v.operator.Store.ForgetGateway(ctx, a.Gateway)
		if err != nil {
			return operate.Outcome{}, err
		}
		// If several have this ID, the first is a replaced one, which is the one that is forgotten.
		i := slices.IndexFunc(views, func(g operate.GatewayView) bool { return g.ID == a.Gateway })
		return operate.Outcome{Change: change, View: views[max(i, 0)]}, nil
	}}, err
}

func (v *visit) lost(*noArguments) ([]operate.LostView, error) {
	all, err := v.operator.Store.LostRefusals(v.ctx)
	return viewsOf(all, operate.ViewLost), err
}

// viewsOf returns the views of rows. Without rows, it is empty and not nil: in JSON, a list.
func viewsOf[T, V any](rows []T, view func(T) V) []V {
	views := make([]V, len(rows))
	for i, row := range rows {
		views[i] = view(row)
	}
	return views
}

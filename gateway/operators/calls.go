package operators

import (
	"context"
	"net/http"
	"reflect"

	"petgate/shared/keystore/sessions"
	"petgate/shared/operate"
)

// call is one call of the API.
type call struct {
	method, path string        // below Root
	verb         string        // of keyadmin, which does the same
	role         sessions.Role // that may make the call
	summary      string
	status       int  // if it succeeds; 0: 200
	pages        bool // it answers one page of a list
	changes      bool // gateways have to apply what it does
	asks         bool // some values take something away, and the call alone does not say so: these need confirm=true
	declares     bool // its body is a document, so its arguments are in the query

	arguments, result reflect.Type
	serve             func(a *API, r *http.Request, v *visit, arguments any) (answer, error)
}

const (
	get, post, put, patch, del = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete

	read, keys, admin = sessions.RoleRead, sessions.RoleKeys, sessions.RoleAdmin
)

// calls are all calls.
var calls = []call{
	list[operate.TenantView, operate.FindTenants]("/tenants", "tenant list", "List tenants, by name."),
	change[operate.TenantView](post, "/tenants", "tenant create", admin, "Create a tenant.",
		operate.CreateTenant.Prepare).created(),
	ask(get, "/tenants/{tenant}", "tenant show", "Show one tenant.", (*visit).showTenant),
	change[operate.TenantView](patch, "/tenants/{tenant}", "tenant rename", admin, "Give a tenant another name.",
		operate.RenameTenant.Prepare),
	change[operate.TenantView](del, "/tenants/{tenant}", "tenant delete", admin,
		"Delete a tenant whose keys have ended; its usage and its audit log stay.", operate.DeleteTenant.Prepare),
	change[operate.TenantView](post, "/tenants/{tenant}/suspend", "tenant suspend", admin,
		"Refuse all requests of a tenant until it is resumed.", operate.SuspendTenant.Prepare),
	change[operate.TenantView](post, "/tenants/{tenant}/resume", "tenant resume", admin, "End a suspension.",
		operate.ResumeTenant.Prepare),
	change[operate.TenantView](put, "/tenants/{tenant}/plan", "tenant set-plan", admin, "Put a tenant on another plan.",
		operate.MoveTenant.Prepare).asking(),
	change[operate.TenantView](patch, "/tenants/{tenant}/limits", "tenant set-quota", admin,
		"Set limits for one tenant.", operate.SetLimits.Prepare).asking(),
	change[operate.TenantView](del, "/tenants/{tenant}/limits", "tenant set-quota", admin,
		"Remove a tenant's own limits: those of its plan apply again.", operate.ClearLimits.Prepare).asking(),
	ask(get, "/tenants/{tenant}/usage", "usage show", "Show the requests of a tenant.", (*visit).usage),
	ask(get, "/tenants/{tenant}/usage/minutes", "usage show", "Show the attempts of a tenant by minute.",
		(*visit).minutes),
	change[operate.TenantView](post, "/tenants/{tenant}/usage/reset", "usage reset", admin,
		"Set a tenant's usage back to zero.", operate.ResetUsage.Prepare),

	ask(get, "/plans", "plan list", "List all plans.", (*visit).plans),
	change[operate.PlanView](post, "/plans", "plan create", admin, "Create a plan.",
		operate.CreatePlan.Prepare).created(),
	change[operate.PlanView](patch, "/plans/{plan}", "plan update", admin,
		"Change a plan's limits, for all its tenants.", operate.UpdatePlan.Prepare).asking(),
	change[operate.PlanView](del, "/plans/{plan}", "plan delete", admin, "Delete a plan that no tenant has.",
		operate.DeletePlan.Prepare),

	list[operate.KeyView, operate.FindKeys]("/keys", "key list", "List keys, the newest first."),
	change[operate.KeyView](post, "/keys", "key create", keys, "Issue a key; its token is in the answer.",
		operate.CreateKey.Prepare).created(),
	ask(get, "/keys/{key}", "key show", "Show one key.", (*visit).showKey),
	change[operate.KeyView](patch, "/keys/{key}", "key update", keys,
		"Change the name, scopes, allow-list, expiry or limits of a key.", operate.UpdateKey.Prepare).asking(),
	change[operate.RotationView](post, "/keys/{key}/rotate", "key rotate", keys,
		"Replace a key; the old one works until its grace period ends. The new token is in the answer.",
		operate.RotateKey.Prepare).created(),
	change[operate.KeyView](post, "/keys/{key}/disable", "key disable", keys, "Refuse a key until it is enabled.",
		operate.DisableKey.Prepare),
	change[operate.KeyView](post, "/keys/{key}/enable", "key enable", keys, "Accept a disabled key again.",
		operate.EnableKey.Prepare),
	change[operate.KeyView](post, "/keys/{key}/revoke", "key revoke", keys, "End a key at once and permanently.",
		operate.RevokeKey.Prepare),
	ask(post, "/keys/whoami", "key whoami", "Show the key of a token.", (*visit).whoami),

	list[operate.BanView, operate.FindBans]("/bans", "ban list", "List the current bans, by their end."),
	change[operate.BanView](post, "/bans", "ban add", keys, "Ban a key for a while.", operate.AddBan.Prepare).created(),
	change[operate.KeyView](del, "/bans/{key}", "ban lift", keys, "End a ban early.", operate.LiftBan.Prepare),

	ask(get, "/usage", "usage top", "List the tenants whose live keys used most.", (*visit).topUsage),
	usageExport,
	ask(get, "/usage/deprecated", "usage deprecated", "List who still calls operations that are deprecated.",
		(*visit).deprecated),
	ask(post, "/usage/explain", "usage explain",
		"Would the next request of a key or a tenant pass? If not, why, and until when? Give a key, a tenant or "+
			"a token.",
		(*visit).explain),

	diff,
	apply,

	list[operate.EventView, operate.FindEvents]("/audit", "audit", "List changes, the latest first."),

	ask(get, "/gateways", "gateway list", "List registered gateways.", (*visit).gateways),
	change[operate.GatewayView](del, "/gateways/{gateway}", "gateway forget", admin,
		"Stop waiting for a gateway that will not come back.", operate.ForgetGateway.Prepare),
	ask(get, "/gateways/lost", "gateway lost", "List refusals that the database has lost and gateways keep in force.",
		(*visit).lost),
	change[operate.LostView](del, "/gateways/lost/{id}", "gateway drop", admin,
		"End a refusal that the database has lost.", operate.DropLost.Prepare),
}

// ask returns a call that changes nothing.
func ask[R, A any](method, path, verb, summary string, find func(*visit, *A) (R, error)) call {
	return call{
		method:    method,
		path:      path,
		verb:      verb,
		role:      read,
		summary:   summary,
		arguments: reflect.TypeFor[A](),
		result:    reflect.TypeFor[R](),
		serve: func(_ *API, _ *http.Request, v *visit, arguments any) (answer, error) {
			found, err := find(v, arguments.(*A))
			return answer{body: found}, err
		},
	}
}

const rowsMax = 1000

// list returns a call that answers one page.
func list[V any, A operate.Finder[V]](path, verb, summary string) call {
	return call{
		method:    get,
		path:      path,
		verb:      verb,
		role:      read,
		summary:   summary,
		pages:     true,
		arguments: reflect.TypeFor[A](),
		result:    reflect.TypeFor[[]V](),
		serve: func(_ *API, _ *http.Request, v *visit, arguments any) (answer, error) {
			page, err := (*arguments.(*A)).Page(v.ctx, v.operator, v.after, v.limit)
			return answer{body: page.Views, next: page.Next}, err
		},
	}
}

// change returns a call that changes something. Its view is an R.
func change[R, A any](
	method, path, verb string,
	role sessions.Role,
	summary string,
	prepare func(A, context.Context, operate.Operator) (operate.Operation, error),
) call {
	c := call{
		method:    method,
		path:      path,
		verb:      verb,
		role:      role,
		summary:   summary,
		changes:   true,
		arguments: reflect.TypeFor[A](),
		result:    reflect.TypeFor[R](),
	}
	c.serve = func(a *API, r *http.Request, v *visit, arguments any) (answer, error) {
		given := *arguments.(*A)
		if checker, ok := any(given).(operate.Checker); ok {
			if err := checker.Check(); err != nil {
				return answer{}, err
			}
		}
		op, err := prepare(given, v.ctx, v.operator)
		if err != nil {
			return answer{}, err
		}
		outcome, err := v.make(op)
		if err != nil {
			return answer{}, err
		}
		return a.confirm(r, v, outcome.Change, op.Laggard, outcome.View), nil
	}
	return c
}

// make makes a change. If it takes something away, the program has to confirm it.
func (v *visit) make(op operate.Operation) (operate.Outcome, error) {
	if op.Question != "" && v.asks && !v.confirmed {
		return operate.Outcome{}, failure{
			status: http.StatusConflict, code: "confirmation_required", field: "confirm",
			message: op.Question + " Nothing was changed: for yes, send it again with ?confirm=true",
		}
	}
	return op.Change(v.ctx)
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

func (v *visit) showTenant(a *operate.TenantRef) (operate.TenantView, error) {
	t, err := v.operator.Tenant(v.ctx, a.Tenant)
	return t.View(), err
}

type noArguments struct{}

func (v *visit) plans(*noArguments) ([]operate.PlanView, error) {
	all, err := v.operator.Store.Plans(v.ctx)
	return operate.ViewsOf(all, operate.ViewPlan), err
}

func (v *visit) gateways(*noArguments) ([]operate.GatewayView, error) {
	_, views, err := v.operator.ViewGateways(v.ctx)
	return views, err
}

func (v *visit) lost(*noArguments) ([]operate.LostView, error) {
	all, err := v.operator.Store.LostRefusals(v.ctx)
	return operate.ViewsOf(all, operate.ViewLost), err
}

package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/keystore"
	"petgate/shared/operate"
	"petgate/shared/plot"
)

const tenantsPath = Home + "tenants"

func (c *Console) serveTenants() {
	const tenant = Home + "tenants/{tenant}"
	c.handle("GET "+Home+"tenants", c.inSession(c.showTenants))
	c.handle("POST "+Home+"tenants", c.changing(createTenant))
	c.handle("GET "+tenant, c.inSession(c.showTenant))
	c.handle("POST "+tenant+"/rename", c.changing(ofTenant("Rename", renameTenant)))
	c.handle("POST "+tenant+"/delete", c.changing(deleteTenant))
	c.handle("POST "+tenant+"/suspend", c.changing(ofTenant("Suspend", without(operate.Operator.SuspendTenant))))
	c.handle("POST "+tenant+"/resume", c.changing(ofTenant("Resume", without(operate.Operator.ResumeTenant))))
	c.handle("POST "+tenant+"/reset", c.changing(ofTenant("Reset the usage", without(operate.Operator.ResetUsage))))
	c.handle("POST "+tenant+"/plan", c.changing(ofTenant("Move", moveTenant)))
	c.handle("POST "+tenant+"/limits", c.changing(ofTenant("Set the limits", setLimits)))
	c.handle("POST "+tenant+"/clear-limits", c.changing(ofTenant("Remove the limits", func(ctx context.Context, f *form, t keystore.Tenant) (operate.Operation, error) {
		return f.operator.SetQuota(ctx, t, plan.NoLimits, 0)
	})))
	c.handle("POST "+tenant+"/keys", c.changing(ofTenant("Create a key", createKey)))
}

func tenantPath(id string) string { return Home + "tenants/" + url.PathEscape(id) }

// tenantsPage is the content of the page of all tenants.
type tenantsPage struct {
	Search, Plan, State, Sort string // as they were sent
	IsFiltered                bool
	Total                     string // a sentence
	List                      list
	Plans                     []string
	States, Sorts             []choice
}

// choice is a value of a field for people.
type choice struct{ Name, Title string }

const (
	nearState   = "near"
	newestFirst = "newest"
)

var (
	tenantStates = []choice{{"", "all"}, {"active", "active"}, {"suspended", "suspended"}, {nearState, "near a limit"}}
	tenantSorts  = []choice{{"", "name"}, {newestFirst, "newest first"}}
)

func (c *Console) showTenants(w http.ResponseWriter, r *http.Request, v *visit) error {
	ctx, query := r.Context(), r.URL.Query()
	page := tenantsPage{
		Search: strings.TrimSpace(query.Get("search")), Plan: query.Get("plan"), State: query.Get("state"), Sort: query.Get("sort"),
		States: tenantStates, Sorts: tenantSorts,
	}
	page.IsFiltered = page.Search != "" || page.Plan != "" || page.State != ""
	if key, err := id.ParseKey(page.Search); err == nil {
		http.Redirect(w, r, keyPath(key.String()), http.StatusSeeOther)
		return nil
	}
	plans, err := v.operator.Plans(ctx)
	if err != nil {
		return err
	}
	page.Plans = sortedNames(plans)
	filter := keystore.TenantFilter{Text: page.Search, Plan: page.Plan, State: page.State, IsNewestFirst: page.Sort == newestFirst}
	find := func(most int) ([]keystore.Tenant, error) {
		return v.store.FindTenants(ctx, filter, query.Get("after"), most)
	}
	if page.State == nearState {
		tenants, err := c.nearTenants(ctx, filter)
		find = func(int) ([]keystore.Tenant, error) { return tenants, err }
	}
	after := func(t keystore.Tenant) string { return operate.Either(filter.IsNewestFirst, t.ID.String(), t.Name) }
	found, err := readPage(r, find, after, func(t keystore.Tenant) operate.TenantView { return plans.Owner(t).View() })
	if err != nil {
		return err
	}
	if isData, err := c.sendData(w, r, v, "tenants", found.views, found.next); isData {
		return err
	}
	if page.List, err = c.tenantList(ctx, v, found.rows, found.views); err != nil {
		return err
	}
	if page.IsFiltered {
		page.List.None, page.List.Cure, page.List.Command = "There is no such tenant.", "", ""
	}
	if page.Search != "" {
		page.List.None = "No tenant has “" + page.Search + "” in its name, and none has this ID."
	}
	all, err := v.store.CountTenants(ctx, keystore.TenantFilter{})
	if err != nil {
		return err
	}
	selected := len(found.rows)
	if !page.IsFiltered {
		selected = all
	} else if found.next != "" || query.Get("after") != "" {
		if selected, err = v.store.CountTenants(ctx, filter); err != nil {
			return err
		}
	}
	page.Total = humanize.Comma(int64(selected)) + " of " + operate.Plural(int64(all), "tenant") + "."
	page.List = page.List.paged(r, found.next)
	return c.show(w, v, http.StatusOK, "tenants", "Tenants", page)
}

// nearTenants returns the tenants near a limit that the filter selects, at most a page of them, as the rankings have them.
func (c *Console) nearTenants(ctx context.Context, filter keystore.TenantFilter) (tenants []keystore.Tenant, err error) {
	near, _, err := c.near.look(c.ctx, ctx)
	for _, t := range near {
		isSelected := (filter.Plan == "" || filter.Plan == t.Plan) && strings.Contains(strings.ToLower(t.Name), strings.ToLower(filter.Text))
		if isSelected && t.percent() >= nearPercent && len(tenants) < pageRows {
			tenants = append(tenants, t.Tenant)
		}
	}
	return tenants, err
}

// tenantList returns the rows of tenants with their use.
func (c *Console) tenantList(ctx context.Context, v *visit, tenants []keystore.Tenant, views []operate.TenantView) (list, error) {
	ids := viewsOf(tenants, func(t keystore.Tenant) id.Tenant { return t.ID })
	outcomes, err := v.store.TenantOutcomes(ctx, ids, c.refusedSince())
	if err != nil {
		return list{}, err
	}
	refused := map[id.Tenant]int64{}
	for _, o := range outcomes {
		if classOf(o.Outcome) == plot.Outcomes[1] && o.Outcome != reportOutcome {
			refused[o.Tenant] += o.Requests
		}
	}
	l := list{
		Caption: "Tenants",
		Columns: []column{"Name", "Plan", "Status", "#Per minute", "#Used now", "#Per day", "#Used today", "#Per month", "#Used this month", column("#Refused since " + c.refusedSince().Time().Format("15:04")), "Created"},
		None:    "There are no tenants.", Cure: operate.Either(v.session.Role.Allows(keystore.RoleAdmin), "Create the first one above, or run", "To create one, run"), Command: "keyadmin tenant create NAME",
	}
	canAsk := c.cfg.Quota != nil
	for i, t := range views {
		var use quota.Verdict
		isKnown := canAsk
		if canAsk {
			// If the quotas cannot be read for one tenant, they are not asked for the others: each question could take its whole time.
			use, err = c.cfg.Quota(ctx, tenants[i].ID)
			isKnown = err == nil
			canAsk = isKnown || errors.Is(err, ErrUnknownTenant)
		}
		limits := t.LimitTexts()
		l.Rows = append(l.Rows, []cell{
			{Text: t.Name, Link: tenantPath(t.ID)},
			{Text: t.Plan},
			tenantStatus(t),
			{Text: limits[0]},
			sharePart(use.Usages[quota.Minute], isKnown),
			{Text: limits[1]},
			sharePart(use.Usages[quota.Day], isKnown),
			{Text: limits[2]},
			sharePart(use.Usages[quota.Month], isKnown),
			{Text: humanize.Comma(refused[tenants[i].ID])},
			v.when(tenants[i].CreatedAt, "-"),
		})
	}
	return l, nil
}

// sharePart is a cell with the used part of a limit in per cent.
func sharePart(u quota.Usage, isKnown bool) cell {
	if !isKnown || u.Limit <= 0 {
		return cell{Text: "-"}
	}
	percent := u.Used * 100 / u.Limit
	return cell{Text: humanize.Comma(percent) + " %", Bar: partOf(u.Used, u.Limit), Level: levelOf(percent)}
}

// refusedSince is the beginning of the hour before this one: usage is kept by the hour.
func (c *Console) refusedSince() instant.Millis {
	return instant.Of(c.cfg.Clock()).Add(-time.Hour).Truncate(time.Hour)
}

func createTenant(_ context.Context, f *form) (prepared, error) {
	name := f.value("name")
	f.reject("Name", keystore.CheckTenantName(name))
	spec := keystore.TenantSpec{Name: name, Plan: f.value("plan"), Override: f.limits(operate.ParseLimit), MonthStarts: f.monthStarts()}
	return prepared{Operation: f.operator.CreateTenant(spec, false)}, nil
}

// ofTenant prepares a change of the tenant that the path names.
func ofTenant(verb string, prepare func(context.Context, *form, keystore.Tenant) (operate.Operation, error)) func(context.Context, *form) (prepared, error) {
	return func(ctx context.Context, f *form) (prepared, error) {
		t, err := f.store.Tenant(ctx, f.r.PathValue("tenant"))
		if err != nil {
			return prepared{}, err
		}
		op, err := prepare(ctx, f, t)
		return prepared{Operation: op, title: verb + ": " + t.Name, verb: verb, back: tenantPath(t.ID.String())}, err
	}
}

// without prepares a change whose form has no fields.
func without(of func(operate.Operator, keystore.Tenant) operate.Operation) func(context.Context, *form, keystore.Tenant) (operate.Operation, error) {
	return func(_ context.Context, f *form, t keystore.Tenant) (operate.Operation, error) {
		return of(f.operator, t), nil
	}
}

func renameTenant(_ context.Context, f *form, t keystore.Tenant) (operate.Operation, error) {
	name := f.value("name")
	f.reject("Name", keystore.CheckTenantName(name))
	return f.operator.RenameTenant(t, name), nil
}

func deleteTenant(ctx context.Context, f *form) (prepared, error) {
	p, err := ofTenant("Delete", without(operate.Operator.DeleteTenant))(ctx, f)
	p.back, p.ends = Home+"tenants", true
	return p, err
}

func moveTenant(ctx context.Context, f *form, t keystore.Tenant) (operate.Operation, error) {
	return f.operator.MoveTenant(ctx, t, f.value("plan"), f.limits(operate.ParseLimit), "go back, and give a limit")
}

func setLimits(ctx context.Context, f *form, t keystore.Tenant) (operate.Operation, error) {
	limits, starts := f.limits(operate.ParseLimitChange), f.monthStarts()
	if f.bad == nil && !limits.IsSet() && starts == 0 {
		f.bad = append(f.bad, "Give a limit, or the day on which the month begins.")
	}
	if err := f.mistakes(); err != nil {
		return operate.Operation{}, err
	}
	return f.operator.SetQuota(ctx, t, limits, starts)
}

// monthStarts reads the day on which a month begins; 0: the field is empty.
func (f *form) monthStarts() (day uint8) {
	if text := f.value("month-starts"); text != "" {
		var err error
		day, err = operate.ParseMonthStarts(text)
		f.reject("Month begins on day", err)
	}
	return day
}

package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
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

func (c *Console) serveTenants() {
	const tenant = Home + "tenants/{tenant}"
	c.handle("GET "+Home+"tenants", c.inSession(c.showTenants))
	c.handle("POST "+Home+"tenants", c.changing(createTenant))
	c.handle("GET "+tenant, c.inSession(c.showTenant))
	c.handle("POST "+tenant+"/suspend", c.changing(ofTenant("Suspend", without(operate.Operator.SuspendTenant))))
	c.handle("POST "+tenant+"/resume", c.changing(ofTenant("Resume", without(operate.Operator.ResumeTenant))))
	c.handle("POST "+tenant+"/reset", c.changing(ofTenant("Reset the usage", without(operate.Operator.ResetUsage))))
	c.handle("POST "+tenant+"/plan", c.changing(ofTenant("Move", moveTenant)))
	c.handle("POST "+tenant+"/limits", c.changing(ofTenant("Set the limits", setLimits)))
	c.handle("POST "+tenant+"/clear-limits", c.changing(ofTenant("Remove the limits", func(ctx context.Context, f *form, t keystore.Tenant) (operate.Operation, error) {
		return f.operator.SetQuota(ctx, t, plan.Limits{})
	})))
	c.handle("POST "+tenant+"/keys", c.changing(ofTenant("Create a key", createKey)))
}

func tenantPath(id string) string { return Home + "tenants/" + url.PathEscape(id) }

// tenantsPage is the content of the page of all tenants.
type tenantsPage struct {
	Search string
	List   list
	Plans  []string
}

func (c *Console) showTenants(w http.ResponseWriter, r *http.Request, v *visit) error {
	ctx, query := r.Context(), r.URL.Query()
	search := query.Get("search")
	if key, err := id.ParseKey(search); err == nil {
		http.Redirect(w, r, keyPath(key.String()), http.StatusSeeOther)
		return nil
	}
	plans, err := v.operator.PlanLimits(ctx)
	if err != nil {
		return err
	}
	found, err := readPage(r, func(most int) ([]keystore.Tenant, error) {
		return v.store.FindTenants(ctx, search, query.Get("after"), most)
	}, func(t keystore.Tenant) string { return t.Name }, func(t keystore.Tenant) operate.TenantView { return plans.Owner(t).View() })
	if err != nil {
		return err
	}
	if isData, err := c.sendData(w, r, v, "tenants", found.views, found.next); isData {
		return err
	}
	page := tenantsPage{Search: search, Plans: sortedNames(plans)}
	if page.List, err = c.tenantList(ctx, v, found.rows, found.views); err != nil {
		return err
	}
	if search != "" {
		page.List.None, page.List.Cure, page.List.Command = fmt.Sprintf("No tenant has %q in its name, and none has this ID.", search), "", ""
	}
	page.List = page.List.paged(r, found.next)
	return c.show(w, v, http.StatusOK, "tenants", "Tenants", page)
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
		Columns: []column{"Name", "Plan", "#Per minute", "#Used now", "#Per day", "#Used today", "#Refused, this hour and the last", "Status"},
		None:    "There are no tenants.", Cure: operate.Either(v.session.ReadOnly, "To create one, run", "Create the first one below, or run"), Command: "keyadmin tenant create NAME",
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
		l.Rows = append(l.Rows, []cell{
			{Text: t.Name, Link: tenantPath(t.ID)},
			{Text: t.Plan},
			{Text: t.PerMinute()},
			{Text: share(use.Minute, isKnown)},
			{Text: t.PerDay()},
			{Text: share(use.Day, isKnown)},
			{Text: humanize.Comma(refused[tenants[i].ID])},
			tenantStatus(t),
		})
	}
	return l, nil
}

// refusedSince is the beginning of the hour before this one: usage is kept by the hour.
func (c *Console) refusedSince() instant.Millis {
	return instant.Of(c.cfg.Clock()).Add(-time.Hour).Truncate(time.Hour)
}

// share writes the used part of a limit in per cent.
func share(u quota.Usage, isKnown bool) string {
	if !isKnown || u.Limit <= 0 {
		return "-"
	}
	return humanize.Comma(u.Used*100/u.Limit) + " %"
}

func createTenant(_ context.Context, f *form) (prepared, error) {
	name := f.value("name")
	f.reject("Name", keystore.CheckTenantName(name))
	spec := keystore.TenantSpec{Name: name, Plan: f.value("plan"), Override: f.limits()}
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

func moveTenant(ctx context.Context, f *form, t keystore.Tenant) (operate.Operation, error) {
	return f.operator.MoveTenant(ctx, t, f.value("plan"), f.limits(), func(plan.Limits) string { return "go back, and give both limits" })
}

func setLimits(ctx context.Context, f *form, t keystore.Tenant) (operate.Operation, error) {
	limits := f.someLimits()
	if err := f.mistakes(); err != nil {
		return operate.Operation{}, err
	}
	return f.operator.SetQuota(ctx, t, limits)
}

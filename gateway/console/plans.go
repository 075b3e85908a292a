package console

import (
	"context"
	"fmt"
	"net/http"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/operate"
	"petgate/shared/plot"
)

func (c *Console) servePlans() {
	c.handle("GET "+Home+"plans", c.inSession(c.showPlans))
	c.handle("POST "+Home+"plans", c.changing(createPlan))
	c.handle("POST "+Home+"plans/update", c.changing(updatePlan))
}

// plansPage is the content of the page of all plans.
type plansPage struct {
	List     list
	Names    []string
	MayWrite bool
}

func (c *Console) showPlans(w http.ResponseWriter, r *http.Request, v *visit) {
	plans, err := v.store.Plans(r.Context())
	if err != nil {
		c.fail(w, v, err)
		return
	}
	views := make([]operate.PlanView, len(plans))
	for i, p := range plans {
		views[i] = operate.ViewPlan(p)
	}
	if c.sendData(w, r, v, "plans", views, "") {
		return
	}
	tenants, err := v.store.TenantsByPlan(r.Context())
	if err != nil {
		c.fail(w, v, err)
		return
	}
	page := plansPage{MayWrite: !v.session.ReadOnly, List: list{
		Caption: "Plans", Columns: columns("Name", "#Per minute", "#Per day", "#Tenants", "Created"),
		None: "There are no plans.", Cure: "Create one below.",
	}}
	for _, p := range plans {
		page.Names = append(page.Names, p.Name)
		page.List.Rows = append(page.List.Rows, []cell{
			{Text: p.Name},
			{Text: operate.LimitText(p.Limits.Minute, 0)},
			{Text: operate.LimitText(p.Limits.Day, 0)},
			{Text: plot.Grouped(int64(tenants[p.Name]))},
			{Text: operate.OrDash(p.CreatedAt.String())},
		})
	}
	page.List = page.List.paged(r, "")
	c.show(w, v, http.StatusOK, "plans", "Plans", page)
}

func createPlan(_ context.Context, f *form) (prepared, error) {
	name, limits := f.value("name"), f.limits()
	f.reject("Name", plan.CheckName(name))
	if f.bad == nil && (limits.Minute == 0) != (limits.Day == 0) {
		f.bad = formError{"Give both limits, or neither for a plan whose tenants have limits of their own."}
	}
	return prepared{Operation: f.operator.CreatePlan(name, limits, false), back: Home + "plans"}, nil
}

func updatePlan(ctx context.Context, f *form) (prepared, error) {
	name, limits := f.value("name"), f.limits()
	if f.bad == nil && limits == (plan.Limits{}) {
		f.bad = formError{"Give a limit per minute, per day, or both."}
	}
	if f.bad != nil {
		return prepared{}, f.bad
	}
	op, err := f.operator.UpdatePlan(ctx, name, limits)
	return prepared{Operation: op, title: "Change plan " + name, verb: "Lower the limits", back: Home + "plans"}, err
}

// bansPage is the content of the page of all bans.
type bansPage struct{ List list }

func (c *Console) showBans(w http.ResponseWriter, r *http.Request, v *visit) {
	until, key, err := parseBanCursor(r.URL.Query().Get("after"))
	if err != nil {
		c.fail(w, v, err)
		return
	}
	n := rowsOf(r)
	bans, err := v.store.FindBans(r.Context(), id.Tenant{}, until, key, n+1)
	if err != nil {
		c.fail(w, v, err)
		return
	}
	bans, isMore := cut(bans, n)
	next := ""
	if isMore {
		next = banCursor(bans[n-1])
	}
	views := make([]operate.BanView, len(bans))
	for i, b := range bans {
		views[i] = operate.ViewBan(b.Ban, b.TenantName, b.KeyName)
	}
	if c.sendData(w, r, v, "bans", views, next) {
		return
	}
	c.show(w, v, http.StatusOK, "bans", "Bans", bansPage{banList(bans).paged(r, next)})
}

func banList(bans []keystore.NamedBan) list {
	l := list{
		Caption: "Bans", Columns: columns("Key", "Name", "Tenant", "Until", "Imposed by", "Reason", "Text for the tenant"),
		None: "No key is banned.", Cure: "To ban a key, open its page.",
	}
	for _, b := range bans {
		view := operate.ViewBan(b.Ban, b.TenantName, b.KeyName)
		l.Rows = append(l.Rows, []cell{
			{Text: view.KeyID, Link: keyPath(view.KeyID)},
			{Text: view.Key},
			{Text: view.Tenant, Link: tenantPath(view.TenantID)},
			{Text: view.Until},
			{Text: view.By},
			{Text: operate.OrDash(view.Reason)},
			{Text: operate.OrDash(view.Notice)},
		})
	}
	return l
}

// A ban's cursor is its end in ms and its key.
func banCursor(b keystore.NamedBan) string { return fmt.Sprintf("%d.%s", b.Until, b.Key) }

func parseBanCursor(text string) (until instant.Millis, key id.Key, err error) {
	if text == "" {
		return 0, key, nil
	}
	var name string
	if _, err = fmt.Sscanf(text, "%d.%s", &until, &name); err == nil {
		key, err = id.ParseKey(name)
	}
	if err != nil {
		err = fmt.Errorf("%w: the address of the page: %w", keystore.ErrNotFound, err)
	}
	return until, key, err
}

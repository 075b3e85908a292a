package console

import (
	"context"
	"net/http"

	"github.com/dustin/go-humanize"

	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/operate"
)

func (c *Console) servePlans() {
	c.handle("GET "+Home+"plans", c.inSession(c.showPlans))
	c.handle("POST "+Home+"plans", c.changing(createPlan))
	c.handle("POST "+Home+"plans/update", c.changing(updatePlan))
	c.handle("POST "+Home+"plans/delete", c.changing(deletePlan))
}

// plansPage is the content of the page of all plans.
type plansPage struct {
	List   list
	Names  []string
	Unused []string // of these: no tenant has them
}

func (c *Console) showPlans(w http.ResponseWriter, r *http.Request, v *visit) error {
	plans, err := v.store.Plans(r.Context())
	if err != nil {
		return err
	}
	if isData, err := c.sendData(w, r, v, "plans", viewsOf(plans, operate.ViewPlan), ""); isData {
		return err
	}
	tenants, err := v.store.TenantsByPlan(r.Context())
	if err != nil {
		return err
	}
	page := plansPage{List: list{
		Caption: "Plans", Columns: []column{"Name", "#Per minute", "#Per day", "#Tenants", "Created"},
		None: "There are no plans.", Cure: v.ifMay(keystore.RoleAdmin, "Create one above."),
	}}
	for _, p := range plans {
		if page.Names = append(page.Names, p.Name); tenants[p.Name] == 0 {
			page.Unused = append(page.Unused, p.Name)
		}
		page.List.Rows = append(page.List.Rows, []cell{
			{Text: p.Name},
			{Text: operate.LimitText(p.Limits.Minute, 0)},
			{Text: operate.LimitText(p.Limits.Day, 0)},
			{Text: humanize.Comma(int64(tenants[p.Name])), Link: tenantsPath + "?plan=" + p.Name},
			v.when(p.CreatedAt, "built in"),
		})
	}
	page.List = page.List.paged(r, "")
	return c.show(w, v, http.StatusOK, "plans", "Plans", page)
}

func createPlan(_ context.Context, f *form) (prepared, error) {
	name, limits := f.value("name"), f.limits()
	f.reject("Name", plan.CheckName(name))
	if isGiven := func(name string) bool { return f.value(name) != "" }; isGiven("minute") != isGiven("day") {
		f.bad = append(f.bad, "Give both limits, or neither for a plan whose tenants have limits of their own.")
	}
	return prepared{Operation: f.operator.CreatePlan(name, limits, false), back: Home + "plans"}, nil
}

func updatePlan(ctx context.Context, f *form) (prepared, error) {
	name, limits := f.value("name"), f.someLimits()
	if err := f.mistakes(); err != nil {
		return prepared{}, err
	}
	op, err := f.operator.UpdatePlan(ctx, name, limits)
	return prepared{Operation: op, title: "Change plan " + name, verb: "Lower the limits", back: Home + "plans"}, err
}

func deletePlan(_ context.Context, f *form) (prepared, error) {
	name := f.value("name")
	return prepared{Operation: f.operator.DeletePlan(name), title: "Delete plan " + name, verb: "Delete", back: Home + "plans"}, nil
}

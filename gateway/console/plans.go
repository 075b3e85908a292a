package console

import (
	"cmp"
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
		Caption: "Plans", Columns: []column{"Name", "#Per minute", "#Per day", "#Per month", "#Test, per minute", "#Tenants", "Created"},
		None: "There are no plans.", Cure: v.ifMay(keystore.RoleAdmin, "Create one above."),
	}}
	for _, p := range plans {
		if page.Names = append(page.Names, p.Name); tenants[p.Name] == 0 {
			page.Unused = append(page.Unused, p.Name)
		}
		row := []cell{{Text: p.Name}}
		for _, text := range append(operate.LimitTexts(p.Limits, plan.Limits{}), operate.LimitText(cmp.Or(p.Test.Minute, p.Limits.Minute), 0)) {
			row = append(row, cell{Text: text})
		}
		page.List.Rows = append(page.List.Rows, append(row,
			cell{Text: humanize.Comma(int64(tenants[p.Name])), Link: tenantsPath + "?plan=" + p.Name}, v.when(p.CreatedAt, "built in")))
	}
	page.List = page.List.paged(r, "")
	return c.show(w, v, http.StatusOK, "plans", "Plans", page)
}

func createPlan(_ context.Context, f *form) (prepared, error) {
	made := keystore.Plan{Name: f.value("name"), Limits: f.limits(operate.ParseLimit), Test: f.testLimits(operate.ParseLimit)}
	f.reject("Name", plan.CheckName(made.Name))
	return prepared{Operation: f.operator.CreatePlan(made, false), back: Home + "plans"}, nil
}

func updatePlan(ctx context.Context, f *form) (prepared, error) {
	name, limits, test := f.value("name"), f.limits(operate.ParseLimitChange), f.testLimits(operate.ParseLimitChange)
	if f.bad == nil && !limits.IsSet() && !test.IsSet() {
		f.bad = append(f.bad, "Give a limit.")
	}
	if err := f.mistakes(); err != nil {
		return prepared{}, err
	}
	op, err := f.operator.UpdatePlan(ctx, name, limits, test)
	return prepared{Operation: op, title: "Change plan " + name, verb: "Lower the limits", back: Home + "plans"}, err
}

func deletePlan(_ context.Context, f *form) (prepared, error) {
	name := f.value("name")
	return prepared{Operation: f.operator.DeletePlan(name), title: "Delete plan " + name, verb: "Delete", back: Home + "plans"}, nil
}

// testLimits reads the limit of test keys.
func (f *form) testLimits(parse func(string) (int64, error)) plan.Limits {
	return plan.Limits{Minute: f.limit("test-minute", "Test keys, per minute", parse)}
}

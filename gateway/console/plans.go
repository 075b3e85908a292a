package console

import (
	"net/http"

	"github.com/dustin/go-humanize"

	"petgate/shared/keystore/lists"
	"petgate/shared/keystore/sessions"
	"petgate/shared/operate"
)

// plansPage is the content of the page of all plans.
type plansPage struct {
	List   list
	Names  []string
	Unused []string // those of Names that no tenant has
}

func (c *Console) showPlans(w http.ResponseWriter, r *http.Request, v *visit) error {
	plans, err := v.store.Plans(r.Context())
	if err != nil {
		return err
	}
	tenants, err := lists.Of(v.store).TenantsByPlan(r.Context())
	if err != nil {
		return err
	}
	page := plansPage{List: list{
		Caption: "Plans", Columns: []column{
			{Title: "Name"},
			{"Per minute", numbers},
			{"Per day", numbers},
			{"Per month", numbers},
			{"Test, per minute", numbers},
			{"Tenants", numbers},
			{Title: "Created"},
		},
		None: "There are no plans.", Cure: v.ifMay(sessions.RoleAdmin, "Create one above."),
	}}
	for _, p := range plans {
		page.Names = append(page.Names, p.Name)
		if tenants[p.Name] == 0 {
			page.Unused = append(page.Unused, p.Name)
		}
		limits := operate.ViewsOf(operate.ViewPlan(p).LimitTexts(), func(text string) cell { return cell{Text: text} })
		page.List.Rows = append(page.List.Rows, append(
			append([]cell{{Text: p.Name}}, limits...),
			cell{
				Text: humanize.Comma(int64(tenants[p.Name])),
				Link: tenantsPath + "?plan=" + p.Name,
			},
			v.when(p.CreatedAt, "built in"),
		))
	}
	return c.show(w, v, http.StatusOK, "plans", "Plans", page)
}

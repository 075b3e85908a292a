package console

import (
	"net/http"

	"github.com/dustin/go-humanize"

	"petgate/shared/keystore/lists"
	"petgate/shared/keystore/sessions"
	"petgate/shared/operate"
)

// bansPage is the content of the page of bans.
type bansPage struct {
	Total string // empty: the page is about one tenant
	List  list
}

// showBans shows all bans, or those of one tenant.
func (c *Console) showBans(w http.ResponseWriter, r *http.Request, v *visit) error {
	of, found, err := find(r, v, operate.FindBans{})
	if err != nil {
		return err
	}
	page, title := bansPage{List: banList(v, found.Views).paged(r, found.Next)}, "Bans"
	if of.Tenant != "" {
		t, err := v.operator.Tenant(r.Context(), of.Tenant)
		if err != nil {
			return err
		}
		title += " of " + t.Name
	} else {
		n, err := lists.Of(v.store).CountBans(r.Context())
		if err != nil {
			return err
		}
		page.Total = operate.Either(n == 1, "One key is banned.", humanize.Comma(int64(n))+" keys are banned.")
	}
	return c.show(w, v, http.StatusOK, "bans", title, page)
}

// banList returns the rows of bans. Those who may change something can lift each of them.
func banList(v *visit, bans []operate.BanView) list {
	l := list{
		Caption: "Bans", Columns: []column{
			{Title: "Key"},
			{Title: "Name"},
			{Title: "Tenant"},
			{Title: "Ends"},
			{Title: "Imposed by"},
			{"Reason", sentences},
			{"Text for the tenant", sentences},
		},
		None: "No key is banned.",
	}
	if v.session.Role.Allows(sessions.RoleKeys) {
		l.Columns = append(l.Columns, column{Title: "Lift"})
	}
	for _, view := range bans {
		row := []cell{
			{Text: view.KeyID, Link: keyPath(view.KeyID)},
			quoted(view.Key),
			{Text: view.Tenant, Link: tenantPath(view.TenantID)},
			v.whenText(view.Until, "never"),
			{Text: view.By},
			quoted(view.Reason),
			quoted(view.Notice),
		}
		if v.session.Role.Allows(sessions.RoleKeys) {
			row = append(row,
				cell{Text: "Lift", Post: keyPath(view.KeyID) + "/lift", Label: "Lift the ban of " + view.KeyID})
		}
		l.Rows = append(l.Rows, row)
	}
	return l
}

package console

import (
	"cmp"
	"net/http"
	"net/url"
	"strconv"

	"petgate/shared/keystore"
	"petgate/shared/operate"
)

// auditPage is the content of the page of all changes.
type auditPage struct {
	Filter  url.Values // the fields of the filter, as they were sent
	Kinds   []string
	Problem string // of the filter
	List    list
}

func (c *Console) showAudit(w http.ResponseWriter, r *http.Request, v *visit) error {
	page := auditPage{Kinds: keystore.EventKindsAndGroups(), Filter: r.URL.Query()}
	_, found, err := find(r, v, operate.FindEvents{})
	page.Problem = mistakeIn(err)
	if page.Problem != "" {
		return c.show(w, v, http.StatusBadRequest, "audit", "Audit", page)
	}
	if err != nil {
		return err
	}
	page.List = eventList(v, found.Views).paged(r, found.Next)
	page.List.None, page.List.Cure = "There are no such changes.", "Clear a field, or look further back."
	return c.show(w, v, http.StatusOK, "audit", "Audit", page)
}

// eventList returns events as a table, with the names of their tenants.
func eventList(v *visit, events []operate.EventView) list {
	l := list{Caption: "Changes", Columns: []column{
		{Title: "When"},
		{Title: "By"},
		{Title: "Kind"},
		{Title: "Tenant"},
		{Title: "Subject"},
		{"Event", numbers},
		{"Change", sentences},
	}}
	for _, e := range events {
		tenant, subject := cell{Text: "-"}, cell{Text: operate.OrDash(operate.SubjectOf(e.Event))}
		if e.TenantID != "" {
			tenant = cell{Text: cmp.Or(e.Tenant, e.TenantID), Link: tenantPath(e.TenantID)}
		}
		if e.KeyID != "" {
			subject.Link = keyPath(e.KeyID)
		}
		l.Rows = append(l.Rows, []cell{
			v.when(e.Event.At, ""),
			{Text: e.Actor},
			{Text: e.Kind},
			tenant, subject,
			{Text: strconv.FormatInt(e.ID, 10)},
			{Text: operate.ChangeOf(e.Event)},
		})
	}
	return l
}

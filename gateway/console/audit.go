package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"petgate/shared/core/id"
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

var eventKinds = keystore.EventKindsAndGroups()

func (c *Console) showAudit(w http.ResponseWriter, r *http.Request, v *visit) error {
	ctx := r.Context()
	page := auditPage{Kinds: eventKinds, Filter: r.URL.Query()}
	filter, before, err := readFilter(r, v)
	if errors.As(err, new(formError)) {
		page.Problem = err.Error()
		return c.show(w, v, http.StatusBadRequest, "audit", "Audit", page)
	}
	if err != nil {
		return err
	}
	events, err := readPage(r, func(most int) ([]keystore.Event, error) { return v.store.FindEvents(ctx, filter, before, most) },
		func(e keystore.Event) string { return strconv.FormatInt(int64(e.ID), 10) }, operate.ViewEvent)
	if err != nil {
		return err
	}
	if isData, err := c.sendData(w, r, v, "audit", events.views, events.next); isData {
		return err
	}
	if page.List, err = eventList(ctx, v, events.rows); err != nil {
		return err
	}
	page.List = page.List.paged(r, events.next)
	page.List.None, page.List.Cure = "There are no such changes.", "Clear a field, or look further back."
	return c.show(w, v, http.StatusOK, "audit", "Audit", page)
}

// auditFilter are the fields of the filter.
type auditFilter struct {
	Tenant string         `json:"tenant"`
	Key    operate.KeyID  `json:"key"`
	Actor  string         `json:"actor"`
	Kind   string         `json:"kind"`
	Since  operate.Moment `json:"since"`
}

// readFilter reads the filter and where the page begins. A mistake is a formError.
func readFilter(r *http.Request, v *visit) (filter keystore.EventFilter, before keystore.Change, err error) {
	given, err := readArguments(r, r.URL.Query(), auditFilter{})
	filter = keystore.EventFilter{Key: given.Key.Key, Actor: given.Actor, Kind: given.Kind}
	if err == nil && filter.Kind != "" && !slices.Contains(eventKinds, filter.Kind) {
		err = formError{"Kind: " + strconv.Quote(filter.Kind) + " is not a kind of change."}
	}
	if given.Since != (operate.Moment{}) {
		filter.Since = given.Since.Before(v.operator.Now())
	}
	if after := r.URL.Query().Get("after"); err == nil && after != "" {
		last, bad := strconv.ParseInt(after, 10, 64)
		if bad != nil || last < 1 {
			err = formError{"The address of this page is not complete. Begin with the first page."}
		}
		before = keystore.Change(last)
	}
	if err != nil || given.Tenant == "" {
		return filter, before, err
	}
	t, err := v.store.Tenant(r.Context(), given.Tenant)
	if errors.Is(err, keystore.ErrNotFound) {
		err = formError{"Tenant: there is no tenant " + strconv.Quote(given.Tenant) + "."}
	}
	filter.Tenant = t.ID
	return filter, before, err
}

// eventList returns events as a table, with the names of their tenants.
func eventList(ctx context.Context, v *visit, events []keystore.Event) (list, error) {
	l := list{Caption: "Changes", Columns: []column{"When", "By", "Kind", "Tenant", "Subject", "#Event", "~Change"}}
	tenantsOf, err := v.store.TenantsOf(ctx, operate.ViewsOf(events, func(e keystore.Event) id.Tenant { return e.Tenant }))
	if err != nil {
		return l, err
	}
	for _, e := range events {
		tenant := cell{Text: "-"}
		if !e.Tenant.IsZero() {
			tenant = cell{Text: cmp.Or(tenantsOf[e.Tenant].Name, e.Tenant.String()), Link: tenantPath(e.Tenant.String())}
		}
		subject := cell{Text: operate.OrDash(operate.SubjectOf(e))}
		if !e.Key.IsZero() {
			subject.Link = keyPath(e.Key.String())
		}
		l.Rows = append(l.Rows, []cell{
			v.when(e.At, ""),
			{Text: e.Actor},
			{Text: e.Kind},
			tenant, subject,
			{Text: strconv.FormatInt(int64(e.ID), 10)},
			{Text: operate.ChangeOf(e)},
		})
	}
	return l, nil
}

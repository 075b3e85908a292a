package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/operate"
)

// auditPage is the content of the page of all changes.
type auditPage struct {
	Filter  auditFilter
	Kinds   []string
	Problem string // of the filter
	List    list
}

// auditFilter are the fields of the filter, as they were sent.
type auditFilter struct{ Tenant, Key, Actor, Kind, Since string }

var eventKinds = keystore.EventKindsAndGroups()

func (c *Console) showAudit(w http.ResponseWriter, r *http.Request, v *visit) error {
	ctx, query := r.Context(), r.URL.Query()
	page := auditPage{Kinds: eventKinds, Filter: auditFilter{
		Tenant: query.Get("tenant"), Key: query.Get("key"), Actor: query.Get("actor"), Kind: query.Get("kind"), Since: query.Get("since"),
	}}
	filter, before, err := page.Filter.read(ctx, v, query.Get("after"))
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
	if page.List, err = eventList(ctx, v.store, events.rows); err != nil {
		return err
	}
	page.List = page.List.paged(r, events.next)
	page.List.None, page.List.Cure = "There are no such changes.", "Clear a field, or look further back."
	return c.show(w, v, http.StatusOK, "audit", "Audit", page)
}

// read checks the fields. A mistake is a formError.
func (f auditFilter) read(ctx context.Context, v *visit, after string) (filter keystore.EventFilter, before keystore.Change, err error) {
	filter.Actor, filter.Kind = strings.TrimSpace(f.Actor), f.Kind
	if f.Kind != "" && !slices.Contains(eventKinds, f.Kind) {
		return filter, 0, formError{"Kind: " + strconv.Quote(f.Kind) + " is not a kind of change."}
	}
	if f.Key != "" {
		if filter.Key, err = id.ParseKey(strings.TrimSpace(f.Key)); err != nil {
			return filter, 0, formError{"Key: " + err.Error() + "."}
		}
	}
	if f.Since != "" {
		moment, err := operate.ParseMoment(strings.TrimSpace(f.Since))
		if err != nil {
			return filter, 0, formError{"Since: " + err.Error() + "."}
		}
		filter.Since = moment.Before(v.operator.Now())
	}
	if after != "" {
		last, err := strconv.ParseInt(after, 10, 64)
		if err != nil || last < 1 {
			return filter, 0, formError{"The address of this page is not complete. Begin with the first page."}
		}
		before = keystore.Change(last)
	}
	if f.Tenant == "" {
		return filter, before, nil
	}
	t, err := v.store.Tenant(ctx, strings.TrimSpace(f.Tenant))
	if errors.Is(err, keystore.ErrNotFound) {
		err = formError{"Tenant: there is no tenant " + strconv.Quote(f.Tenant) + "."}
	}
	filter.Tenant = t.ID
	return filter, before, err
}

// eventList returns events as a table, with the names of their tenants.
func eventList(ctx context.Context, store *keystore.Store, events []keystore.Event) (list, error) {
	l := list{Caption: "Changes", Columns: columns("At (UTC)", "By", "Kind", "Tenant", "Subject", "Change", "#Event")}
	tenantsOf, err := store.TenantsOf(ctx, viewsOf(events, func(e keystore.Event) id.Tenant { return e.Tenant }))
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
			{Text: shortTime(e.At)},
			{Text: e.Actor},
			{Text: e.Kind},
			tenant, subject,
			{Text: operate.ChangeOf(e)},
			{Text: strconv.FormatInt(int64(e.ID), 10)},
		})
	}
	return l, nil
}

// shortTime writes an instant for people, in UTC.
func shortTime(at instant.Millis) string { return at.Time().UTC().Format("2006-01-02 15:04:05") }

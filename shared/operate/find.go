package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"petgate/shared/core/id"
	"petgate/shared/keystore"
	"petgate/shared/keystore/lists"
)

// Page is one page of a list.
type Page[V any] struct {
	Views []V
	Next  string // where the page after it begins; empty: it is the last one
}

// Finder are the arguments of a list. Page returns at most n rows, from where the page before says
// that this one begins; empty: the first page. Errors: NoPage, a NotFoundError.
type Finder[V any] interface {
	Page(ctx context.Context, o Operator, after string, n int) (Page[V], error)
}

// NoPage is the error for a beginning that no page has named.
var NoPage error = &ArgumentError{"after", Text{"no page has named this: begin with the first page"}}

// pageOf makes a page of at most n rows. rows has one more if there are others after them.
func pageOf[T, V any](rows []T, n int, view func(T) V, cursor func(T) string) (p Page[V]) {
	if len(rows) > n {
		rows = rows[:n]
		p.Next = cursor(rows[n-1])
	}
	p.Views = ViewsOf(rows, view)
	return p
}

// TenantState is whether a tenant's requests are served.
type TenantState string

// UnmarshalText reads a state.
func (s *TenantState) UnmarshalText(text []byte) error {
	*s = TenantState(text)
	if *s != "active" && *s != "suspended" {
		return fmt.Errorf("%q is not a state: use active or suspended", text)
	}
	return nil
}

// FindTenants are the arguments of a list of tenants.
type FindTenants struct {
	Search string      `json:"search" help:"A part of the names, or the ID of one tenant."`
	Plan   PlanName    `json:"plan" help:"Only those on this plan."`
	State  TenantState `json:"state" title:"Status" help:"Only those that are active or suspended."`
	Newest bool        `json:"newest" help:"The newest first, not by name."`
}

// Filter returns which tenants are found.
func (a FindTenants) Filter() lists.TenantFilter {
	return lists.TenantFilter{Text: a.Search, Plan: string(a.Plan), State: string(a.State), IsNewestFirst: a.Newest}
}

// Page finds a page of tenants.
func (a FindTenants) Page(ctx context.Context, o Operator, after string, n int) (p Page[TenantView], err error) {
	found, err := lists.Of(o.Store).FindTenants(ctx, a.Filter(), after, n+1)
	if err != nil {
		return p, err
	}
	plans, err := o.Plans(ctx)
	return pageOf(found, n, func(t keystore.Tenant) TenantView { return plans.Owner(t).View() },
		func(t keystore.Tenant) string { return Either(a.Newest, t.ID.String(), t.Name) }), err
}

// OfTenant selects what is a tenant's, or everything.
type OfTenant struct {
	Tenant string `json:"tenant" placeholder:"TENANT" help:"Only those of this tenant: ID or name."`
}

// id returns the tenant's ID; zero: everything is selected.
func (a OfTenant) id(ctx context.Context, o Operator) (id.Tenant, error) {
	if a.Tenant == "" {
		return id.Tenant{}, nil
	}
	t, err := o.AnyTenant(ctx, a.Tenant)
	return t.ID, err
}

// FindKeys are the arguments of a list of keys, the newest first.
type FindKeys struct{ OfTenant }

// Page finds a page of keys.
func (a FindKeys) Page(ctx context.Context, o Operator, after string, n int) (p Page[KeyView], err error) {
	var last id.Key
	if after != "" {
		if last, err = id.ParseKey(after); err != nil {
			return p, NoPage
		}
	}
	tenant, err := a.id(ctx, o)
	if err != nil {
		return p, err
	}
	found, err := lists.Of(o.Store).FindKeys(ctx, tenant, last, n+1)
	if err != nil {
		return p, err
	}
	views, err := o.ViewKeys(ctx, found)
	return pageOf(views, n, func(v KeyView) KeyView { return v }, func(v KeyView) string { return v.ID }), err
}

// FindBans are the arguments of a list of the current bans, by their end.
type FindBans struct{ OfTenant }

// Page finds a page of bans.
func (a FindBans) Page(ctx context.Context, o Operator, after string, n int) (p Page[BanView], err error) {
	tenant, err := a.id(ctx, o)
	if err != nil {
		return p, err
	}
	found, err := lists.Of(o.Store).FindBans(ctx, tenant, after, n+1)
	if errors.Is(err, keystore.ErrNotFound) {
		err = NoPage
	}
	view := func(b lists.NamedBan) BanView { return ViewBan(b.Ban, b.TenantName, b.KeyName) }
	return pageOf(found, n, view, lists.NamedBan.Cursor), err
}

// EventKind is a kind of event, such as key.revoked, or the part before its dot.
type EventKind string

// UnmarshalText reads a kind.
func (k *EventKind) UnmarshalText(text []byte) error {
	*k = EventKind(text)
	if known := keystore.EventKindsAndGroups(); !slices.Contains(known, string(text)) {
		return fmt.Errorf("%q is not a kind of change: use %s", text, strings.Join(known, ", "))
	}
	return nil
}

// FindEvents are the arguments of the audit log, the latest change first.
type FindEvents struct {
	OfTenant
	Since Moment    `json:"since" help:"How far back: 1h, 1w, or from a date: 2026-11-20 (default: all)." kong:"default='7d',placeholder='AGE',help='How far back: 1h, 1w, or from a date: 2026-11-20.'"`
	Key   KeyID     `json:"key" placeholder:"KEY" help:"Only changes of this key: its ID, key_…"`
	Actor string    `json:"actor" title:"By" placeholder:"NAME" help:"Only changes by this operator or gateway."`
	Kind  EventKind `json:"kind" placeholder:"KIND" help:"Only changes of this kind: key.revoked, for example, or key for all changes of keys."`
}

// Filter returns which changes are found.
func (a FindEvents) Filter(ctx context.Context, o Operator) (f lists.EventFilter, err error) {
	f = lists.EventFilter{Key: a.Key.Key, Actor: a.Actor, Kind: string(a.Kind)}
	if a.Since != (Moment{}) {
		f.Since = a.Since.Before(o.Now())
	}
	f.Tenant, err = a.id(ctx, o)
	return f, err
}

// Page finds a page of changes.
func (a FindEvents) Page(ctx context.Context, o Operator, after string, n int) (p Page[EventView], err error) {
	before := int64(0)
	if after != "" {
		if before, err = strconv.ParseInt(after, 10, 64); err != nil || before < 1 {
			return p, NoPage
		}
	}
	filter, err := a.Filter(ctx, o)
	if err != nil {
		return p, err
	}
	found, err := lists.Of(o.Store).FindEvents(ctx, filter, keystore.Change(before), n+1)
	if err != nil {
		return p, err
	}
	views, err := o.ViewEvents(ctx, found)
	same := func(v EventView) EventView { return v }
	cursor := func(v EventView) string { return strconv.FormatInt(v.ID, 10) }
	return pageOf(views, n, same, cursor), err
}

package keystore_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/keystore/lists"
	"petgate/shared/testkit/must"
)

func TestFindTenants(t *testing.T) {
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		ctx := t.Context()
		var first keystore.Tenant
		for i, name := range []string{"acme", "Acme-two", "50%", "x_y", "xzy", "Ärzte"} { // three of them are created in the same ms
			c.now = c.now.Add(time.Duration(i/3) * time.Millisecond)
			if made := newTenant(t, s, name); name == "acme" {
				first = made
			}
		}
		must.First[keystore.Tenant](t)(s.Suspend(ctx, first.ID))
		type find struct {
			filter lists.TenantFilter
			want   int
		}
		finds := []find{
			{lists.TenantFilter{State: "suspended"}, 1},
			{lists.TenantFilter{State: "active", Text: "acme"}, 1},
			{lists.TenantFilter{Plan: "free", State: "active", IsNewestFirst: true}, 5},
			{lists.TenantFilter{Plan: "pro"}, 0},
			{lists.TenantFilter{IsNewestFirst: true}, 6},
		}
		for text, want := range map[string]int{
			"": 6, "Ärzte": 1, "RZTE": 1, "ACME": 2, "two": 1, "%": 1, "x_y": 1, "'": 0, `\`: 0, "$4 {rows}": 0, first.ID.String(): 1, "nothing": 0,
		} {
			finds = append(finds, find{lists.TenantFilter{Text: text}, want})
		}
		for _, test := range finds {
			found, after := []keystore.Tenant{}, ""
			for size := 1; ; size = 2 { // pages
				page := must.Get[[]keystore.Tenant](t)(lists.Of(s).FindTenants(ctx, test.filter, after, size))
				if found = append(found, page...); len(page) == 0 {
					break
				}
				if after = page[len(page)-1].Name; test.filter.IsNewestFirst {
					after = page[len(page)-1].ID.String()
				}
			}
			isSorted := slices.IsSortedFunc(found,
				func(a, b keystore.Tenant) int { return -cmp.Compare(a.CreatedAt, b.CreatedAt) })
			if counted, err := lists.Of(s).CountTenants(ctx, test.filter); err != nil || len(found) != test.want ||
				counted != test.want ||
				test.filter.IsNewestFirst && !isSorted {
				t.Errorf("%+v: %d counted, want %d: %v", test.filter, counted, test.want, found)
			}
		}
		wantEqual(t, "tenants by plan", must.Get[map[string]int](t)(lists.Of(s).TenantsByPlan(ctx)), map[string]int{"free": 6})
	})
}

func TestFindKeysAndBans(t *testing.T) {
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		ctx := t.Context()
		var tenants []keystore.Tenant
		var newest keystore.Key // of the first tenant
		for i := range 2 {
			tenant := newTenant(t, s, fmt.Sprint("tenant ", i))
			tenants = append(tenants, tenant)
			for j := range 3 { // two of them are created in the same ms
				c.now = c.now.Add(time.Duration(j/2) * time.Millisecond)
				k := keyOf(t, s, tenant.ID, fmt.Sprint("key ", j))
				if i == 0 {
					newest = k
				}
				must.First[keystore.Ban](t)(
					s.AddBan(ctx, keystore.Ban{Key: k.ID, Until: c.millis().Add(time.Hour), Reason: "test"}),
				)
			}
		}
		for tenant, want := range map[id.Tenant]int{{}: 6, tenants[0].ID: 3} {
			var found []keystore.Key
			for after := (id.Key{}); len(found) < want; after = found[len(found)-1].ID {
				found = append(found, must.Get[[]keystore.Key](t)(lists.Of(s).FindKeys(ctx, tenant, after, 2))...)
			}
			isSorted := slices.IsSortedFunc(found, func(a, b keystore.Key) int {
				return -cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.ID.String(), b.ID.String()))
			})
			different := map[id.Key]bool{}
			for _, k := range found {
				different[k.ID] = true
			}
			if !isSorted || len(different) != want || want == 3 && found[0].ID != newest.ID {
				t.Errorf("keys %v, want %d and first of the tenant's %v", found, want, newest)
			}
		}
		refused(t, keystore.ErrNotFound)(lists.Of(s).FindKeys(ctx, tenants[0].ID, id.Key{1}, 2))
		for _, after := range []string{"x", "1", "x.key_0000000000000000", "1.key"} {
			refused(t, keystore.ErrNotFound)(lists.Of(s).FindBans(ctx, id.Tenant{}, after, 2))
		}
		for tenant, want := range map[id.Tenant]int{{}: 6, tenants[1].ID: 3} {
			var bans []lists.NamedBan
			for after := ""; ; after = bans[len(bans)-1].Cursor() {
				page := must.Get[[]lists.NamedBan](t)(lists.Of(s).FindBans(ctx, tenant, after, 2))
				if bans = append(bans, page...); len(page) < 2 {
					break
				}
			}
			isSorted := slices.IsSortedFunc(bans, func(a, b lists.NamedBan) int {
				return cmp.Or(cmp.Compare(a.Until, b.Until), cmp.Compare(a.Key.String(), b.Key.String()))
			})
			if len(bans) != want || !isSorted || bans[0].TenantName == "" || bans[0].KeyName == "" {
				t.Errorf("bans of %v: %v, want %d", tenant, bans, want)
			}
		}
	})
}

func TestFindEvents(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		ctx := t.Context()
		acme, globex := newTenant(t, s.As("gateway:bob"), "acme").ID, newTenant(t, s.As("console:bob"), "globex").ID
		key, _ := newKey(t, s, keystore.KeySpec{Tenant: acme})
		other, _ := newKey(t, s.As("operator:bob"), keystore.KeySpec{Tenant: globex})
		must.First[keystore.Key](t)(s.As("keyadmin:bob").RevokeKey(ctx, key.ID))
		kinds := func(f lists.EventFilter) (found []string) {
			before := keystore.Change(0)
			for { // pages of two
				page := must.Get[[]keystore.Event](t)(lists.Of(s).FindEvents(ctx, f, before, 2))
				for _, e := range page {
					found, before = append(found, e.Kind), e.ID
				}
				if len(page) < 2 {
					return found
				}
			}
		}
		later := must.Get[[]keystore.Event](t)(keystore.Collect(lists.Of(s).Events(ctx, lists.EventFilter{Actor: "bob"}, 4)))
		must.Equal(t, len(later), 1, "events after the one before the last")
		all := kinds(lists.EventFilter{})
		if len(all) < 5 || all[0] != "key.revoked" {
			t.Errorf("all events are %v", all)
		}
		for _, test := range []struct {
			what   string
			filter lists.EventFilter
			want   []string
		}{
			{"of a tenant", lists.EventFilter{Tenant: acme}, []string{"key.revoked", "key.created", "tenant.created"}},
			{"of a key", lists.EventFilter{Key: other.ID}, []string{"key.created"}},
			{"of another tenant's key", lists.EventFilter{Key: other.ID, Tenant: acme}, nil},
			{"by a person", lists.EventFilter{Actor: "bob"}, []string{"key.revoked", "key.created", "tenant.created", "tenant.created"}},
			{"by an actor", lists.EventFilter{Actor: "keyadmin:bob", Tenant: acme}, []string{"key.revoked"}},
			{"by a part of a name", lists.EventFilter{Actor: "bo"}, nil},
			{"of a kind", lists.EventFilter{Kind: "key.created"}, []string{"key.created", "key.created"}},
			{"of a group of kinds, of all tenants", lists.EventFilter{Kind: "key"}, []string{"key.revoked", "key.created", "key.created"}},
			{"of a kind, by a person", lists.EventFilter{Kind: "key.created", Actor: "bob"}, []string{"key.created"}},
			{"of a kind, since now", lists.EventFilter{Kind: "key.revoked", Since: instant.Of(c.now)}, []string{"key.revoked"}},
			{"of a kind, later", lists.EventFilter{Kind: "key", Since: instant.Of(c.now) + 1}, nil},
			{"of a group of kinds", lists.EventFilter{Kind: "key", Tenant: acme}, []string{"key.revoked", "key.created"}},
			{"of a part of a kind", lists.EventFilter{Kind: "ke"}, nil},
			{"later", lists.EventFilter{Since: instant.Of(c.now) + 1}, nil},
			{"since now", lists.EventFilter{Since: instant.Of(c.now)}, all},
		} {
			if got := kinds(test.filter); !slices.Equal(got, test.want) {
				t.Errorf("%s: %v, want %v", test.what, got, test.want)
			}
		}
	})
}

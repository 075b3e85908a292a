package keystore_test

import (
	"slices"
	"testing"

	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/testkit/must"
)

func TestFindEvents(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		ctx := t.Context()
		acme, globex := newTenant(t, s, "acme").ID, newTenant(t, s, "globex").ID
		key, _ := newKey(t, s, keystore.KeySpec{Tenant: acme})
		other, _ := newKey(t, s.As("keyadmin:bob"), keystore.KeySpec{Tenant: globex})
		must.First[keystore.Key](t)(s.As("keyadmin:bob").RevokeKey(ctx, key.ID))
		kinds := func(f keystore.EventFilter) (found []string) {
			before := keystore.Change(0)
			for { // pages of two
				page := must.Get[[]keystore.Event](t)(s.FindEvents(ctx, f, before, 2))
				for _, e := range page {
					found, before = append(found, e.Kind), e.ID
				}
				if len(page) < 2 {
					return found
				}
			}
		}
		all := kinds(keystore.EventFilter{})
		if len(all) < 5 || all[0] != "key.revoked" {
			t.Errorf("all events are %v", all)
		}
		for _, test := range []struct {
			what   string
			filter keystore.EventFilter
			want   []string
		}{
			{"of a tenant", keystore.EventFilter{Tenant: acme}, []string{"key.revoked", "key.created", "tenant.created"}},
			{"of a key", keystore.EventFilter{Key: other.ID}, []string{"key.created"}},
			{"by a person", keystore.EventFilter{Actor: "bob"}, []string{"key.revoked", "key.created"}},
			{"by an actor", keystore.EventFilter{Actor: "keyadmin:bob", Tenant: acme}, []string{"key.revoked"}},
			{"by a part of a name", keystore.EventFilter{Actor: "bo"}, nil},
			{"of a kind", keystore.EventFilter{Kind: "key.created"}, []string{"key.created", "key.created"}},
			{"of a group of kinds, of all tenants", keystore.EventFilter{Kind: "key"}, []string{"key.revoked", "key.created", "key.created"}},
			{"of a kind, by a person", keystore.EventFilter{Kind: "key.created", Actor: "bob"}, []string{"key.created"}},
			{"of a kind, since now", keystore.EventFilter{Kind: "key.revoked", Since: instant.Of(c.now)}, []string{"key.revoked"}},
			{"of a kind, later", keystore.EventFilter{Kind: "key", Since: instant.Of(c.now) + 1}, nil},
			{"of a group of kinds", keystore.EventFilter{Kind: "key", Tenant: acme}, []string{"key.revoked", "key.created"}},
			{"of a part of a kind", keystore.EventFilter{Kind: "ke"}, nil},
			{"later", keystore.EventFilter{Since: instant.Of(c.now) + 1}, nil},
			{"since now", keystore.EventFilter{Since: instant.Of(c.now)}, all},
		} {
			if got := kinds(test.filter); !slices.Equal(got, test.want) {
				t.Errorf("%s: %v, want %v", test.what, got, test.want)
			}
		}
	})
}

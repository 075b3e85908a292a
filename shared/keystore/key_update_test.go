package keystore_test

import (
	"net/netip"
	"testing"
	"time"

	"petgate/shared/core/apikey"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/testkit/must"
)

// A change of a key reaches the gateways with its event; one that changes nothing, or that is
// refused, makes no event.
func TestUpdateKey(t *testing.T) {
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		tenant := newTenant(t, s, "acme")
		k, token := newKey(t, s, keystore.KeySpec{Tenant: tenant.ID, Name: "ci"})
		office := netip.MustParsePrefix("203.0.113.0/24")
		edit := func(k *keystore.Key) {
			k.Name, k.Scopes, k.Allow, k.ExpiresAt = "build", "pets:read", keystore.Prefixes{office}, c.millis().Add(
				time.Hour,
			)
			k.Limits = plan.Limits{Minute: 5, Day: 50}
		}
		updated := must.First[keystore.Key](t)(s.UpdateKey(t.Context(), k.ID, edit))
		wantEqual(t, "the stored key", must.Get[keystore.Key](t)(s.Key(t.Context(), k.ID)), updated)
		var row keystore.KeyRow
		rows := keystore.Rows{
			Plan:   func(keystore.Plan) {},
			Tenant: func(*keystore.TenantRow) {},
			Key:    func(k *keystore.KeyRow) { row = *k },
		}
		must.Get[[]keystore.EventRow](t)(s.Tail(t.Context(), 2, events(t, s)[1].UUID, 10, rows))
		wantEqual(t, "what a gateway reads", row, keystore.KeyRow{
			Hash: apikey.Sum(
				[]byte(token),
			), ID: k.ID, Tenant: tenant.ID, Environment: apikey.Live, Scopes: "pets:read", Name: "build",
			Allow: keystore.Prefixes{
				office,
			}, ExpiresAt: c.millis().Add(time.Hour), Limits: plan.Limits{Minute: 5, Day: 50},
		})

		all := must.Get[[]keystore.EventRow](t)(s.Tail(t.Context(), 0, "", 10, rows))
		wantEqual(t, "the first event", all[0],
			keystore.EventRow{ID: 1, UUID: events(t, s)[0].UUID, Kind: keystore.TenantCreated, Tenant: tenant.ID})
		did(t, 3)(s.UpdateKey(t.Context(), k.ID, edit)) // repeated
		refused(t, keystore.ErrInvalid, "in the past")(
			s.UpdateKey(t.Context(), k.ID, func(k *keystore.Key) { k.ExpiresAt = c.millis() }),
		)
		refused(t, keystore.ErrInvalid, "must not be empty")(
			s.UpdateKey(t.Context(), k.ID, func(k *keystore.Key) { k.Name = " " }),
		)
		refused(t, keystore.ErrInvalid, "needs a scope")(
			s.UpdateKey(t.Context(), k.ID, func(k *keystore.Key) { k.Scopes = "" }),
		)
		fresh := rotate(t, s, k.ID, c.millis().Add(time.Hour))
		refused(t, keystore.ErrConflict, "change "+fresh.ID.String())(s.UpdateKey(t.Context(), k.ID, edit))
		must.First[keystore.Key](t)(s.RevokeKey(t.Context(), fresh.ID))
		refused(t, keystore.ErrConflict, "was revoked")(s.UpdateKey(t.Context(), fresh.ID, edit))
		expired, _ := newKey(t, s, keystore.KeySpec{Tenant: tenant.ID, ExpiresAt: c.millis() + 1})
		c.now = c.now.Add(time.Second)
		must.First[keystore.Key](t)(s.UpdateKey(t.Context(), expired.ID, func(k *keystore.Key) { k.Name = "old" }))
		must.First[keystore.Key](t)(s.UpdateKey(t.Context(), expired.ID, func(k *keystore.Key) { k.ExpiresAt = 0 }))
		wantEvents(t, s, keystore.TenantCreated, keystore.KeyCreated, keystore.KeyUpdated, keystore.KeyCreated,
			keystore.KeyRotated, keystore.KeyRevoked, keystore.KeyCreated, keystore.KeyUpdated, keystore.KeyUpdated)
	})
}

func TestGraceGetsShorter(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		ctx := t.Context()
		leaked, _ := newKey(t, s, keystore.KeySpec{Tenant: newTenant(t, s, "acme").ID})
		refused(t, keystore.ErrConflict, "was not rotated")(s.ShortenGrace(ctx, leaked.ID, c.millis()))
		now := c.millis()
		rotate(t, s, leaked.ID, now+5000)
		for _, step := range []struct {
			ask, ends, revoked instant.Millis
			change             keystore.Change
		}{
			{now + 6000, now + 5000, 0, 4}, // never longer
			{now + 5000, now + 5000, 0, 4},
			{now + 3000, now + 3000, 0, 5},
			{now + 4000, now + 3000, 0, 5},
			{now, now, now, 6}, // at once
			{now - 1, now, now, 6},
		} {
			k, change, err := s.ShortenGrace(ctx, leaked.ID, step.ask)
			if err != nil || change != step.change || k.GraceEndsAt != step.ends || k.RevokedAt != step.revoked {
				t.Errorf("end at %d: change %d, ends %d, revoked %d, %v; want %+v", step.ask-now, change,
					k.GraceEndsAt-now, k.RevokedAt, err, step)
			}
			wantEqual(t, "the stored key", must.Get[keystore.Key](t)(s.Key(ctx, leaked.ID)), k)
		}
		wantEvents(t, s, keystore.TenantCreated, keystore.KeyCreated, keystore.KeyCreated, keystore.KeyRotated,
			keystore.KeyRotated, keystore.KeyRotated)

		ended, _ := newKey(t, s, keystore.KeySpec{Tenant: leaked.Tenant})
		rotate(t, s, ended.ID, now+5000)
		revoked, _ := newKey(t, s, keystore.KeySpec{Tenant: leaked.Tenant})
		rotate(t, s, revoked.ID, now+9000)
		revoked = must.First[keystore.Key](t)(s.RevokeKey(ctx, revoked.ID))
		wantEqual(t, "a key that was revoked in its grace period",
			must.First[keystore.Key](t)(s.ShortenGrace(ctx, revoked.ID, now+1000)), revoked)
		c.now = c.now.Add(6 * time.Second)
		ended = must.Get[keystore.Key](t)(s.Key(ctx, ended.ID))
		k := must.First[keystore.Key](t)(s.ShortenGrace(ctx, ended.ID, now))
		wantEqual(t, "a key whose grace period has ended", k, ended)
	})
}

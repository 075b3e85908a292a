package keystore_test

import (
	"net/netip"
	"testing"
	"time"

	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/testkit/must"
)

// A change of a key reaches the gateways with its event; one that changes nothing, or that is refused, makes no event.
func TestUpdateKey(t *testing.T) {
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		tenant := newTenant(t, s, "acme")
		k, _ := newKey(t, s, keystore.KeySpec{Tenant: tenant.ID, Name: "ci"})
		office := netip.MustParsePrefix("203.0.113.0/24")
		edit := func(k *keystore.Key) {
			k.Name, k.Scopes, k.Allow, k.ExpiresAt = "build", "pets:read", keystore.Prefixes{office}, c.millis().Add(time.Hour)
		}
		updated, change, err := s.UpdateKey(t.Context(), k.ID, edit)
		must.Do(t, err)
		stored := must.Get[keystore.Key](t)(s.Key(t.Context(), k.ID))
		wantEqual(t, "the stored key", stored, updated)
		var row keystore.KeyRow
		if _, err := s.Tail(t.Context(), change-1, uuidOf(t, s, change-1), 10, keystore.Rows{
			Plan: func(keystore.Plan) {}, Tenant: func(*keystore.TenantRow) {}, Key: func(k *keystore.KeyRow) { row = *k },
		}); err != nil {
			t.Fatal(err)
		}
		if row.ID != k.ID || row.Scopes != "pets:read" || len(row.Allow) != 1 || row.ExpiresAt != updated.ExpiresAt {
			t.Errorf("a gateway reads %+v", row)
		}

		if _, again, err := s.UpdateKey(t.Context(), k.ID, edit); err != nil || again != change {
			t.Errorf("repeated: change %d, %v; want %d", again, err, change)
		}
		_, _, err = s.UpdateKey(t.Context(), k.ID, func(k *keystore.Key) { k.ExpiresAt = c.millis() })
		wantError(t, err, keystore.ErrInvalid, "in the past")
		_, _, err = s.UpdateKey(t.Context(), k.ID, func(k *keystore.Key) { k.Name = " " })
		wantError(t, err, keystore.ErrInvalid, "must not be empty")
		_, _, err = s.UpdateKey(t.Context(), k.ID, func(k *keystore.Key) { k.Scopes = "" })
		wantError(t, err, keystore.ErrInvalid, "needs a scope")
		fresh, _, _, err := s.RotateKey(t.Context(), k.ID, c.millis().Add(time.Hour))
		must.Do(t, err)
		_, _, err = s.UpdateKey(t.Context(), k.ID, edit)
		wantError(t, err, keystore.ErrConflict, "change "+fresh.ID.String())
		must.Get[keystore.Key](t)(first(s.RevokeKey(t.Context(), fresh.ID)))
		_, _, err = s.UpdateKey(t.Context(), fresh.ID, edit)
		wantError(t, err, keystore.ErrConflict, "was revoked")
		wantEqual(t, "events", kinds(t, s), []string{
			keystore.TenantCreated, keystore.KeyCreated, keystore.KeyUpdated, keystore.KeyCreated, keystore.KeyRotated, keystore.KeyRevoked,
		})
	})
}

// uuidOf returns the UUID of an event.
func uuidOf(t *testing.T, s *keystore.Store, c keystore.Change) string {
	t.Helper()
	for _, e := range must.Get[[]keystore.Event](t)(keystore.Collect(s.Events(t.Context(), keystore.EventFilter{}, 0))) {
		if e.ID == c {
			return e.UUID
		}
	}
	t.Fatalf("there is no event %d", c)
	return ""
}

// A plan and limits of the tenant's own are set in one event, so there is no moment without a quota.
func TestSetTerms(t *testing.T) {
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		tenant := newTenant(t, s, "acme")
		moved, change, err := s.SetTerms(t.Context(), tenant.ID, "enterprise", plan.Limits{Minute: 5, Day: 50})
		if err != nil || moved.Plan != "enterprise" || moved.Override != (plan.Limits{Minute: 5, Day: 50}) || change != 2 {
			t.Errorf("SetTerms = %+v, event %d, %v", moved, change, err)
		}
		_, _, err = s.SetTerms(t.Context(), tenant.ID, "nosuch", plan.Limits{})
		wantError(t, err, keystore.ErrNotFound, "nosuch")
		_, _, err = s.SetTerms(t.Context(), tenant.ID, "pro", plan.Limits{Minute: -2})
		wantError(t, err, keystore.ErrInvalid)
	})
}

func TestGraceGetsShorter(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		ctx := t.Context()
		leaked, _ := newKey(t, s, keystore.KeySpec{Tenant: newTenant(t, s, "acme").ID})
		_, _, err := s.ShortenGrace(ctx, leaked.ID, c.millis())
		wantError(t, err, keystore.ErrConflict, "was not rotated")
		now := c.millis()
		if _, _, _, err := s.RotateKey(ctx, leaked.ID, now+5000); err != nil {
			t.Fatal(err)
		}
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
				t.Errorf("end at %d: change %d, ends %d, revoked %d, %v; want %+v", step.ask-now, change, k.GraceEndsAt-now, k.RevokedAt, err, step)
			}
			wantEqual(t, "the stored key", must.Get[keystore.Key](t)(s.Key(ctx, leaked.ID)), k)
		}
		events := must.Get[[]keystore.Event](t)(keystore.Collect(s.Events(ctx, keystore.EventFilter{}, 0)))
		if last := events[len(events)-1]; last.Kind != keystore.KeyRotated || last.Key != leaked.ID {
			t.Errorf("the event: %+v", last)
		}
	})
}

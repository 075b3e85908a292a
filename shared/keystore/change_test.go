package keystore_test

import (
	"testing"
	"time"

	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// If another writer changes a row after it was read and before it is written, the row is read again: both changes hold.
func TestChangesOfOneRowBothHold(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		ctx, db := t.Context(), open(t, url)
		other := keystore.New(db, nil, nil, "bob")
		meanwhile := func() {} // runs after the row has been read, and before the change gets its time
		s := keystore.New(db, func() time.Time { meanwhile(); return time.Now() }, nil, "ada")
		once := func(f func()) {
			meanwhile = func() {
				meanwhile = func() {}
				f()
			}
		}
		tenant, key := newTenant(t, other, "acme"), keystore.Key{}

		once(func() {
			if _, _, err := other.SetPlan(ctx, tenant.ID, "pro"); err != nil {
				t.Error(err)
			}
		})
		after, _, err := s.Suspend(ctx, tenant.ID)
		if err != nil || after.Plan != "pro" || !after.Suspended {
			t.Errorf("after both changes: %+v, %v", after, err)
		}
		wantEqual(t, "the tenant", must.Get[keystore.Tenant](t)(s.Tenant(ctx, tenant.ID.String())), after)

		key, _, _, err = other.CreateKey(ctx, keystore.KeySpec{Tenant: tenant.ID})
		must.Do(t, err)
		once(func() {
			if _, _, _, err := other.RotateKey(ctx, key.ID, instant.Of(time.Now().Add(time.Hour))); err != nil {
				t.Error(err)
			}
		})
		if key, _, err = s.RevokeKey(ctx, key.ID); err != nil || key.RevokedAt == 0 || key.ReplacedBy.IsZero() {
			t.Errorf("after both changes: %+v, %v", key, err)
		}

		// If others keep changing the row, the change fails and overwrites nothing.
		plans, n := []string{"free", "pro"}, 0
		meanwhile = func() {
			if _, _, err := other.SetPlan(ctx, tenant.ID, plans[n%2]); err != nil {
				t.Error(err)
			}
			n++
		}
		_, _, err = s.SetQuota(ctx, tenant.ID, plan.Limits{Minute: 7}, 0)
		meanwhile = func() {}
		wantError(t, err, keystore.ErrConflict, "try again")
		if now := must.Get[keystore.Tenant](t)(s.Tenant(ctx, tenant.ID.String())); now.Override.Minute != 0 || now.Plan != plans[(n+1)%2] {
			t.Errorf("after %d other changes: %+v", n, now)
		}
	})
}

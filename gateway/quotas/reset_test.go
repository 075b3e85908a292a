package quotas

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/id"
	"petgate/shared/core/quota"
)

// When a reset returns, the use is gone from the saved records too. A process that is killed then does not find it again.
func TestResetOfSavedRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		saver := &savedRecords{byTenant: map[id.Tenant]store.Saved{}}
		a, reset := asking(1, 60), Reset{Tenant: tenant(1), UUID: "u"}
		l := openQuotas(t, Config{Saver: saver})
		mustTake(t, l, a)
		time.Sleep(2 * saveEvery)
		if err := l.Reset(background, reset); err != nil {
			t.Fatal(err)
		}
		kept, _ := saver.kept(a.Tenant)
		if rec, err := quota.Product.Decode(kept.Record); err != nil || !rec.IsUnused() {
			t.Errorf("saved after a reset: %+v, %v", rec, err)
		}
		saver.fail(errTest)
		if err := l.Reset(background, reset); !errors.Is(err, errTest) {
			t.Errorf("a reset that cannot be saved: %v", err)
		}
		unloaded := openQuotas(t, Config{Saver: saver})
		if err := unloaded.Reset(background, reset); !errors.Is(err, ErrUndecided) {
			t.Errorf("a reset before the saved records are loaded: %v", err)
		}
		saver.fail(nil)
		time.Sleep(2 * loadEvery)
		if err := unloaded.Reset(background, reset); err != nil {
			t.Errorf("a reset after they are loaded: %v", err)
		}
	})
}

// Resets that cannot be saved are repeated each second. Each clears its tenant's use once: what is used afterwards counts.
func TestRepeatedResetClearsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		saver := &savedRecords{byTenant: map[id.Tenant]store.Saved{}}
		l := openQuotas(t, Config{Saver: saver})
		reset := func(n int, uuid string, want error) {
			t.Helper()
			if err := l.Reset(background, Reset{Tenant: tenant(n), UUID: uuid}); !errors.Is(err, want) {
				t.Errorf("reset %s: %v, want %v", uuid, err, want)
			}
		}
		used := func(n int, want int64) {
			t.Helper()
			if v := l.Known(tenant(n), asking(n, 60).Limits); v.Minute.Used != want || v.Day.Used != want {
				t.Errorf("tenant %d: %+v, want %d used", n, v, want)
			}
		}
		for n := range 2 {
			mustTake(t, l, asking(n+1, 60))
		}
		saver.fail(errTest)
		for range 3 {
			reset(1, "a", errTest)
			reset(2, "b", errTest)
			mustTake(t, l, asking(1, 60))
			time.Sleep(saveEvery)
		}
		used(1, 3)
		used(2, 0)
		saver.fail(nil)
		time.Sleep(2 * saveEvery) // the use is saved before the resets are repeated
		reset(1, "a", nil)
		reset(2, "b", nil)
		used(1, 3)
		reset(1, "c", nil)
		used(1, 0)
	})
}

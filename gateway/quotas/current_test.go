package quotas

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/quota"
)

// Current asks Redis once for all callers, and again only after a second. After a decision of this gateway, Current does not ask
// for a second either. Current charges nothing.
func TestCurrentAsksOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := store.NewMemory(quota.Product, time.Now)
		calls := 0
		decide := func(ctx context.Context, demands []store.Demand, results []store.Result) error {
			calls++
			time.Sleep(time.Millisecond) // of the test's clock
			return records.Decide(ctx, demands, results)
		}
		here, elsewhere := newFake(t, Config{}, decide), newFake(t, Config{}, decide)
		ask := asking(1, 5)
		current := func(what string, callers, wantCalls int, used int64) {
			t.Helper()
			calls = 0
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					if v, err := here.Current(ask); err != nil || v.Minute.Used != used || v.Day.Used != used || v.Granted != 0 || v.Degraded {
						t.Errorf("%s: %+v, %v; want %d used", what, v, err, used)
					}
				})
			}
			all.Wait()
			if calls != wantCalls {
				t.Errorf("%s: %d calls, want %d", what, calls, wantCalls)
			}
		}
		mustTake(t, elsewhere, ask)
		current("before any decision here", 50, 1, 1)
		mustTake(t, elsewhere, ask)
		current("in the same second", 50, 0, 1)
		time.Sleep(time.Second)
		current("a second later", 50, 1, 2)
		mustTake(t, here, ask)
		mustTake(t, elsewhere, ask)
		current("after a decision here", 1, 0, 3)
		time.Sleep(time.Second)
		current("a second after it", 1, 1, 4)
		takeAll(t, here, ask, 10)
		current("after a refusal", 50, 0, 5)
		time.Sleep(time.Second)
		current("when the refusal is forgotten", 1, 1, 5)
	})
}

// Without Redis, Current returns the figures on which this gateway decides, or an error if it decides nothing.
func TestCurrentWithoutRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := store.NewMemory(quota.Product, time.Now)
		down := false
		decide := func(ctx context.Context, demands []store.Demand, results []store.Result) error {
			if down {
				return errTimeout
			}
			return records.Decide(ctx, demands, results)
		}
		ask := asking(1, 10)
		shares, refuses := newFake(t, Config{}, decide), newFake(t, Config{OnOutage: Refuse}, decide)
		mustTake(t, shares, ask)
		if _, err := refuses.Current(ask); err != nil {
			t.Error(err)
		}
		down = true
		time.Sleep(time.Second)
		v, err := shares.Current(ask)
		if next := mustTake(t, shares, ask); err != nil || !v.Degraded || next.Granted != 1 || next.Minute.Remaining() != v.Minute.Remaining()-1 {
			t.Errorf("%+v, %v; then %+v", v, err, next)
		}
		if v, err := refuses.Current(ask); err == nil {
			t.Errorf("%+v, although nothing is decided", v)
		}
	})
}

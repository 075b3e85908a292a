package quotas

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/quota"
	"petgate/shared/testkit/must"
)

// Current asks Redis at most once a second, and not within a second after a decision of this
// gateway. It charges nothing. If it finds that nothing is left, requests are refused without
// another call. If Redis has no figures of a tenant, Current returns those on which this gateway
// decides.
func TestCurrentAsksOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := newMemory(quota.Product, time.Now)
		calls, isDamaged := 0, false
		here := newFake(t, Config{}, func(ctx context.Context, demands []store.Demand, results []store.Result) error {
			calls++
			time.Sleep(time.Millisecond) // of the test's clock
			if isDamaged {
				results[0].Err = store.ErrRecord
				return nil
			}
			return records.Decide(ctx, demands, results)
		})
		elsewhere := newFake(t, Config{}, records.Decide)
		ask := asking(1, 5)
		current := func(what string, callers, wantCalls int, used int64) {
			t.Helper()
			calls = 0
			for range callers {
				if v, err := here.Current(ask); err != nil || v.Usages[quota.Minute].Used != used ||
					v.Usages[quota.Day].Used != used ||
					v.Granted != 0 ||
					v.Degraded {
					t.Errorf("%s: %+v, %v; want %d used", what, v, err, used)
				}
			}
			must.Equal(t, calls, wantCalls, "%s: calls", what)
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
		if n := takeAll(t, here, ask, 10); n != 0 || calls != 1 {
			t.Errorf("%d admitted and %d calls, after Current found that nothing is left", n, calls)
		}
		for _, isDamaged = range []bool{true, false} {
			if v, err := here.Current(asking(2, 5)); err != nil || v.Degraded != isDamaged {
				t.Errorf("the record is damaged: %t: %+v, %v", isDamaged, v, err)
			}
		}
	})
}

// Without Redis, Current and Known return the figures on which this gateway decides. If it decides
// nothing, they admit nothing.
func TestCurrentWithoutRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := newMemory(quota.Product, time.Now)
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
		must.Get[quota.Verdict](t)(refuses.Current(ask))
		down = true
		time.Sleep(time.Second)
		v, err := shares.Current(ask)
		if next := mustTake(t, shares, ask); err != nil || !v.Degraded || next.Granted != 1 ||
			next.Usages[quota.Minute].Remaining != v.Usages[quota.Minute].Remaining-1 ||
			shares.Known(ask) != withoutGrant(next) {
			t.Errorf("%+v, %v; then %+v", v, err, next)
		}
		v, err = refuses.Current(ask)
		if err != nil || !v.Degraded || v.Usages[quota.Minute].Used != 1 || v.Usages[quota.Minute].Remaining != 0 ||
			v.RetryAt() != v.At+1000 ||
			refuses.Known(ask) != v ||
			testutil.ToFloat64(refuses.metrics.mode.WithLabelValues(modeOutage)) != 1 {
			t.Errorf("with refuse: %+v, %v", v, err)
		}
		if peeked, err := refuses.Peek(always, ask); err != nil || peeked != v {
			t.Errorf("with refuse, Peek: %+v, %v", peeked, err)
		}
		if _, err := refuses.Take(ask); !errors.Is(err, ErrUndecided) ||
			testutil.ToFloat64(refuses.metrics.undecided) != 1 {
			t.Errorf("with refuse, Take: %v, or it is not counted", err)
		}
	})
}

func withoutGrant(v quota.Verdict) quota.Verdict {
	v.Granted = 0
	return v
}

// A trip of Current that is sent after that of a request, but decided and answered before it, does
// not hide the request.
func TestCurrentOvertakesARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := newMemory(quota.Product, time.Now)
		l := newFake(t, Config{}, func(ctx context.Context, demands []store.Demand, results []store.Result) error {
			if demands[0].Want > 0 {
				time.Sleep(10 * time.Millisecond)
			}
			return records.Decide(ctx, demands, results)
		})
		ask := asking(1, 5)
		var all sync.WaitGroup
		all.Go(func() { mustTake(t, l, ask) })
		time.Sleep(time.Millisecond)
		if v, err := l.Current(ask); err != nil || v.Usages[quota.Minute].Used != 0 {
			t.Errorf("before the request is decided: %+v, %v", v, err)
		}
		all.Wait()
		if v, err := l.Current(ask); err != nil || v.Usages[quota.Minute].Used != 1 || v.Usages[quota.Day].Used != 1 {
			t.Errorf("after the request: %+v, %v", v, err)
		}
	})
}

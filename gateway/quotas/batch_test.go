package quotas

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/testkit/must"
)

// gated is quotas whose trips wait until open is closed.
type gated struct {
	*Shared
	records memory
	log     trips
	open    chan struct{}
}

func newGated(t *testing.T) *gated {
	g := &gated{records: newMemory(quota.Product, time.Now), open: make(chan struct{})}
	g.Shared = newFake(t, Config{}, func(ctx context.Context, demands []store.Demand, results []store.Result) error {
		g.log.add(demands)
		<-g.open
		return g.records.Decide(ctx, demands, results)
	})
	return g
}

// Requests that arrive while a batch is under way form the next batch, with one demand for each
// tenant. Each request gets its own verdict.
func TestBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newGated(t)
		first, second := asking(1, 5), asking(2, 1000)

		go l.Take(first)
		synctest.Wait() // it leads alone
		var mu sync.Mutex
		used := map[int64]int{}
		refused := 0
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				v := mustTake(t, l, first)
				mu.Lock()
				defer mu.Unlock()
				if v.Granted == 0 {
					refused++
					return
				}
				used[v.Usages[quota.Minute].Used]++
				if v.Usages[quota.Day].Used != v.Usages[quota.Minute].Used ||
					(v.RetryAt() != 0) != (v.Usages[quota.Minute].Used == 5) {
					t.Errorf("verdict %+v", v)
				}
			})
			all.Go(func() { mustTake(t, l, second) })
		}
		synctest.Wait()
		close(l.open)
		all.Wait()

		if len(l.log) != 2 || len(l.log[0]) != 1 || len(l.log[1]) != 2 {
			t.Fatalf("trips: %v, want the first request alone, then all others", l.log)
		}
		for _, d := range l.log[1] {
			must.Equal(t, d.Want, 6, "a demand wants")
		}
		for n := int64(2); n <= 5; n++ {
			must.Equal(t, used[n], 1, "requests that were told that %d are used", n)
		}
		must.Equal(t, refused, 2, "requests refused")
	})
}

// Redis is asked once a second about a flood of refused requests. It is asked earlier if the
// version or the limits have changed, or at the instant that the refusal promised.
func TestRememberedRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := func() time.Time { return time.Now().Add(-2 * time.Minute) } // of Redis
		records := newMemory(quota.Product, clock)
		var log trips
		l := newFake(t, Config{}, func(ctx context.Context, demands []store.Demand, results []store.Result) error {
			log.add(demands)
			return records.Decide(ctx, demands, results)
		})
		a := asking(1, 60)
		must.Equal(t, takeAll(t, l, a, 60), 60, "admitted")
		log = nil
		began := time.Now()
		for range 10_000 { // 10 s of 1,000 a second
			if v := mustTake(t, l, a); v.Granted != 0 || v.Violated() != quota.Minute || v.At != instant.Of(clock()) {
				t.Fatalf("after %v: %+v", time.Since(began), v)
			}
			time.Sleep(time.Millisecond)
		}
		must.Equal(t, len(log), 10, "calls in 10 s")

		// The month starts on another day. Then a new version with the same limits: they were
		// changed and changed back. Then other limits with the same version: the new version is
		// late.
		moved, again, upgraded := a, a, a
		moved.MonthStarts, again.MonthStarts, again.Version = 15, 15, 2
		upgraded.MonthStarts, upgraded.Version, upgraded.Limits.Minute = 15, 2, 300
		for i, changed := range []Request{moved, again, upgraded} {
			if v := mustTake(t, l, changed); len(log) != 11+i || (v.Granted == 1) != (changed == upgraded) {
				t.Errorf("asked as %+v, in all %d times: %+v", changed, len(log), v)
			}
		}
		v := mustTake(t, l, a)
		for v.RetryAt()-instant.Of(clock()) > 300 {
			time.Sleep(100 * time.Millisecond)
			v = mustTake(t, l, a)
		}
		time.Sleep(v.RetryAt().Time().Sub(clock()))
		if v := mustTake(t, l, a); v.Granted != 1 {
			t.Errorf("at the promised instant: %+v", v)
		}
	})
}

// After a slow trip, the instant of a remembered refusal is not ahead of the clock that decides.
// Otherwise a client would be told to wait for too short a time.
func TestRememberedRefusalAfterSlowTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := newMemory(quota.Product, time.Now)
		l := newFake(t, Config{}, func(ctx context.Context, demands []store.Demand, results []store.Result) error {
			time.Sleep(40 * time.Millisecond)
			return records.Decide(ctx, demands, results)
		})
		a := asking(1, 1)
		for range 3 {
			if v := mustTake(t, l, a); v.At > instant.Of(time.Now()) {
				t.Errorf("%+v at %d", v, instant.Of(time.Now()))
			}
		}
		if v := l.Known(a); v.At > instant.Of(time.Now()) {
			t.Errorf("known: %+v at %d", v, instant.Of(time.Now()))
		}
	})
}

// Requests that gather while a refusal is fetched are refused by the same answer. Redis is not
// asked again.
func TestRefusalAnswersTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newGated(t)
		a := asking(1, 1)
		l.records.Take(instant.Of(time.Now()), &store.Demand{Request: a.Request, Want: 1})
		var all sync.WaitGroup
		for range 500 {
			all.Go(func() {
				if v, err := l.Take(a); err != nil || v.Violated() != quota.Minute {
					t.Errorf("%+v does not say why: %v", v, err)
				}
			})
		}
		synctest.Wait()
		close(l.open)
		all.Wait()
		mustTake(t, l, a)
		asked, remembered := testutil.ToFloat64(l.metrics.refused), testutil.ToFloat64(l.metrics.remembered)
		if len(l.log) != 1 || asked < 1 || remembered < 1 ||
			asked+remembered != 501 { // requests that came in time for the call are in it
			t.Errorf("%d calls for one refusal, %v refused by it, and %v remembered", len(l.log), asked, remembered)
		}
	})
}

// If Redis falls silent, the batch under way waits for the budget. The requests in the queue are
// then decided together with it, and later requests do not wait. Probes find out when Redis is
// back.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := newMemory(quota.Product, time.Now)
		var hole atomic.Bool
		var calls atomic.Int64
		hole.Store(true)
		l := newFake(t, Config{}, func(ctx context.Context, demands []store.Demand, results []store.Result) error {
			calls.Add(1)
			if hole.Load() {
				time.Sleep(50 * time.Millisecond)
				return errTimeout
			}
			_ = records.Decide(ctx, demands, results)
			if demands[0].Tenant == (id.Tenant{}) { // a probe whose record is unusable is an answer
				results[0].Err = store.ErrRecord
			}
			return nil
		})
		a := asking(1, 60)
		began := time.Now()
		var all sync.WaitGroup
		all.Go(func() { mustTake(t, l, a) })
		time.Sleep(30 * time.Millisecond)
		for range 10 {
			all.Go(func() { mustTake(t, l, a) })
		}
		all.Wait()
		must.Equal(t, time.Since(began), 50*time.Millisecond, "wait of all who were let go")
		must.Equal(t, l.Mode(), modeOutage, "mode")
		began = time.Now()
		for range 100 {
			mustTake(t, l, a)
		}
		must.Equal(t, time.Since(began), 0, "wait for Redis during an outage")
		time.Sleep(time.Minute)
		if n := calls.Load(); n < 600 || n > 1250 {
			t.Errorf("%d probes in a minute", n)
		}
		hole.Store(false)
		time.Sleep(
			260 * time.Millisecond,
		) // 100 ms until the next probe is answered, and 150 ms in which the other gateways notice too
		if l.Mode() != modeShared {
			t.Error("an outage goes on after Redis is back")
		}
	})
}

// Each tenant's requests are decided in the order of their arrival, and under their own limits if
// these change while requests wait.
func TestBatchesKeepTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 1))
		records := newMemory(quota.Product, time.Now)
		var batches atomic.Int64
		l := newFake(t, Config{}, func(ctx context.Context, demands []store.Demand, results []store.Result) error {
			batches.Add(1)
			time.Sleep(5 * time.Millisecond)
			return records.Decide(ctx, demands, results)
		})
		const requests = 1000
		var all sync.WaitGroup
		arrived := map[int]int64{}
		for i := range requests {
			n := random.IntN(20)
			arrived[n]++
			want := arrived[n]
			all.Go(func() {
				limit := int64(1000 + i/300)
				if v := mustTake(t, l, asking(n, limit)); v.Granted != 1 || v.Usages[quota.Minute].Used != want ||
					v.Usages[quota.Minute].Limit != limit {
					t.Errorf("request %d of tenant %d: %+v", want, n, v)
				}
			})
			synctest.Wait() // it is in the queue
			time.Sleep(time.Duration(random.IntN(400)) * time.Microsecond)
		}
		all.Wait()
		if n := batches.Load(); n > requests/2 {
			t.Errorf("%d batches of %d requests", n, requests)
		}
	})
}

// Closing ends the batch under way and all requests that wait.
func TestCloseWithABatchUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFake(t, Config{}, func(ctx context.Context, _ []store.Demand, _ []store.Result) error {
			<-ctx.Done()
			return ctx.Err()
		})
		var all sync.WaitGroup
		for _, n := range []int{1, 2, 3, 1} {
			all.Go(func() { _, _ = l.Take(asking(n, 60)) })
			synctest.Wait()
		}
		must.Do(t, l.Close(always))
		all.Wait()
	})
}

// A batch has at most 256 tenants. Redis gets the whole budget for each batch, however long the
// queue is. Requests that waited for longer than the budget are still decided by Redis.
func TestALongQueueIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := newMemory(quota.Product, time.Now)
		l := newFake(t, Config{}, func(ctx context.Context, demands []store.Demand, results []store.Result) error {
			time.Sleep(40 * time.Millisecond)
			return records.Decide(ctx, demands, results)
		})
		const tenants = 8192
		began := time.Now()
		var all sync.WaitGroup
		for i := range tenants {
			all.Go(func() {
				if v := mustTake(t, l, asking(i, 60)); v.Usages[quota.Minute].Used != 1 {
					t.Errorf("tenant %d: %+v", i, v)
				}
			})
		}
		all.Wait()
		if l.Mode() != modeShared || len(l.standIn.unreported) != 0 {
			t.Errorf("mode %s, %d tenants decided without Redis", l.Mode(), len(l.standIn.unreported))
		}
		if took := time.Since(began); took < 32*40*time.Millisecond {
			t.Errorf("%d tenants were decided in %v: batches are larger than 256 tenants", tenants, took)
		}
	})
}

// A record that Redis cannot use affects only its tenant. It is not an outage.
func TestBadRecord(t *testing.T) {
	records := newMemory(quota.Product, time.Now)
	l := newFake(t, Config{}, func(ctx context.Context, demands []store.Demand, results []store.Result) error {
		_ = records.Decide(ctx, demands, results)
		for i := range demands {
			if demands[i].Tenant == tenant(1) {
				results[i] = store.Result{Err: store.ErrRecord}
			}
		}
		return nil
	})
	must.Equal(t, takeAll(t, l, asking(1, 60), 100), 60, "admitted of the tenant with the bad record")
	if v := mustTake(t, l, asking(2, 60)); v.Usages[quota.Minute].Used != 1 || l.Mode() != modeShared {
		t.Errorf("another tenant: %+v in mode %s", v, l.Mode())
	}
}

// If an operator cancels a call, this does not mean that Redis is down.
func TestAskerGone(t *testing.T) {
	l := openShared(t, Config{})
	gone, cancel := context.WithCancel(always)
	cancel()
	if _, err := l.Peek(gone, asking(1, 60)); err != nil {
		t.Errorf("Peek: %v", err)
	}
	must.Equal(t, l.Mode(), modeShared, "mode")
}

// A refusal is remembered for what was asked: the key with its own limits, and the cost. Other
// requests of the tenant are still decided. Test keys have counts of their own.
func TestRefusalsAreOfACall(t *testing.T) {
	local := openQuotas(t, Config{})
	shared := newFake(t, Config{}, newMemory(quota.Product, time.Now).Decide)
	for name, l := range map[string]Quotas{"local": local, "shared": shared} {
		t.Run(name, func(t *testing.T) {
			own, whole := asking(1, 10), asking(1, 10)
			own.Key, own.Cap = id.Key{1}, plan.Limits{Minute: 4, Day: 50}
			other := own
			other.Key, other.Cost = id.Key{2}, 1
			f := func(a Request, cost, granted, used, usedOwn int64, binds quota.Policy) {
				t.Helper()
				a.Cost = cost
				v := mustTake(t, l, a)
				if v.Granted != granted || v.Usages[quota.Minute].Used != used ||
					v.Usages[quota.KeyMinute].Used != usedOwn ||
					v.Violated() != binds {
					t.Errorf("%+v, it binds %v; want %d granted, %d used, %d by the key, %v", v, v.Violated(), granted,
						used, usedOwn, binds)
				}
				v.Granted = 0
				if known := l.Known(a); known.Violated() != binds ||
					known.Usages[quota.KeyMinute].Limit != a.Cap.Minute {
					t.Errorf("then %+v is known", known)
				}
				if now, err := l.Current(a); err != nil || now.Usages[quota.Minute].Used != used ||
					now.Usages[quota.KeyMinute].Used != usedOwn {
					t.Errorf("then %+v is current: %v", now, err)
				}
			}
			f(own, 3, 1, 3, 3, quota.KeyMinute) // another one of this cost does not fit
			f(own, 3, 0, 3, 3, quota.KeyMinute)
			f(own, 1, 1, 4, 4, quota.KeyMinute)
			f(own, 1, 0, 4, 4, quota.KeyMinute)
			f(other, 1, 1, 5, 1, quota.None)
			f(whole, 6, 0, 5, 0, quota.Minute)
			f(whole, 5, 1, 10, 0, quota.Minute)
			f(other, 1, 0, 10, 1, quota.Minute)
			if _, ok := shared.Refusal(&other, shared.now()); l == Quotas(shared) && !ok {
				t.Error("the refusal by the limits of the tenant is not remembered for another key")
			}
			test := whole
			test.Test = true
			f(test, 1, 1, 1, 0, quota.None)
		})
	}
}

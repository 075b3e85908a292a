package quotas

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/quota"
)

// The answer to a batch is lost, and the request is decided here much later. The recovery waits for that: it charges the request. It
// also waits for a decision that panics.
func TestRecoveryWaitsForLateRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, far := newFar(t, 2)
		isLate, panics := false, false
		l.config.LiveGateways = func() int {
			if panics {
				panic("planted")
			}
			if isLate {
				time.Sleep(5 * time.Second)
			}
			return 1
		}
		var warm, first, second asked
		warm.ask(l, 9)
		far.answer(0, nil)
		warm.used() // so Redis has answered this gateway
		first.ask(l, 1)
		second.ask(l, 2)
		far.answer(0, func() error { return errRefused })
		first.used()
		far.near()
		time.Sleep(149 * time.Millisecond) // the first probe comes 150 ms after the failure
		isLate = true
		far.answer(0, func() error { return errTimeout })
		second.used()
		time.Sleep(time.Second)
		if v := mustTake(t, l, asking(2, 60)); v.Degraded || v.Minute.Used != 2 {
			t.Errorf("after a request that was admitted late: %+v, want 2 used", v)
		}

		far.far()
		panics = true
		var third sync.WaitGroup
		third.Go(func() {
			defer func() { _ = recover() }()
			_, _ = l.Take(asking(3, 60))
		})
		far.answer(0, func() error { return errTimeout })
		third.Wait()
		far.near()
		time.Sleep(time.Second)
		if v := mustTake(t, l, asking(3, 60)); v.Degraded || v.Minute.Used != 1 {
			t.Errorf("after a decision that panicked: %+v, want 1 used", v)
		}
		if len(l.share.debt) != 0 {
			t.Errorf("debts: %+v", l.share.debt)
		}
	})
}

// answering is quotas on a store with two lanes whose trips take some time. It notes which tenants the store is told about.
type answering struct {
	*Shared
	store fakeStore
	mu    sync.Mutex
	fails error
	told  []byte // of each tenant, the last byte of its ID
}

func newAnswering(t *testing.T) *answering {
	a := &answering{}
	records := store.NewMemory(quota.Product, time.Now)
	a.Shared = newFakeOver(t, &a.store, Config{lanes: 2}, func(ctx context.Context, demands []store.Demand, results []store.Result) error {
		if demands[0].Tenant == tenant(1) {
			time.Sleep(time.Millisecond) // the batch that is sent first is answered last
		}
		time.Sleep(time.Millisecond)
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.fails != nil {
			return a.fails
		}
		for _, d := range demands {
			if d.Want == 0 {
				a.told = append(a.told, d.Tenant[9])
			}
		}
		return records.Decide(ctx, demands, results)
	})
	return a
}

// take sends a request of each tenant, all at the same time.
func (a *answering) take(t *testing.T, tenants ...int) {
	var all sync.WaitGroup
	for _, n := range tenants {
		all.Go(func() { mustTake(t, a, asking(n, 60)) })
		synctest.Wait()
	}
	all.Wait()
}

// outage is an outage that a request of this tenant notices. It returns the tenants that the store is told about in the recovery.
func (a *answering) outage(t *testing.T, n int) []byte {
	fail := func(err error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.fails = err
	}
	fail(errRefused)
	a.take(t, n)
	fail(nil)
	time.Sleep(time.Second)
	if a.Mode() != modeShared {
		t.Error("the outage goes on")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	slices.Sort(a.told)
	return a.told
}

// After an outage, Redis is told all use of the last minute: it may have lost its counts.
func TestKnownUseIsToldAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAnswering(t)
		a.take(t, 3)
		time.Sleep(time.Minute + time.Second)
		a.take(t, 1, 2)
		if told := a.outage(t, 4); !slices.Equal(told, []byte{1, 2, 4}) {
			t.Errorf("Redis was told about the tenants %v, want 1, 2 and 4", told)
		}
	})
}

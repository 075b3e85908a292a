package quotas

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
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

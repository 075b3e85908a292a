package quotas

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/quota"
)

// A Redis that comes back empty after an outage is charged with what this gateway saw before: for the day, and for the minute
// while that use is in the window.
func TestRedisComesBackEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &flaky{records: newMemory(quota.Product, time.Now)}
		l := newFake(t, Config{}, server.Decide)
		a := asking(1, 60)
		for range 40 {
			mustTake(t, l, a)
		}
		server.fail(errRefused)
		mustTake(t, l, a)
		server.lose()
		server.fail(nil)
		time.Sleep(time.Second)
		if v := mustTake(t, l, a); v.Usages[quota.Minute].Used != 42 || v.Usages[quota.Day].Used != 42 {
			t.Errorf("after the outage: %+v, want 40 + 1 + 1 used", v)
		}

		time.Sleep(61 * time.Second)
		server.lose()
		if v := mustTake(t, l, a); v.Usages[quota.Minute].Used != 1 || v.Usages[quota.Day].Used != 43 {
			t.Errorf("a minute later: %+v, want 1 used in the minute and 43 in the day", v)
		}
	})
}

// The gateways have used up their shares. From the moment when Redis answers until it decides again, no share grows: each
// gateway knows only which of its own requests are charged.
func TestSharesDoNotGrowDuringARecovery(t *testing.T) {
	f := func(name string, loseReply bool, twice int64) {
		synctest.Test(t, func(t *testing.T) {
			s, r := newSite(t, 6), asking(1, 60)
			s.server.fail(errRefused)
			if loseReply { // each gateway's first batch is executed
				s.server.fail(nil)
				s.decide = func(ctx context.Context, demands []store.Demand, results []store.Result) error {
					if err := s.server.Decide(ctx, demands, results); err != nil {
						return err
					}
					return errTimeout
				}
			}
			admitted := int64(0)
			for _, g := range s.gateways {
				admitted += mustTake(t, g, r).Granted
			}
			s.server.fail(errRefused)
			s.decide = s.server.Decide
			admitted += s.use(r, s.gateways...)
			s.server.fail(nil)
			time.Sleep(5 * time.Millisecond) // then no request below is under way at the instant when Redis decides again
			for range 100 {
				admitted += s.use(r, s.gateways...)
				time.Sleep(10 * time.Millisecond)
			}
			if v := mustTake(t, s.gateways[0], r); v.Degraded || admitted != r.Limits.Minute || v.Usages[quota.Minute].Used != admitted+twice {
				t.Errorf("%s: %d admitted of %d until Redis decided again; then %+v", name, admitted, r.Limits.Minute, v)
			}
		})
	}
	f("no batch is executed", false, 0)
	f("the first batch is executed, and not answered", true, 6)
}

// Redis loses its counts in an outage. A gateway tells Redis what it knows of the window before Redis decides again, although no
// request of that tenant comes to that gateway.
func TestKnownUseIsToldBeforeRedisDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := newSite(t, 2), asking(1, 100)
		for range 60 {
			mustTake(t, s.gateways[0], r)
		}
		s.server.fail(errRefused)
		s.server.lose()
		for _, g := range s.gateways {
			mustTake(t, g, asking(2, 100)) // it has noticed
		}
		s.back()
		if v := mustTake(t, s.gateways[1], r); v.Usages[quota.Minute].Used != 61 || v.Usages[quota.Day].Used != 61 {
			t.Errorf("after the outage: %+v, want 60 + 1 used", v)
		}
	})
}

// Redis answers until it has been charged with the shares, and fails before it decides. The shares grow, but the window admits at
// most two limits, and each request is charged once.
func TestSharesAfterAFailedRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := newSite(t, 6), asking(1, 600)
		s.server.fail(errRefused)
		first := s.use(r, s.gateways...)
		admitted := first
		for range 3 {
			s.recoverInVain()
			admitted += s.use(r, s.gateways...)
		}
		t.Logf("figure: 3 recoveries fail: %d admitted in a window of %d, %d of them before", admitted, r.Limits.Minute, first)
		if first != r.Limits.Minute || admitted == first || admitted > 2*r.Limits.Minute {
			t.Errorf("%d admitted, %d of them before the first recovery; the limit is %d", admitted, first, r.Limits.Minute)
		}
		s.back()
		if v := mustTake(t, s.gateways[0], r); v.Degraded || v.Granted != 0 || v.Usages[quota.Day].Used != admitted {
			t.Errorf("after %d admitted: %+v", admitted, v)
		}
	})
}

package quotas

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/quota"
)

// Gateways leave one after the other while Redis is down, as when a fleet scales in, and each gets requests until it leaves. All their
// shares together are at most one limit.
func TestGatewaysLeaveInAnOutage(t *testing.T) {
	f := func(name string, gateways int, used int64, ask func(s *site, r Request, leaving int) int64) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			s, r := newSite(t, gateways), asking(1, 120)
			time.Sleep(2 * fleetEvery)
			for range used {
				mustTake(t, s.gateways[0], r)
			}
			s.server.fail(errRefused)
			shares := int64(0)
			for i := range s.gateways {
				shares += ask(s, r, i)
				if i == gateways-1 {
					break
				}
				if err := s.gateways[i].Close(background); err != nil {
					t.Error(err)
				}
				s.registered.Add(-1)
				time.Sleep(2 * fleetEvery)
			}
			t.Logf("figure: %d gateways leave one after the other in an outage, %s: their shares admitted %d in a window of %d",
				gateways, name, shares, r.Limits.Minute)
			if most := r.Limits.Minute; shares > most || shares < most/int64(gateways) {
				t.Errorf("%s: %d admitted by shares, the limit is %d", name, shares, most)
			}
			time.Sleep(2 * time.Minute)
			if n := s.use(r, s.gateways[gateways-1]); n != r.Limits.Minute {
				t.Errorf("%s: the last gateway admits %d in a later window", name, n)
			}
		})
	}
	one := func(s *site, r Request, leaving int) int64 { return s.use(r, s.gateways[leaving]) }
	all := func(s *site, r Request, leaving int) int64 { return s.use(r, s.gateways[leaving:]...) }
	for _, gateways := range []int{6, 10} {
		f("the limit was used before, asked by who leaves", gateways, 120, one)
		f("nothing was used before, asked by who leaves", gateways, 0, one)
		f("nothing was used before, asked by all", gateways, 0, all)
	}
}

// The clocks of the gateways' hosts step while Redis is down. Their shares last as long as without the steps.
func TestClocksOfGatewaysStepInAnOutage(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, 61 * time.Second, 25 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s, r := newSite(t, 3), asking(1, 60)
			s.use(r, s.gateways[0])
			s.server.fail(errRefused)
			admitted := s.use(r, s.gateways...)
			for range 3 {
				s.clockStep.Add(int64(step))
				admitted += s.use(r, s.gateways...)
			}
			if admitted != 40 { // the shares of those that do not know the use
				t.Errorf("three steps of %v: %d admitted in the outage", step, admitted)
			}
			for _, g := range s.gateways {
				if skew := g.clock.skew(); skew != -3*step {
					t.Errorf("three steps of %v: a skew of %v", step, skew)
				}
			}
			s.back()
			if v := mustTake(t, s.gateways[1], r); v.Degraded || v.Minute.Used != 100 || v.Day.Used != 100 {
				t.Errorf("three steps of %v: afterwards %+v", step, v)
			}
			time.Sleep(time.Minute)
			if n := s.use(r, s.gateways...); n != 60 {
				t.Errorf("three steps of %v: %d admitted in a later window", step, n)
			}
		})
	}
}

// The minutes and days of shares are those of Redis, however wrong the host's clock is.
func TestSharesFollowTheClockOfRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ahead = 7*time.Hour + 300*time.Millisecond
		s, r := newSite(t, 1), asking(1, 60)
		s.server.records = store.NewMemory(quota.Product, func() time.Time { return time.Now().Add(ahead) })
		at := mustTake(t, s.gateways[0], r).At
		if skew := s.gateways[0].clock.skew(); (skew - ahead).Abs() > 2*time.Millisecond {
			t.Errorf("a skew of %v, want %v", skew, ahead)
		}
		problems := strings.Join(s.gateways[0].Health(background), "\n")
		if !strings.Contains(problems, "7h0m0.3s") {
			t.Errorf("the skew is not reported: %s", problems)
		}
		s.server.fail(errRefused)
		time.Sleep(time.Minute)
		if v := mustTake(t, s.gateways[0], r); !v.Degraded || (v.At.Sub(at)-time.Minute).Abs() > 2*time.Millisecond {
			t.Errorf("decided at %v, a minute after %v", v.At, at)
		}
	})
}

func TestLargestNumberOfGateways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, registered := newFleet(quota.Product.Window()), atomic.Int64{}
		var w worker
		registered.Store(5)
		w.run(func(closing context.Context) { f.watch(closing, registered.Load) })
		time.Sleep(10*fleetEvery + 1)
		registered.Store(2)
		time.Sleep(61 * time.Second)
		if n := f.largest.Load(); n != 5 {
			t.Errorf("61 s after three of five have left: %d", n)
		}
		time.Sleep(2 * time.Second)
		if n := f.largest.Load(); n != 2 {
			t.Errorf("63 s after three of five have left: %d", n)
		}
		w.stop()
	})
}

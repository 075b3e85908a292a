package quotas

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/quota"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// site is gateways that share a Redis which can lose its counts, and a database.
type site struct {
	leavers
	t          *testing.T
	server     *flaky
	gateways   []*Shared
	stores     []*fakeStore // each gateway's way to the server
	logs       testkit.Output
	files      string       // the directory of the outage files; empty: there are none
	registered atomic.Int64 // gateways
	clockStep  atomic.Int64 // how much later than the time the gateways' clocks are, in ns
	decide     func(context.Context, []store.Demand, []store.Result) error
}

func newSite(t *testing.T, gateways int) *site { return newSiteWithFiles(t, gateways, "") }

// newSiteWithFiles is newSite with outage files in this directory, which the gateways keep over a
// restart.
func newSiteWithFiles(t *testing.T, gateways int, files string) *site {
	s := &site{
		t: t, server: &flaky{records: newMemory(quota.Product, time.Now)},
		gateways: make([]*Shared, gateways), stores: make([]*fakeStore, gateways), files: files,
	}
	s.registered.Store(int64(gateways))
	s.decide = s.server.Decide
	for i := range s.gateways {
		s.start(i)
		mustTake(t, s.gateways[i], asking(1000+i, 60)) // so Redis has answered this gateway
	}
	return s
}

func (s *site) file(i int) string {
	if s.files == "" {
		return ""
	}
	return filepath.Join(s.files, fmt.Sprint(i))
}

// restart ends a gateway cleanly and starts it again.
func (s *site) restart(i int) {
	s.end(i)
	s.start(i)
}

// end ends a gateway that does not sign off.
func (s *site) end(i int) {
	must.Do(s.t, s.gateways[i].Close(always))
}

// kill ends a gateway without a last save.
func (s *site) kill(i int) {
	s.gateways[i].tasks.Stop()
	_ = s.gateways[i].redis.Close()
}

// leave ends a gateway that signs off.
func (s *site) leave(i int) {
	s.end(i)
	s.gateways[i].Leave(s.leavers.signOff)
}

// leavers is the database with what gateways have left. The test says which of its calls fail.
type leavers struct {
	mu                                   sync.Mutex
	texts                                []string
	signOffFails, takeFails, commitFails bool
}

func (l *leavers) signOff(unreported string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if unreported != "" && !l.signOffFails {
		l.texts = append(l.texts, unreported)
	}
	return !l.signOffFails
}

func (l *leavers) Unreported() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.texts)
}

func (l *leavers) TakeUnreported(_ context.Context, keep func([]string) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.takeFails {
		return errTest
	}
	if len(l.texts) == 0 {
		return nil
	}
	if err := keep(slices.Clone(l.texts)); err != nil {
		return err
	}
	if l.commitFails {
		return errTest
	}
	l.texts = nil
	return nil
}

func (l *leavers) fail(signOff, take, commit bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.signOffFails, l.takeFails, l.commitFails = signOff, take, commit
}

// start starts a gateway, or starts it again. The gateway then knows only what is in its file.
func (s *site) start(i int) {
	fake := &fakeStore{losses: func() int {
		s.server.mu.Lock()
		defer s.server.mu.Unlock()
		return s.server.losses
	}}
	s.stores[i] = fake
	s.gateways[i] = newFakeOver(s.t, fake, Config{
		LiveGateways: func() int { return int(s.registered.Load()) }, OutageFile: s.file(i),
		GatewayID: fmt.Sprint("gw-", i),
		Log:       slog.New(slog.NewTextHandler(&s.logs, nil)),
		Clock:     func() time.Time { return time.Now().Add(time.Duration(s.clockStep.Load())) }, Leavers: &s.leavers,
	},
		func(ctx context.Context, demands []store.Demand, results []store.Result) error {
			return s.decide(ctx, demands, results)
		})
}

// use sends each gateway requests until it refuses three in a row.
func (s *site) use(r Request, gateways ...*Shared) (admitted int64) {
	for _, g := range gateways {
		for refused := 0; refused < 3; refused++ {
			if mustTake(s.t, g, r).Granted > 0 {
				admitted++
				refused = -1
			}
		}
	}
	return admitted
}

func (s *site) back() {
	s.server.fail(nil)
	time.Sleep(2 * time.Second)
}

// recoverInVain lets Redis answer until each gateway has reported, and fail before it decides.
func (s *site) recoverInVain() {
	s.server.fail(nil)
	time.Sleep(100 * time.Millisecond) // more than the interval of probes, and less than a recovery takes
	s.server.fail(errRefused)
	time.Sleep(300 * time.Millisecond) // until all recoveries have ended
}

// Redis admits a whole limit through one gateway, goes down, loses its counts, and comes back.
// Before it grants anything, it is charged with what all gateways admitted during the outage and
// with the use that the first gateway knows.
func TestLossDuringAnOutage(t *testing.T) {
	for _, gateways := range []int{3, 10} {
		t.Run(fmt.Sprint(gateways), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, r := newSite(t, gateways), asking(1, 100)
				began := time.Now()
				admitted := s.use(r, s.gateways[0])
				s.server.fail(errRefused)
				s.server.lose()
				admitted += s.use(r, s.gateways...)
				s.back()
				admitted += s.use(r, s.gateways...)
				t.Logf("figure: %d gateways, counts lost in an outage: %d admitted in a window of %d", gateways,
					admitted, r.Limits.Minute)
				if time.Since(began) > time.Minute || admitted > 2*r.Limits.Minute {
					t.Errorf("%d admitted in %v, the limit is %d", admitted, time.Since(began), r.Limits.Minute)
				}
				if v := mustTake(t, s.gateways[0], r); v.Degraded {
					t.Error("an outage goes on after Redis is back")
				}
			})
		})
	}
}

// Gateways that are restarted several times during an outage use their shares only once: their
// files say what they admitted.
func TestRestartsDuringAnOutage(t *testing.T) {
	f := func(name, files string, most int64) {
		synctest.Test(t, func(t *testing.T) {
			s, r := newSiteWithFiles(t, 3, files), asking(1, 100)
			admitted := s.use(r, s.gateways[0])
			s.server.fail(errRefused)
			restarts := 0
			for range 10 {
				for i := range s.gateways {
					admitted += s.use(r, s.gateways[i])
					s.restart(i)
					restarts++
				}
			}
			s.back()
			admitted += s.use(r, s.gateways...)
			t.Logf("figure: %d restarts in an outage, %s: %d admitted in a window of %d", restarts, name, admitted,
				r.Limits.Minute)
			if admitted > most {
				t.Errorf("%s: %d admitted, at most %d wanted", name, admitted, most)
			}
		})
	}
	const used, others, last = 100, 2 * 33, 1 // gateway 0 has used up the limit, and admits the least share
	f("with files", t.TempDir(), used+others+last)
	f("without files", "", used+others+last+30)
}

// The clock of Redis is set while Redis is down. A step forward releases what Redis has counted, so
// the window admits the limit again. After a step back, the use counts from the new time on. Then
// every window admits the limit as before.
func TestClockOfRedisStepsInAnOutage(t *testing.T) {
	for _, step := range []time.Duration{
		-25 * time.Hour, -time.Hour, -3 * time.Second, 3 * time.Second, 2 * time.Minute, 25 * time.Hour,
	} {
		synctest.Test(t, func(t *testing.T) {
			s, r := newSite(t, 3), asking(1, 100)
			var stepped atomic.Int64
			s.server.use(func() time.Time { return time.Now().Add(time.Duration(stepped.Load())) })
			before := s.use(r, s.gateways[0])
			s.server.fail(errRefused)
			during := s.use(r, s.gateways...)
			stepped.Store(int64(step))
			s.back()
			after := s.use(r, s.gateways...)
			t.Logf(
				"figure: the clock of Redis steps by %v in an outage: %d admitted in a window of %d, %d of them afterwards",
				step, before+during+after, r.Limits.Minute, after,
			)
			if before+during+after > 2*r.Limits.Minute {
				t.Errorf("a step of %v: %d admitted before it, %d in the outage, %d after it", step, before, during,
					after)
			}
			time.Sleep(2 * time.Minute)
			must.Equal(t, s.use(r, s.gateways...), r.Limits.Minute, "a step of %v: admitted in a later window", step)
		})
	}
}

// The gateways have used up their shares. From the moment when Redis answers until it decides
// again, no share grows: each gateway knows only which of its own requests are charged.
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
			// Then no request below is under way at the instant when Redis decides again.
			time.Sleep(5 * time.Millisecond)
			for range 100 {
				admitted += s.use(r, s.gateways...)
				time.Sleep(10 * time.Millisecond)
			}
			if v := mustTake(t, s.gateways[0], r); v.Degraded || admitted != r.Limits.Minute ||
				v.Usages[quota.Minute].Used != admitted+twice {
				t.Errorf("%s: %d admitted of %d until Redis decided again; then %+v", name, admitted, r.Limits.Minute,
					v)
			}
		})
	}
	f("no batch is executed", false, 0)
	f("the first batch is executed, and not answered", true, 6)
}

// Redis loses its counts in an outage. A gateway tells Redis what it knows of the window before
// Redis decides again, although no request of that tenant comes to that gateway. When the window is
// over, it tells the day's use alone.
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
		time.Sleep(61 * time.Second)
		s.server.lose()
		if v := mustTake(t, s.gateways[1], r); v.Usages[quota.Minute].Used != 1 || v.Usages[quota.Day].Used != 62 {
			t.Errorf("a minute later: %+v, want 1 used in the minute and 62 in the day", v)
		}
	})
}

// Redis answers until it has been charged with the shares, and fails before it decides. The shares
// grow, but the window admits at most two limits, and each request is charged once.
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
		t.Logf("figure: 3 recoveries fail: %d admitted in a window of %d, %d of them before", admitted, r.Limits.Minute,
			first)
		if first != r.Limits.Minute || admitted == first || admitted > 2*r.Limits.Minute {
			t.Errorf("%d admitted, %d of them before the first recovery; the limit is %d", admitted, first,
				r.Limits.Minute)
		}
		s.back()
		if v := mustTake(t, s.gateways[0], r); v.Degraded || v.Granted != 0 || v.Usages[quota.Day].Used != admitted {
			t.Errorf("after %d admitted: %+v", admitted, v)
		}
	})
}

package quotas

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/testkit/must"
)

// Gateways leave one after the other while Redis is down, as when a fleet scales in, and get
// requests until they leave. All their shares together are at most one limit, of the minute, of the
// day and of the month. When Redis is back, it is charged with all of them.
func TestGatewaysLeaveInAnOutage(t *testing.T) {
	f := func(policy string, pause time.Duration, gateways int, used int64, all bool) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			const limit = 120
			time.Sleep(23 * time.Hour) // before there are gateways, an hour costs no work
			s, r := newSiteWithFiles(t, gateways, t.TempDir()), asking(1, limit)
			switch policy {
			case "day":
				r.Limits.Minute, r.Limits.Day = 2*limit, limit
			case "month":
				r.Limits.Minute, r.Limits.Month = 2*limit, limit
			}
			time.Sleep(2 * fleetEvery)
			for range used {
				mustTake(t, s.gateways[0], r)
			}
			s.server.fail(errRefused)
			shares := int64(0)
			for i := range s.gateways {
				asked := s.gateways[i:]
				if !all {
					asked = asked[:1]
				}
				shares += s.use(r, asked...)
				if i < gateways-1 {
					s.leave(i)
					s.registered.Add(-1)
					time.Sleep(pause)
				}
			}
			t.Logf(
				"figure: %d gateways leave one after the other in an outage, %d used before, asked until they leave or all: %t: "+
					"their shares admitted %d of the %s's limit of %d",
				gateways,
				used,
				all,
				shares,
				policy,
				limit,
			)
			most := int64(limit)
			if used == limit {
				most += int64(gateways) // the smallest share of each that knows the use
			}
			if shares > most || shares < limit/int64(gateways) {
				t.Errorf("%d gateways, %s: %d admitted by shares, the limit is %d", gateways, policy, shares, limit)
			}
			s.back()
			last := s.gateways[gateways-1]
			if v := mustTake(t, last, r); v.Degraded || v.Usages[quota.Day].Used != used+shares+v.Granted {
				t.Errorf("%d gateways, %s: after %d and %d admitted: %+v", gateways, policy, used, shares, v)
			}
			if got := strings.Count(s.logs.String(), "what another one has left"); got != gateways-1 {
				t.Errorf("taken over %d times, want once for each of %d", got, gateways-1)
			}
			if policy == "month" {
				return
			}
			time.Sleep(2 * time.Hour)
			must.Equal(t, s.use(r, last), limit, "%d gateways, %s: the last one admits a day later", gateways, policy)
		})
	}
	for _, gateways := range []int{6, 10} {
		for _, used := range []int64{0, 120} {
			for _, all := range []bool{false, true} {
				f("minute", 2*fleetEvery, gateways, used, all)
				f("day", 2*time.Minute, gateways, used, all)
			}
		}
	}
	f("month", 2*time.Minute, 6, 0, false)
}

// What a gateway left is reported once, whatever fails or is killed on the way; or twice if the
// database has it and a file too.
func TestWhatAGatewayLeftIsReported(t *testing.T) {
	const share = 40 // of each of three gateways
	f := func(name string, want int64, do func(s *site)) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			s, r := newSiteWithFiles(t, 3, t.TempDir()), asking(1, 3*share)
			s.server.fail(errRefused)
			must.Equal(t, s.use(r, s.gateways[0]), share, "%s: admitted", name)
			do(s)
			time.Sleep(10 * time.Second)
			if v := mustTake(t, s.gateways[2], r); v.Degraded || v.Usages[quota.Day].Used != want+1 {
				t.Errorf("%s: %+v, want %d used before", name, v, want)
			}
			if left := s.Unreported(); len(left) != 0 {
				t.Errorf("%s: still there: %q", name, left)
			}
		})
	}
	f("all is well", share, func(s *site) { s.leave(0); s.back() })
	f("Redis is back first", share, func(s *site) { s.end(0); s.back(); s.gateways[0].Leave(s.signOff) })
	f("the sign-off fails", share, func(s *site) {
		s.fail(true, false, false)
		s.leave(0)
		s.start(0)
		s.back()
	})
	f("killed after the sign-off, before the file is replaced", 2*share, func(s *site) {
		s.end(0)
		file := must.Get[[]byte](s.t)(os.ReadFile(s.file(0)))
		s.gateways[0].Leave(s.signOff)
		must.Do(s.t, os.WriteFile(s.file(0), file, 0o600))
		s.start(0)
		s.back()
	})
	f("it starts again, and its share is used up", share, func(s *site) {
		for i := range 3 {
			s.leave(0)
			s.start(0)
			if n := s.use(asking(1, 3*share), s.gateways[0]); n != 0 {
				s.t.Errorf("%d admitted after it started again", n)
			}
			mustTake(s.t, s.gateways[0], asking(2+i, 60)) // it leaves more than before
		}
		s.back()
	})
	f("the database cannot be asked for a while", share, func(s *site) {
		s.fail(false, true, false)
		s.leave(0)
		s.back()
		time.Sleep(5 * time.Second)
		s.fail(false, false, false)
	})
	f("the commit of who takes it fails for a while", share, func(s *site) {
		s.end(1) // one gateway tries
		s.fail(false, false, true)
		s.leave(0)
		s.back()
		time.Sleep(5 * time.Second)
		s.fail(false, false, false)
	})
	f("the file of who takes it cannot be written for a while", share, func(s *site) {
		s.end(1)
		s.end(2)
		full := filepath.Join(s.files, "2.new") // where the file is written first
		must.Do(s.t, os.Mkdir(full, 0o700))
		s.start(2)
		s.leave(0)
		s.back()
		time.Sleep(5 * time.Second)
		if len(s.Unreported()) == 0 {
			s.t.Error("it was taken without a file")
		}
		must.Do(s.t, os.Remove(full))
	})
	f("who takes it is killed before the commit", 2*share, func(s *site) {
		s.end(1)
		s.fail(false, false, true)
		s.leave(0)
		s.back()
		s.kill(2)
		s.fail(false, false, false)
		s.start(2)
	})
	f("it cannot be read", 0, func(s *site) {
		s.end(0)
		s.gateways[0].Leave(func(text string) bool { return s.signOff(text[1:]) })
		s.back()
		if !strings.Contains(s.logs.String(), "cannot be read") {
			s.t.Error("nothing is logged")
		}
	})
}

// What a gateway left counts until its minute, day or month ends, for the others and for its own
// next process. Then its file is gone. What is admitted after a midnight is told and charged
// without what was admitted before.
func TestWhatWasLeftEnds(t *testing.T) {
	const untilMidnight = 90 * time.Second
	f := func(limits plan.Limits, cost int64, days int, left time.Duration, other, more, later int64) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			// Before there are gateways, a day costs no work.
			time.Sleep(time.Duration(days)*24*time.Hour - untilMidnight)
			s, r := newSiteWithFiles(t, 2, t.TempDir()), asking(1, 0)
			r.Limits, r.Cost = limits, cost
			time.Sleep(untilMidnight - left)
			s.server.fail(errRefused)
			used := s.use(r, s.gateways[0])
			s.leave(0)
			time.Sleep(2 * fleetEvery)
			before := s.use(r, s.gateways[1])
			time.Sleep(left) // it is 2 s after midnight
			s.start(0)
			if n := s.use(r, s.gateways[0]); used*cost != 60 || before*cost != other || n != later {
				t.Errorf("%+v: %d left, %d admitted by the other one, %d by the next process; want 60, %d and %d",
					limits, used*cost, before*cost, n, other, later)
			}
			v := mustTake(t, s.gateways[1], r)
			if n := s.use(r, s.gateways[1]) + v.Granted; n != more || v.Usages[quota.Day].Used != v.Granted*cost ||
				limits.Month != 0 && v.Usages[quota.Month].Used != v.Granted*cost+int64(90*btoi(more == 0)) {
				t.Errorf("%+v: %d more admitted by the other one, want %d; the first after midnight: %+v", limits, n,
					more, v)
			}
			s.back()
			time.Sleep(saveEvery)
			whole := (used + before + later + more) * cost
			now := must.Get[quota.Verdict](t)(s.gateways[0].Peek(always, r))
			_, err := os.Stat(s.file(0))
			if u := now.Usages; (err == nil) != (more == 0) || u[quota.Day].Used != (later+more)*cost ||
				limits.Minute != 0 && u[quota.Minute].Used != whole ||
				limits.Month != 0 && days == 1 && u[quota.Month].Used != whole {
				t.Errorf("%+v: afterwards %+v; the file of what was left: %v", limits, now, err)
			}
		})
	}
	f(plan.Limits{Minute: 120}, 1, 1, 10*time.Second, 60, 0, 0)
	f(plan.Limits{Day: 120}, 2, 1, 80*time.Second, 30, 30, 0)
	f(plan.Limits{Month: 120}, 1, 1, 80*time.Second, 30, 0, 0)
	f(plan.Limits{Month: 120}, 2, 31, 80*time.Second, 30, 30, 0)
}

// The clocks of the gateways' hosts step while Redis is down. Their shares last as long as without
// the steps.
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
				must.Equal(t, g.skew(), -3*step, "three steps of %v: skew", step)
			}
			s.back()
			problems := fmt.Sprint(s.gateways[1].Health(always))
			if v := mustTake(t, s.gateways[1], r); v.Degraded || v.Usages[quota.Minute].Used != 100 ||
				v.Usages[quota.Day].Used != 100 ||
				!strings.Contains(problems, skewProblem(-3*step).Error()) {
				t.Errorf("three steps of %v: afterwards %+v; %s", step, v, problems)
			}
			time.Sleep(time.Minute)
			must.Equal(t, s.use(r, s.gateways...), 60, "three steps of %v: admitted in a later window", step)
		})
	}
}

// The minutes and days of shares are those of Redis, however wrong the host's clock is.
func TestSharesFollowTheClockOfRedis(t *testing.T) {
	files := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		const ahead = 7*time.Hour + 300*time.Millisecond
		s, r := newSiteWithFiles(t, 1, files), asking(1, 60)
		r.Limits.Day = 0
		s.server.use(func() time.Time { return time.Now().Add(ahead) })
		at := mustTake(t, s.gateways[0], r).At
		if skew := s.gateways[0].skew(); (skew - ahead).Abs() > 2*time.Millisecond {
			t.Errorf("a skew of %v, want %v", skew, ahead)
		}
		if problems := fmt.Sprint(s.gateways[0].Health(always)); !strings.Contains(problems, "7h0m0.3s") {
			t.Errorf("the skew is not reported: %s", problems)
		}
		if cure := skewProblem(ahead).Cure(); !strings.Contains(cure, "NTP") {
			t.Errorf("the cure of the skew is %q", cure)
		}
		s.server.fail(errRefused)
		time.Sleep(time.Minute)
		if v := mustTake(t, s.gateways[0], r); !v.Degraded || (v.At.Sub(at)-time.Minute).Abs() > 2*time.Millisecond {
			t.Errorf("decided at %v, a minute after %v", v.At, at)
		}
		s.restart(0)
		if v := mustTake(t, s.gateways[0], r); v.Granted != 0 || (v.At.Sub(at)-time.Minute).Abs() > 2*time.Millisecond {
			t.Errorf("after a restart, decided at %v, a minute after %v: %+v", v.At, at, v)
		}
	})
}

// Shares divide by the largest number of gateways for as long as a window and a slice.
func TestLargestNumberOfGateways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 1)
		s.registered.Store(5)
		time.Sleep(10*fleetEvery + 1)
		s.registered.Store(2)
		for _, c := range []struct {
			pause time.Duration
			want  int64
		}{{61 * time.Second, 5}, {2 * time.Second, 2}} {
			time.Sleep(c.pause)
			must.Equal(t, s.gateways[0].fleet.largest.Load(), c.want, "gateways")
		}
	})
}

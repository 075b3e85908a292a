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
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/keystore/usage"
	"petgate/shared/testkit/must"
)

// flaky is a Redis that can be switched off.
type flaky struct {
	records memory

	mu     sync.Mutex
	err    error
	losses int // of its counts
}

func (f *flaky) Decide(ctx context.Context, demands []store.Demand, results []store.Result) error {
	records, err := f.state()
	if err != nil {
		return err
	}
	return records.Decide(ctx, demands, results)
}

func (f *flaky) state() (memory, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.records, f.err
}

func (f *flaky) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// lose makes it forget its counts.
func (f *flaky) lose() { f.use(time.Now) }

// use makes it a server without counts that has this clock.
func (f *flaky) use(clock func() time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.records = newMemory(quota.Product, clock)
	f.losses++
}

// What was admitted without Redis is charged once: with the tenant's first decision after Redis is
// back.
func TestMergeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &flaky{records: newMemory(quota.Product, time.Now)}
		l := newFake(t, Config{LiveGateways: func() int { return 2 }}, server.Decide)
		a := asking(1, 60)
		for range 20 {
			mustTake(t, l, a)
		}
		time.Sleep(10 * time.Second)
		server.fail(errRefused)
		before := must.Get[quota.Verdict](t)(l.Peek(always, a)).Usages[quota.Minute]
		admitted := 0
		for range 100 {
			v := mustTake(t, l, a)
			admitted += int(v.Granted)
			if v.Usages[quota.Minute].Limit != 60 || v.Usages[quota.Minute].Used != int64(20+admitted) ||
				v.Usages[quota.Minute].Remaining != int64(20-admitted) {
				t.Fatalf("during the outage, after %d: %+v", admitted, v)
			}
			if u := v.Usages[quota.Minute]; u.ReleaseAt != before.ReleaseAt ||
				u.ResetAt != before.ResetAt.Add(10*time.Second) {
				t.Fatalf("during the outage: %+v, before %+v", u, before)
			}
			if !v.Degraded || v.Granted == 0 && v.RetryAt() != v.At+1000 {
				t.Fatalf("a decision without Redis, after %d: %+v", admitted, v)
			}
			if now, err := l.Peek(always, a); now.Usages != v.Usages || err != nil {
				t.Fatalf("Peek tells of %+v, %v; the last request was told of %+v", now, err, v)
			}
		}
		must.Equal(t, admitted, (60-20)/2, "admitted without Redis")
		server.fail(nil)
		time.Sleep(time.Second)
		if v := mustTake(t, l, a); v.Usages[quota.Minute].Used != 41 || v.Usages[quota.Day].Used != 41 {
			t.Errorf("the first decision afterwards: %+v, want 20 + 20 + 1 used", v)
		}
		if v := mustTake(t, l, a); v.Usages[quota.Minute].Used != 42 {
			t.Errorf("the second: %+v", v)
		}

		// Again, in the same window: 18 are left, and this gateway may have 9 of them.
		server.fail(errRefused)
		must.Equal(t, takeAll(t, l, a, 100), (60-42)/2, "admitted in a second outage")
		// In the next window the earlier use is over.
		time.Sleep(61 * time.Second)
		must.Equal(t, takeAll(t, l, a, 100), 60/2, "admitted in the window after")
		server.fail(nil)
		time.Sleep(time.Second)
		if v := mustTake(t, l, a); v.Usages[quota.Minute].Used != 31 || v.Usages[quota.Day].Used != 82 {
			t.Errorf("after the second outage: %+v, want 31 in the minute and 42+9+30+1 in the day", v)
		}
		count, mode := testutil.ToFloat64, l.metrics.mode.WithLabelValues
		if m := l.metrics; count(m.admitted) != 20+2+1 || count(m.localAdmitted) != 20+9+30 ||
			count(m.localRefused) != 80+91+70 ||
			count(mode(modeShared)) != 1 ||
			count(mode(modeOutage)) != 0 {
			t.Errorf("counted: %v, %v and %v; the mode is %v", count(m.admitted), count(m.localAdmitted),
				count(m.localRefused), count(mode(modeShared)))
		}
	})
}

// A Redis that has lost its counts learns the use of the window from a call of Current too. That
// call restores the day's use, so later calls cannot notice the loss.
func TestReportOfAFlushedRedisGivesNoSecondMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &flaky{records: newMemory(quota.Product, time.Now)}
		l := newFake(t, Config{}, server.Decide)
		a := asking(1, 60)
		must.Equal(t, takeAll(t, l, a, 40), 40, "admitted")
		server.lose()
		time.Sleep(rememberFor)
		if v, err := l.Current(a); err != nil || v.Usages[quota.Minute].Used != 40 {
			t.Errorf("a report after a flush: %+v, %v, want 40 used", v.Usages[quota.Minute], err)
		}
		must.Equal(t, takeAll(t, l, a, 60), 20, "admitted after a flush")
	})
}

func TestKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(23 * time.Hour) // before there is a gateway, an hour costs no work
		server := &flaky{records: newMemory(quota.Product, func() time.Time { return time.Now().Add(7 * time.Second) })}
		l := newFake(t, Config{}, server.Decide)
		a := asking(1, 3)
		now := func() instant.Millis { return instant.Of(time.Now()) }
		if v := l.Known(a); v.At != now() || v.Usages[quota.Minute].Limit != 3 ||
			v.Usages[quota.Minute].Remaining != 3 ||
			v.Usages[quota.Day].Remaining != 100_000 || v.RetryAt() != 0 || v.Usages[quota.Minute].ResetAt < now() ||
			v.Usages[quota.Day].ResetAt <= now() {
			t.Errorf("nothing known: %+v", v)
		}
		for range 4 {
			mustTake(t, l, a)
		}
		v := l.Known(a)
		if v.At != now()+7000 || v.Usages[quota.Minute].Used != 3 || v.Violated() != quota.Minute ||
			v.Usages[quota.Day].Used != 3 {
			t.Errorf("after a refusal: %+v", v)
		}
		upgraded := a
		upgraded.Limits.Minute = 300
		if v := l.Known(upgraded); v.Usages[quota.Minute].Remaining != 297 || v.RetryAt() != 0 {
			t.Errorf("under other limits: %+v", v)
		}
		time.Sleep(61 * time.Second)
		if v := l.Known(a); v.Usages[quota.Minute].Used != 0 || v.Usages[quota.Day].Used != 3 || v.RetryAt() != 0 {
			t.Errorf("a minute later: %+v", v)
		}
		time.Sleep(time.Hour)
		if v := l.Known(a); v.Usages[quota.Day].Used != 0 {
			t.Errorf("on the next day: %+v", v)
		}
	})
}

// What was last seen holds until the instants that the verdict named, to the millisecond. The clock
// that decides is 400 s ahead.
func TestLastSeen(t *testing.T) {
	const day = 24 * 60 * 60 * 1000
	k, a := newLastSeen(quota.Product), asking(1, 10).Request
	a.Limits.Month, a.Cost = 1000, 3
	seen := func(sentAt instant.Millis, used int64, days instant.Millis, retryAt instant.Millis) {
		v := quota.Verdict{At: sentAt + 400_000}
		v.Usages[quota.Minute] = quota.Usage{
			Limit:     10,
			Used:      used,
			ResetAt:   460_000,
			ReleaseAt: 420_000,
			RetryAt:   retryAt,
		}
		v.Usages[quota.Day] = quota.Usage{Used: used, ResetAt: days * day}
		v.Usages[quota.Month] = quota.Usage{Used: used + 1, ResetAt: 31 * day}
		k.store(a, sentAt, sentAt, &v, true)
	}
	seen(1000, 8, 1, 440_000)
	for _, c := range []struct{ now, used, remaining, releaseAt, retryAt instant.Millis }{
		{1999, 8, 2, 420_000, 440_000},
		{20_001, 8, 2, 420_001, 440_000},
		{40_001, 8, 2, 440_001, 440_001},
		{59_999, 8, 2, 459_999, 459_999},
		{60_000, 0, 10, 460_000, 0},
	} {
		v := k.verdict(a, c.now)
		got, known := v.Usages[quota.Minute], k.get(a.Name)
		if got.Used != int64(c.used) || got.Remaining != int64(c.remaining) || got.ReleaseAt != c.releaseAt ||
			got.RetryAt != c.retryAt ||
			v.Usages[quota.Day].Used != 8 || v.Usages[quota.Month].Used != 9 ||
			known.known(c.now).Minute != int64(c.used) {
			t.Errorf("at %d: %+v", c.now, v)
		}
		if _, ok := k.refusal(a, c.now); ok != (c.now < 2000) {
			t.Errorf("at %d: the refusal is repeated: %t", c.now, ok)
		}
	}
	other := a
	other.Tenant[1]++ // the first byte is that of a
	k.store(other, 1500, 1500, &quota.Verdict{At: 401_500}, false)
	must.Equal(t, k.mayRefuse(a.Tenant, 1999) && !k.mayRefuse(a.Tenant, 2000), true,
		"whether the refusal holds for a second, also after another's admission")
	fits, lowered := a, a
	fits.Cost, lowered.Limits.Minute = 2, 5
	if v, low := k.verdict(fits, 2000), k.verdict(lowered, 2000); v.Usages[quota.Minute].RetryAt != 0 ||
		low.Usages[quota.Minute].Remaining != 0 {
		t.Errorf("a request that fits: %+v; under a lower limit: %+v", v, low)
	}
	for _, c := range []struct {
		sentAt, days instant.Millis
		used, want   int64
	}{{900, 1, 9, 9}, {800, 1, 9, 9}, {800, 1, 8, 9}, {700, 2, 1, 1}, {600, 1, 99, 1}, {700, 2, 0, 0}} {
		if seen(c.sentAt, c.used, c.days, 0); k.get(a.Name).use.Day.Used != c.want {
			t.Errorf("after %+v: %+v", c, k.get(a.Name))
		}
	}
	over, runs := quota.Period{Ends: 1, Used: 1}, quota.Period{Ends: 2, Used: 1}
	for use, want := range map[quota.Use]bool{{Day: over, Month: over}: false, {Day: runs}: true, {Month: runs}: true} {
		f := decision{use: use, limits: plan.Limits{Month: 1}}
		if f.hasPeriod(day, quota.Product.Day) != want {
			t.Errorf("on the second day, %+v counts: %t", use, !want)
		}
	}
}

// savedRecords is a Saver that can fail.
type savedRecords struct {
	mu     sync.Mutex
	byName map[store.Name]usage.QuotaRecord
	err    error
	saves  int
}

func (s *savedRecords) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// kept returns what is saved of a tenant, and how often anything was saved.
func (s *savedRecords) kept(t id.Tenant) (usage.QuotaRecord, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byName[store.Name{Tenant: t}], s.saves
}

func (s *savedRecords) SaveQuotas(_ context.Context, _ instant.Millis, records []usage.QuotaRecord) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saves++
	if s.err != nil {
		return s.err
	}
	for _, r := range records {
		s.byName[r.QuotaName] = r
	}
	return nil
}

func (s *savedRecords) LoadQuotas(context.Context) (all []usage.QuotaRecord, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.byName {
		all = append(all, r)
	}
	return all, s.err
}

func TestMemorySurvivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		saver := &savedRecords{byName: map[store.Name]usage.QuotaRecord{}}
		a := asking(1, 60)
		restart := func(use int, want int64) {
			t.Helper()
			l := must.Get[Quotas](t)(Open(always, Config{Saver: saver}))
			for range use {
				mustTake(t, l, a)
			}
			must.Equal(t, l.Known(a).Usages[quota.Minute].Used, want, "used")
			must.Equal(t, l.Mode(), modeMemory, "mode")
			must.Do(t, l.Close(always))
		}
		restart(20, 20)
		restart(20, 40)

		l := must.Get[Quotas](t)(Open(always, Config{Saver: saver}))
		mustTake(t, l, a)
		saver.fail(errTest)
		time.Sleep(3500 * time.Millisecond) // three saves fail
		saver.fail(nil)
		time.Sleep(time.Second)
		kept, saves := saver.kept(a.Tenant)
		rec := must.Get[quota.Record](t)(quota.Product.Decode(kept.Record))
		v := quota.Product.Take(&rec, instant.Of(time.Now()), quota.Demand{Limits: a.Limits})
		must.Equal(t, v.Usages[quota.Day].Used, 41, "what is saved after saves that failed")
		time.Sleep(10 * time.Second)
		if _, after := saver.kept(a.Tenant); after != saves {
			t.Errorf("%d saves of nothing", after-saves)
		}
		saver.fail(errTest)
		mustTake(t, l, a)
		time.Sleep(2 * saveEvery)
		if problems := l.Health(always); len(problems) != 1 || !errors.Is(problems[0], errTest) {
			t.Errorf("while nothing can be saved: %q", problems)
		}
		saver.fail(nil)
		time.Sleep(time.Minute)
		if problems := l.Health(always); len(problems) != 0 {
			t.Errorf("when all is saved: %q", problems)
		}
		saver.fail(errTest)
		mustTake(t, l, a)
		if l.Close(always) == nil {
			t.Error("Close hides that the last save failed")
		}
		// While the saved records cannot be loaded, nothing is decided: otherwise tenants would
		// start with unused limits.
		l = must.Get[Quotas](t)(Open(always, Config{Saver: saver}))
		if v, err := l.Peek(always, a); !errors.Is(err, ErrUndecided) {
			t.Errorf("Peek before the load: %+v, %v", v, err)
		}
		if _, err := l.Take(a); !errors.Is(err, ErrUndecided) || l.Ready() == nil {
			t.Errorf("without what was saved: %v, ready: %v", err, l.Ready())
		}
		saver.fail(nil)
		time.Sleep(2 * loadEvery)
		if v := mustTake(t, l, a); v.Usages[quota.Day].Used != 43 || l.Ready() != nil {
			t.Errorf("with what was saved: %d used, ready: %v", v.Usages[quota.Day].Used, l.Ready())
		}
		must.Do(t, l.Close(always))
	})
}

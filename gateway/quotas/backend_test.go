package quotas

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
)

// opener makes a backend by a clock that the test sets, or by the backend's own when now is nil.
type opener func(rule quota.Rule, now func() instant.Millis) backend

// eachBackend runs one conformance test on every backend there is.
func eachBackend(t *testing.T, f func(t *testing.T, open opener)) {
	t.Run("memory", func(t *testing.T) {
		f(t, func(rule quota.Rule, now func() instant.Millis) backend {
			if now == nil {
				return newMemory(rule, time.Now)
			}
			return newMemory(rule, func() time.Time { return now().Time() })
		})
	})
	t.Run("redis", func(t *testing.T) {
		client, prefix := dialRedis(t)
		f(t, openScript(client, prefix))
	})
	t.Run("redis cluster", func(t *testing.T) {
		f(t, openScript(dialCluster(t), "conformance:"+t.Name()+":"))
	})
}

func openScript(client redis.UniversalClient, prefix string) opener {
	return func(rule quota.Rule, now func() instant.Millis) backend {
		s := newRedisScript(client, prefix, rule)
		s.now = now
		return s
	}
}

func TestConformance(t *testing.T) {
	eachBackend(t, func(t *testing.T, open opener) {
		for name, test := range map[string]func(*testing.T, opener){
			"one tenant's day":                 conformDay,
			"tenants in one batch":             conformBatch,
			"peeking leaves nothing behind":    conformPeek,
			"a forgotten tenant starts anew":   conformForget,
			"its own clock is the right time":  conformClock,
			"many callers get the limit":       conformConcurrent,
			"numbers out of range do no harm":  conformRange,
			"a batch of none":                  conformNone,
			"a large batch in the order asked": conformLarge,
		} {
			t.Run(name, func(t *testing.T) { test(t, open) })
		}
	})
}

func ask(tenant id.Tenant, minute, day int64) Ask {
	return Ask{Tenant: tenant, Limits: plan.Limits{Minute: minute, Day: day}}
}

// take has b decide one demand.
func take(t testing.TB, b backend, d demand) quota.Verdict {
	t.Helper()
	var results [1]result
	if err := b.decide(background, []demand{d}, results[:]); err != nil {
		t.Fatal(err)
	}
	if results[0].Err != nil {
		t.Fatal(results[0].Err)
	}
	return results[0].Verdict
}

// conformDay goes through what may happen to one tenant, as the core's own tables do in depth.
func conformDay(t *testing.T, open opener) {
	now := epoch
	b := open(quota.Product, func() instant.Millis { return now })
	const minute, day = 60_000, 86_400_000
	today, midnight := epoch/day, (epoch/day+1)*day
	f := func(at, minuteMax, dayMax int64, d demand, granted, minuteUsed, dayUsed, retryAt int64) {
		t.Helper()
		now = instant.Millis(at)
		d.Ask = ask(tenant(1), minuteMax, dayMax)
		v := take(t, b, d)
		got := [...]int64{int64(v.At), v.Granted, v.Minute.Used, v.Day.Used, int64(v.RetryAt())}
		if want := [...]int64{at, granted, minuteUsed, dayUsed, retryAt}; got != want {
			t.Errorf("at, granted, minute and day used, retry: %d, want %d", got, want)
		}
	}
	want := func(n int64) demand { return demand{Want: n} }
	// A slice's end, and its release.
	end := func(at int64) int64 { return at/250*250 + 250 }
	release := func(at int64) int64 { return end(at) + minute }

	f(int64(epoch), 60, 1000, want(61), 60, 60, 60, release(int64(epoch)))
	f(int64(epoch+100), 60, 1000, want(1), 0, 60, 60, release(int64(epoch)))
	f(int64(epoch+500), 300, 1000, want(100), 100, 160, 160, 0)
	f(int64(epoch+500), 60, 1000, want(1), 0, 160, 160, release(int64(epoch+500)))
	f(release(int64(epoch))-1, 160, 1000, want(1), 0, 160, 160, release(int64(epoch)))
	f(release(int64(epoch)), 160, 1000, want(1), 1, 101, 161, 0)
	f(release(int64(epoch))-2000, 160, 1000, want(1), 1, 102, 162, 0)
	f(int64(epoch+3*minute), 60, 170, want(9), 8, 8, 170, int64(midnight))
	known := demand{Want: 1, Known: quota.DayUse{Day: int64(today), Used: 500}}
	f(int64(epoch+3*minute), 60, 1000, known, 1, 9, 501, 0)
	spent := demand{Want: 1, Spent: quota.Spent{Minute: 10, Day: quota.DayUse{Day: int64(today), Used: 30}}}
	f(int64(epoch+3*minute), 60, 1000, spent, 1, 20, 532, 0)
	f(int64(midnight-1), 60, 1000, want(2), 2, 2, 534, 0)
	f(int64(midnight), 3, 1000, want(2), 1, 3, 1, int64(midnight+minute))
	f(int64(midnight-1), 60, 1000, want(0), 0, 3, 1, 0)
	f(int64(epoch), 60, 1000, want(1), 1, 4, 2, 0)
	f(release(int64(epoch)), 60, 1000, want(1), 1, 1, 3, 0)
}

// conformBatch: demands of a batch are decided each for itself, and those of one tenant in their order.
func conformBatch(t *testing.T, open opener) {
	b := open(quota.Product, func() instant.Millis { return epoch })
	demands := []demand{
		{Ask: ask(tenant(10), 5, 100), Want: 3},
		{Ask: ask(tenant(11), 2, 100), Want: 3},
		{Ask: ask(tenant(10), 5, 100), Want: 3},
		{Ask: ask(tenant(12), 9, 100)},
		{Ask: ask(tenant(10), 5, 100), Want: 3},
	}
	results := make([]result, len(demands))
	if err := b.decide(background, demands, results); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{3, 2, 2, 0, 0} {
		if r := results[i]; r.Err != nil || r.Verdict.Granted != want || r.Verdict.At != epoch {
			t.Errorf("demand %d: %+v, want %d granted", i, r, want)
		}
	}
}

func conformPeek(t *testing.T, open opener) {
	now := epoch
	b := open(quota.Product, func() instant.Millis { return now })
	for range 2 {
		v := take(t, b, demand{Ask: ask(tenant(20), 5, 100)})
		if v.Minute.Remaining() != 5 || v.Day.Remaining() != 100 || v.RetryAt() != 0 || v.Granted != 0 {
			t.Fatalf("a tenant that never asked: %+v", v)
		}
		now -= 2000 // a record would remember the later instant, and answer with it
	}
	switch b := b.(type) {
	case *memory:
		if n := len(b.shard(tenant(20)).records); n != 0 {
			t.Errorf("peeking made %d records", n)
		}
	case *redisScript:
		if n := b.client.Exists(background, string(b.appendKey(nil, tenant(20)))).Val(); n != 0 {
			t.Errorf("peeking made %d records", n)
		}
	}
}

func conformForget(t *testing.T, open opener) {
	b := open(quota.Product, func() instant.Millis { return epoch })
	d := demand{Ask: ask(tenant(30), 5, 100), Want: 5}
	take(t, b, d)
	for _, one := range []id.Tenant{tenant(30), tenant(31)} {
		if err := b.forget(background, one); err != nil {
			t.Fatal(err)
		}
	}
	if v := take(t, b, d); v.Granted != 5 || v.Day.Used != 5 {
		t.Errorf("after a reset %+v, want 5 granted", v)
	}
}

func conformClock(t *testing.T, open opener) {
	b := open(quota.Product, nil)
	before := instant.Of(time.Now())
	v := take(t, b, demand{Ask: ask(tenant(40), 5, 100), Want: 1})
	if after := instant.Of(time.Now()); v.At < before || v.At > after {
		t.Errorf("decided at %d, between %d and %d", v.At, before, after)
	}
}

// conformConcurrent: callers that compete for one tenant's quota get exactly its limit between them.
func conformConcurrent(t *testing.T, open opener) {
	b := open(quota.Product, func() instant.Millis { return epoch })
	const callers, each, limit = 8, 50, 211
	var granted atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			var results [1]result
			for n := range each {
				demands := []demand{{Ask: ask(tenant(50), limit, 1000), Want: 1 + int64(n%2)}}
				if err := b.decide(background, demands, results[:]); err != nil || results[0].Err != nil {
					t.Error(err, results[0].Err)
					return
				}
				granted.Add(results[0].Verdict.Granted)
			}
		})
	}
	all.Wait()
	if granted.Load() != limit {
		t.Errorf("%d granted, the limit is %d", granted.Load(), limit)
	}
}

// conformRange: no number is ever taken for another because it does not fit.
func conformRange(t *testing.T, open opener) {
	b := open(quota.Product, func() instant.Millis { return epoch })
	const over = 1<<32 + 5 // a 32-bit field would make 5 of it
	today := int64(epoch) / 86_400_000
	for i, d := range []demand{
		{Ask: ask(tenant(60), over, over), Want: over},
		{Ask: ask(tenant(61), -1, 10), Want: 1},
		{Ask: ask(tenant(62), 10, 10), Want: -1},
		{Ask: ask(tenant(63), 10, 10), Want: 1, Known: quota.DayUse{Day: today, Used: over}},
		{Ask: ask(tenant(64), 10, 10), Want: 1, Known: quota.DayUse{Day: today + 1<<32, Used: 10}},
		{Ask: ask(tenant(65), 10, 10), Want: 1, Spent: quota.Spent{Minute: over}},
		{Ask: ask(tenant(66), 10, 10), Want: 1, Spent: quota.Spent{Minute: -5, Day: quota.DayUse{Day: today, Used: -5}}},
		{Ask: ask(tenant(67), 10, 10), Want: 1, Known: quota.DayUse{Day: -1, Used: 10}},
	} {
		want := []int64{plan.LimitMax, 0, 0, 0, 1, 0, 1, 1}[i]
		if v := take(t, b, d); v.Granted != want {
			t.Errorf("demand %d, %+v: %d granted, want %d", i, d, v.Granted, want)
		}
	}
}

func conformNone(t *testing.T, open opener) {
	if err := open(quota.Product, nil).decide(background, nil, nil); err != nil {
		t.Error(err)
	}
}

func conformLarge(t *testing.T, open opener) {
	b := open(quota.Product, func() instant.Millis { return epoch })
	const n = 300
	demands, results := make([]demand, n), make([]result, n)
	for round := int64(1); round <= 2; round++ {
		for i := range demands {
			demands[i] = demand{Ask: ask(tenant(1000+i), plan.LimitMax, plan.LimitMax), Want: int64(i)}
		}
		if err := b.decide(background, demands, results); err != nil {
			t.Fatal(err)
		}
		for i, r := range results {
			if r.Err != nil || r.Verdict.Granted != int64(i) || r.Verdict.Day.Used != round*int64(i) {
				t.Fatalf("round %d, demand %d: %+v", round, i, r)
			}
		}
	}
}

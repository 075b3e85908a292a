// Package storetest holds the tests that every store of quota records passes.
package storetest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
)

// Opener makes a store with this rule. The function now is its clock; if now is nil, the store uses its own clock.
type Opener func(rule quota.Rule, now func() instant.Millis) Store

// Decider decides. It is safe for concurrent use.
type Decider interface {
	// Decide decides all demands in one trip, those of one tenant in their order. results has the same length as demands.
	// After an error it is unknown which demands were decided.
	Decide(ctx context.Context, demands []store.Demand, results []store.Result) error
}

// Store is a store in which a test can look up records.
type Store interface {
	Decider
	// Has reports whether the tenant has a record.
	Has(t id.Tenant) bool
}

// Run runs all tests on the stores that open makes.
func Run(t *testing.T, open Opener) {
	for name, test := range map[string]func(*testing.T, Opener){
		"one tenant's day":                 conformDay,
		"tenants in one batch":             conformBatch,
		"peeking leaves nothing behind":    conformPeek,
		"a reset begins another record":    conformReset,
		"its own clock is the right time":  conformClock,
		"many callers get the limit":       conformConcurrent,
		"numbers out of range do no harm":  conformRange,
		"a batch of none":                  conformNone,
		"a large batch in the order asked": conformLarge,
		"a key's own limits":               conformOwn,
	} {
		t.Run(name, func(t *testing.T) { test(t, open) })
	}
}

// Tenant is the n-th tenant of a test.
func Tenant(n int) (t id.Tenant) {
	t[8], t[9] = byte(n>>8), byte(n)
	return t
}

// Request returns a request of a tenant under these limits.
func Request(tenant id.Tenant, minute, day int64) store.Request {
	return store.Request{Name: store.Name{Tenant: tenant}, Limits: plan.Limits{Minute: minute, Day: day}}
}

// Call returns the same request as it asks the quotas.
func Call(tenant id.Tenant, minute, day int64) store.Call {
	return store.Call{Request: Request(tenant, minute, day)}
}

// Epoch is where the clocks of tests start: an ordinary afternoon.
var Epoch = instant.Of(time.Date(2026, 3, 14, 15, 9, 26, 535e6, time.UTC))

// Take lets b decide one demand.
func Take(t testing.TB, b Decider, d store.Demand) quota.Verdict {
	t.Helper()
	var results [1]store.Result
	if err := b.Decide(context.Background(), []store.Demand{d}, results[:]); err != nil {
		t.Fatal(err)
	}
	if results[0].Err != nil {
		t.Fatal(results[0].Err)
	}
	return results[0].Verdict
}

// conformDay tests one tenant's use over a day. The tables of the core test the same in more depth.
func conformDay(t *testing.T, open Opener) {
	now, began := Epoch, int64(Epoch)
	b := open(quota.Product, func() instant.Millis { return now })
	const minute, day = 60_000, 86_400_000
	today, midnight := began/day, (began/day+1)*day
	f := func(at, minuteMax, dayMax int64, d store.Demand, granted, minuteUsed, dayUsed, retryAt int64) {
		t.Helper()
		now = instant.Millis(at)
		d.Request = Request(Tenant(1), minuteMax, dayMax)
		v := Take(t, b, d)
		got := [...]int64{int64(v.At), v.Granted, v.Usages[quota.Minute].Used, v.Usages[quota.Day].Used, int64(v.RetryAt())}
		if want := [...]int64{at, granted, minuteUsed, dayUsed, retryAt}; got != want {
			t.Errorf("at, granted, minute and day used, retry: %d, want %d", got, want)
		}
	}
	want := func(n int64) store.Demand { return store.Demand{Want: n} }
	// end is the end of the slice in which at lies, and release is the instant at which that slice is released.
	end := func(at int64) int64 { return at/250*250 + 250 }
	release := func(at int64) int64 { return end(at) + minute }

	f(began, 60, 1000, want(61), 60, 60, 60, release(began))
	f(began+100, 60, 1000, want(1), 0, 60, 60, release(began))
	f(began+500, 300, 1000, want(100), 100, 160, 160, 0)
	f(began+500, 60, 1000, want(1), 0, 160, 160, release(began+500))
	f(release(began)-1, 160, 1000, want(1), 0, 160, 160, release(began))
	f(release(began), 160, 1000, want(1), 1, 101, 161, 0)
	f(release(began)-2000, 160, 1000, want(1), 1, 102, 162, 0)
	f(began+3*minute, 60, 170, want(9), 8, 8, 170, midnight)
	known := store.Demand{Want: 1, Known: quota.Use{Day: quota.Period{Ends: today + 1, Used: 500}}}
	f(began+3*minute, 60, 1000, known, 1, 9, 501, 0)
	spent := store.Demand{Want: 1, Spent: quota.Use{Minute: 10, Day: quota.Period{Ends: today + 1, Used: 30}}}
	f(began+3*minute, 60, 1000, spent, 1, 20, 532, 0)
	f(midnight-1, 60, 1000, want(2), 2, 2, 534, 0)
	f(midnight, 3, 1000, want(2), 1, 3, 1, midnight+minute)
	f(midnight-1, 60, 1000, want(0), 0, 3, 1, 0)
	f(began, 60, 1000, want(1), 1, 4, 2, 0)
	f(release(began), 60, 1000, want(1), 1, 1, 3, 0)
}

// conformBatch: each demand of a batch is decided separately, and those of one tenant in their order.
func conformBatch(t *testing.T, open Opener) {
	b := open(quota.Product, func() instant.Millis { return Epoch })
	demands := []store.Demand{
		{Request: Request(Tenant(10), 5, 100), Want: 3},
		{Request: Request(Tenant(11), 2, 100), Want: 3},
		{Request: Request(Tenant(10), 5, 100), Want: 3},
		{Request: Request(Tenant(12), 9, 100)},
		{Request: Request(Tenant(10), 5, 100), Want: 3},
	}
	results := make([]store.Result, len(demands))
	if err := b.Decide(context.Background(), demands, results); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{3, 2, 2, 0, 0} {
		if r := results[i]; r.Err != nil || r.Verdict.Granted != want || r.Verdict.At != Epoch {
			t.Errorf("demand %d: %+v, want %d granted", i, r, want)
		}
	}
}

func conformPeek(t *testing.T, open Opener) {
	now := Epoch
	b := open(quota.Product, func() instant.Millis { return now })
	for range 2 {
		v := Take(t, b, store.Demand{Request: Request(Tenant(20), 5, 100)})
		if v.Usages[quota.Minute].Remaining != 5 || v.Usages[quota.Day].Remaining != 100 || v.RetryAt() != 0 || v.Granted != 0 {
			t.Fatalf("a tenant that never asked: %+v", v)
		}
		now -= 2000 // a record would remember the later instant, and answer with it
	}
	if b.Has(Tenant(20)) {
		t.Error("peeking made a record")
	}
}

// conformReset: each reset of a tenant begins another record. All are decided in one batch, as during a change.
func conformReset(t *testing.T, open Opener) {
	b := open(quota.Product, func() instant.Millis { return Epoch })
	since := []instant.Millis{0, 7, 1_767_225_600_000}
	for round := int64(1); round <= 2; round++ {
		var demands []store.Demand
		for i, at := range since {
			for tenant := range 2 {
				d := store.Demand{Request: Request(Tenant(30+tenant), 100, 100), Want: int64(i + tenant + 1)}
				d.Since = at
				demands = append(demands, d)
			}
		}
		results := make([]store.Result, len(demands))
		if err := b.Decide(context.Background(), demands, results); err != nil {
			t.Fatal(err)
		}
		for i, r := range results {
			if d := &demands[i]; r.Err != nil || r.Verdict.Granted != d.Want || r.Verdict.Usages[quota.Day].Used != round*d.Want {
				t.Errorf("round %d, %+v: %+v", round, d.Name, r)
			}
		}
	}
}

func conformClock(t *testing.T, open Opener) {
	b := open(quota.Product, nil)
	before := instant.Of(time.Now())
	v := Take(t, b, store.Demand{Request: Request(Tenant(40), 5, 100), Want: 1})
	if after := instant.Of(time.Now()); v.At < before || v.At > after {
		t.Errorf("decided at %d, between %d and %d", v.At, before, after)
	}
}

// conformConcurrent: callers that compete for one tenant's quota together get exactly its limit.
func conformConcurrent(t *testing.T, open Opener) {
	b := open(quota.Product, func() instant.Millis { return Epoch })
	const callers, each, limit = 8, 50, 211
	var granted atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			var results [1]store.Result
			for n := range each {
				demands := []store.Demand{{Request: Request(Tenant(50), limit, 1000), Want: 1 + int64(n%2)}}
				if err := b.Decide(context.Background(), demands, results[:]); err != nil || results[0].Err != nil {
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

// conformRange: a number that does not fit is never read as another number.
func conformRange(t *testing.T, open Opener) {
	b := open(quota.Product, func() instant.Millis { return Epoch })
	const over = 1<<32 + 5 // a 32-bit field would make 5 of it
	today := int64(Epoch) / 86_400_000
	for i, d := range []store.Demand{
		{Request: Request(Tenant(60), over, over), Want: over},
		{Request: Request(Tenant(61), -1, 10), Want: 1},
		{Request: Request(Tenant(62), 10, 10), Want: -1},
		{Request: Request(Tenant(63), 10, 10), Want: 1, Known: quota.Use{Day: quota.Period{Ends: today + 1, Used: over}}},
		{Request: Request(Tenant(64), 10, 10), Want: 1, Known: quota.Use{Day: quota.Period{Ends: today + 1 + 1<<32, Used: 10}}},
		{Request: Request(Tenant(65), 10, 10), Want: 1, Spent: quota.Use{Minute: over}},
		{Request: Request(Tenant(66), 10, 10), Want: 1, Spent: quota.Use{Minute: -5, Day: quota.Period{Ends: today + 1, Used: -5}}},
		{Request: Request(Tenant(67), 10, 10), Want: 1, Known: quota.Use{Day: quota.Period{Ends: 0, Used: 10}}},
	} {
		want := []int64{plan.LimitMax, 0, 0, 0, 1, 0, 1, 1}[i]
		if v := Take(t, b, d); v.Granted != want {
			t.Errorf("demand %d, %+v: %d granted, want %d", i, d, v.Granted, want)
		}
	}
}

// conformOwn: a key with limits of its own and its tenant are charged together, in a batch with others.
func conformOwn(t *testing.T, open Opener) {
	b := open(quota.Product, func() instant.Millis { return Epoch })
	tenant := Demand(Tenant(70), 12, 100, 3)
	other := Demand(Tenant(71), 2, 100, 3)
	for _, c := range []struct {
		key     byte
		granted int64 // of 3
		whole   int64 // used then
		own     int64
		binds   quota.Policy
	}{{1, 3, 3, 3, quota.None}, {1, 2, 5, 5, quota.KeyMinute}, {1, 0, 5, 5, quota.KeyMinute}, {2, 3, 8, 3, quota.None}, {2, 2, 10, 5, quota.KeyMinute}, {3, 2, 12, 2, quota.Minute}} {
		own := tenant
		own.Key, own.Limits, own.Joined = id.Key{c.key}, plan.Limits{Minute: 5}, true
		results := make([]store.Result, 4)
		must(t, b.Decide(context.Background(), []store.Demand{other, own, tenant, other}, results))
		ofKey, v := results[1].Verdict, results[2].Verdict
		v.Join(&ofKey)
		if v.Granted != c.granted || ofKey.Granted != c.granted || v.Usages[quota.Minute].Used != c.whole || v.Usages[quota.KeyMinute].Used != c.own ||
			v.Violated() != c.binds {
			t.Errorf("%+v: %+v, binds %v", c, v, v.Violated())
		}
		if results[0].Verdict.Usages[quota.Minute].Used != 2 || results[3].Verdict.Granted != 0 {
			t.Errorf("beside it: %+v", results)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Demand wants this many requests of a tenant.
func Demand(tenant id.Tenant, minute, day, want int64) store.Demand {
	return store.Demand{Request: Request(tenant, minute, day), Want: want}
}

func conformNone(t *testing.T, open Opener) {
	if err := open(quota.Product, nil).Decide(context.Background(), nil, nil); err != nil {
		t.Error(err)
	}
}

func conformLarge(t *testing.T, open Opener) {
	b := open(quota.Product, func() instant.Millis { return Epoch })
	const n = 300
	demands, results := make([]store.Demand, n), make([]store.Result, n)
	for round := int64(1); round <= 2; round++ {
		for i := range demands {
			demands[i] = store.Demand{Request: Request(Tenant(1000+i), plan.LimitMax, plan.LimitMax), Want: int64(i)}
		}
		if err := b.Decide(context.Background(), demands, results); err != nil {
			t.Fatal(err)
		}
		for i, r := range results {
			if r.Err != nil || r.Verdict.Granted != int64(i) || r.Verdict.Usages[quota.Day].Used != round*int64(i) {
				t.Fatalf("round %d, demand %d: %+v", round, i, r)
			}
		}
	}
}

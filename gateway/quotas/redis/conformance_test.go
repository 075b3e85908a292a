package redis

import (
	"context"
	"slices"
	"testing"
	"time"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/keystore"
	"petgate/shared/testkit/must"
)

// tenantNo is the n-th tenant of a test.
func tenantNo(n int) id.Tenant { return id.Tenant{8: byte(n >> 8), 9: byte(n)} }

// requestOf returns a request of a tenant under these limits, callOf the same as it asks the quotas, and demandOf a demand for this many.
func requestOf(tenant id.Tenant, minute, day int64) store.Request {
	return store.Request{Name: store.Name{Tenant: tenant}, Limits: plan.Limits{Minute: minute, Day: day}}
}

func callOf(tenant id.Tenant, minute, day int64) store.Call {
	return store.Call{Request: requestOf(tenant, minute, day)}
}

func demandOf(tenant id.Tenant, minute, day, want int64) store.Demand {
	return store.Demand{Request: requestOf(tenant, minute, day), Want: want}
}

// epoch is where the clocks of tests start: an ordinary afternoon.
var epoch = instant.Of(time.Date(2026, 3, 14, 15, 9, 26, 535e6, time.UTC))

// decider decides all demands in one trip, those of one tenant in their order. It is safe for concurrent use.
type decider interface {
	Decide(ctx context.Context, demands []store.Demand, results []store.Result) error
}

// Decide decides without a number.
func (r *script) Decide(ctx context.Context, demands []store.Demand, results []store.Result) error {
	return r.DecideBatch(ctx, 0, demands, results)
}

// takeOne lets b decide one demand.
func takeOne(t testing.TB, b decider, d store.Demand) quota.Verdict {
	t.Helper()
	var results [1]store.Result
	must.Do(t, b.Decide(background, []store.Demand{d}, results[:]))
	must.Do(t, results[0].Err)
	return results[0].Verdict
}

// memory is a store in this process.
type memory struct{ *store.Memory }

func newMemory(rule quota.Rule, clock func() time.Time) memory {
	return memory{store.NewMemory(rule, clock)}
}

func (m memory) Decide(_ context.Context, demands []store.Demand, results []store.Result) error {
	now := m.Now()
	for i := range demands {
		if d := &demands[i]; d.Joined {
			results[i].Verdict, results[i+1].Verdict = m.TakeBoth(now, d, &demands[i+1])
		} else if i == 0 || !demands[i-1].Joined {
			results[i].Verdict = m.Take(now, d)
		}
	}
	return nil
}

// All stores decide the same. The differential test compares the script with the rule in more depth.
func TestConformance(t *testing.T) {
	t.Parallel()
	inMemory := newMemory(quota.Product, epoch.Time)
	conform(t, "memory", inMemory, func(tenant id.Tenant) bool {
		records, _ := inMemory.Dump(0)
		return slices.ContainsFunc(records, func(r keystore.QuotaRecord) bool { return r.Tenant == tenant })
	})
	client, prefix := dialRedis(t)
	for name, s := range map[string]*script{
		"single":  newScript(client, prefix, quota.Product, takeScript),
		"cluster": newScript(dialCluster(t), "conformance:", quota.Product, takeScript),
	} {
		s.now = func() instant.Millis { return epoch }
		conform(t, name, s, func(tenant id.Tenant) bool {
			return s.client.Exists(background, s.keyOf(store.Demand{Request: requestOf(tenant, 0, 0)})).Val() == 1
		})
	}
}

func conform(t *testing.T, name string, b decider, hasRecord func(id.Tenant) bool) {
	decide := func(t *testing.T, demands ...store.Demand) []store.Result {
		t.Helper()
		results := make([]store.Result, len(demands))
		must.Do(t, b.Decide(background, demands, results))
		for i, r := range results {
			if r.Err != nil || r.Verdict.At != epoch {
				t.Fatalf("demand %d: %+v", i, r)
			}
		}
		return results
	}
	t.Run(name+"/a batch in its order", func(t *testing.T) {
		decide(t)
		const peeks = 12
		for i, r := range decide(t, demandOf(tenantNo(10), 5, 100, 3), demandOf(tenantNo(11), 2, 100, 3), demandOf(tenantNo(10), 5, 100, 3),
			demandOf(tenantNo(peeks), 9, 100, 0), demandOf(tenantNo(10), 5, 100, 3)) {
			if want := []int64{3, 2, 2, 0, 0}[i]; r.Verdict.Granted != want {
				t.Errorf("demand %d: %+v, want %d granted", i, r, want)
			}
		}
		if hasRecord(tenantNo(peeks)) || !hasRecord(tenantNo(10)) {
			t.Error("peeking made a record, or a grant did not")
		}
	})
	t.Run(name+"/a large batch", func(t *testing.T) {
		demands := make([]store.Demand, 300)
		for i := range demands {
			demands[i] = demandOf(tenantNo(1000+i), plan.LimitMax, plan.LimitMax, int64(i))
			demands[i].Since = instant.Millis(i % 2 * 1_767_225_600_000) // half of the tenants were reset
		}
		for round := int64(1); round <= 2; round++ {
			for i, r := range decide(t, demands...) {
				if r.Verdict.Granted != int64(i) || r.Verdict.Usages[quota.Day].Used != round*int64(i) {
					t.Fatalf("round %d, demand %d: %+v", round, i, r)
				}
			}
		}
		for i := range demands { // each reset begins another record
			demands[i].Since++
			demands[i].Want = 0
		}
		for i, r := range decide(t, demands...) {
			if r.Verdict.Usages[quota.Day].Used != 0 {
				t.Fatalf("after a reset, demand %d: %+v", i, r)
			}
		}
	})
	// A number that does not fit is never read as another number.
	t.Run(name+"/numbers out of range", func(t *testing.T) {
		const over = 1<<32 + 5 // a 32-bit field would make 5 of it
		today := int64(epoch) / 86_400_000
		with := func(tenant int, known, spent quota.Use) store.Demand {
			d := demandOf(tenantNo(tenant), 10, 10, 1)
			d.Known, d.Unreported = known, spent
			return d
		}
		of := func(ends, used int64) quota.Use { return quota.Use{Day: quota.Period{Ends: ends, Used: used}} }
		want := []int64{plan.LimitMax, 0, 0, 0, 1, 0, 1, 1}
		for i, r := range decide(t, demandOf(tenantNo(60), over, over, over), demandOf(tenantNo(61), -1, 10, 1), demandOf(tenantNo(62), 10, 10, -1),
			with(63, of(today+1, over), quota.Use{}), with(64, of(today+1+1<<32, 10), quota.Use{}), with(65, quota.Use{}, quota.Use{Minute: over}),
			with(66, quota.Use{}, quota.Use{Minute: -5, Day: quota.Period{Ends: today + 1, Used: -5}}), with(67, of(0, 10), quota.Use{})) {
			if r.Verdict.Granted != want[i] {
				t.Errorf("demand %d: %+v, want %d granted", i, r.Verdict, want[i])
			}
		}
	})
}

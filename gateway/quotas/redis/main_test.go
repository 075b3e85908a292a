package redis

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/testkit/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var generous = plan.Limits{Minute: plan.LimitMax, Day: plan.LimitMax}

// noLedger remembers nothing.
type noLedger struct{}

func (noLedger) Refusal(*store.Call, instant.Millis) (v quota.Verdict, ok bool)             { return v, false }
func (noLedger) Collect(*store.Demand)                                                      {}
func (noLedger) Settle(*store.Demand, *quota.Verdict, bool, instant.Millis, instant.Millis) {}
func (noLedger) Records(Scope) []store.Request                                              { return nil }

// open connects to the Redis of cfg, with the product's settings for what cfg leaves out. It is
// closed with the test.
func open(t testing.TB, cfg Config) *Decider {
	t.Helper()
	if cfg.Prefix == "" {
		cfg.Prefix = "petgate:"
	}
	if cfg.Rule == (quota.Rule{}) {
		cfg.Rule = quota.Product
	}
	if cfg.Budget == 0 {
		cfg.Budget = 10 * time.Second // longer than a busy machine stops Redis
	}
	cfg.Clock, cfg.Metrics, cfg.Changed = time.Now, NewMetrics(nil), func(bool, error) {}
	r := must.Get[*Decider](t)(Open(cfg, noLedger{}))
	r.Start(always)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// tenantNo is the n-th tenant of a test.
func tenantNo(n int) id.Tenant { return id.Tenant{8: byte(n >> 8), 9: byte(n)} }

// requestOf returns a request of a tenant under these limits, callOf the same as it asks the
// quotas, and demandOf a demand for one.
func requestOf(tenant id.Tenant, minute, day int64) store.Request {
	return store.Request{Name: store.Name{Tenant: tenant}, Limits: plan.Limits{Minute: minute, Day: day}}
}

func callOf(tenant id.Tenant, minute, day int64) store.Call {
	return store.Call{Request: requestOf(tenant, minute, day)}
}

func demandOf(tenant id.Tenant, minute, day int64) store.Demand {
	return store.Demand{Request: requestOf(tenant, minute, day), Want: 1}
}

// epoch is where the clocks of tests start: an ordinary afternoon.
var epoch = instant.Of(time.Date(2026, 3, 14, 15, 9, 26, 535e6, time.UTC))

// Decide decides without a number.
func (r *script) Decide(ctx context.Context, demands []store.Demand, results []store.Result) error {
	return r.DecideBatch(ctx, 0, demands, results)
}

// takeOne decides one demand.
func takeOne(t testing.TB, s *script, d store.Demand) quota.Verdict {
	t.Helper()
	var results [1]store.Result
	must.Do(t, s.Decide(always, []store.Demand{d}, results[:]))
	must.Do(t, results[0].Err)
	return results[0].Verdict
}

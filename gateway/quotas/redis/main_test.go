package redis

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var generous = plan.Limits{Minute: plan.LimitMax, Day: plan.LimitMax}

// noLedger remembers nothing.
type noLedger struct{}

func (noLedger) Refusal(*store.Call, instant.Millis) (v quota.Verdict, ok bool)             { return v, false }
func (noLedger) Collect(*store.Demand)                                                      {}
func (noLedger) Settle(*store.Demand, *quota.Verdict, bool, instant.Millis, instant.Millis) {}
func (noLedger) Records(Scope) []store.Request                                              { return nil }

// open connects to the Redis of cfg, with the product's settings for what cfg leaves out. It is closed with the test.
func open(t testing.TB, cfg Config) *Redis {
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
	r, err := Open(cfg, noLedger{})
	if err != nil {
		t.Fatal(err)
	}
	r.Start(background)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

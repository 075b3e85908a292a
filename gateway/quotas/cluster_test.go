package quotas

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/quota"
)

// partial decides each tenant of a batch alone, as Redis Cluster does. fault says whether a call for a tenant is executed, and how it fails;
// tells: the call has unreported requests only.
type partial struct {
	*Shared
	mu    sync.Mutex
	fault func(tenant byte, tells bool) (executed bool, err error)
}

func newPartial(t *testing.T) *partial {
	records, p := newMemory(quota.Product, time.Now), &partial{fault: func(byte, bool) (bool, error) { return true, nil }}
	p.Shared = newFake(t, Config{}, func(ctx context.Context, demands []store.Demand, results []store.Result) error {
		time.Sleep(time.Millisecond) // other requests gather
		p.mu.Lock()
		defer p.mu.Unlock()
		failed := 0
		for i := range demands {
			executed, err := p.fault(demands[i].Tenant[9], demands[i].Want == 0)
			if executed {
				_ = records.Decide(ctx, demands[i:i+1], results[i:i+1])
			}
			if results[i].Err = err; err != nil {
				failed++
			}
		}
		if failed == len(demands) {
			return results[0].Err
		}
		return nil
	})
	return p
}

func (p *partial) set(fault func(tenant byte, tells bool) (executed bool, err error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = fault
}

// charged checks that Redis decides again, and how many requests it has charged to the tenants 1 and 2.
func (p *partial) charged(t *testing.T, want ...int64) {
	t.Helper()
	time.Sleep(2 * time.Second)
	for i, n := range want {
		if v := mustTake(t, p, asking(i+1, 60)); v.Degraded || v.Usages[quota.Minute].Used != n+1 || v.Usages[quota.Day].Used != n+1 {
			t.Errorf("tenant %d: %+v, want %d used before", i+1, v, n)
		}
	}
	if len(p.share.unreported) != 0 {
		t.Errorf("unreported: %+v", p.share.unreported)
	}
}

// Of a batch with two tenants, Redis does not answer for one, or for both. The server is then down, and the gateway decides that tenant's
// request. It is charged as one of the gateway, and once more if Redis has executed its call.
func TestUnansweredBatch(t *testing.T) {
	f := func(isWhole, executed bool, fault error) {
		synctest.Test(t, func(t *testing.T) {
			p := newPartial(t)
			var all sync.WaitGroup
			var verdicts [3]quota.Verdict
			lost := 1 + btoi(isWhole)
			for i, tenant := range []int{9, 1, 2} { // the first one leads alone
				all.Go(func() { verdicts[i] = mustTake(t, p, asking(tenant, 60)) })
				synctest.Wait()
			}
			p.set(func(tenant byte, tells bool) (bool, error) {
				if (tenant == 2 || isWhole && tenant == 1) && lost > 0 {
					lost--
					return executed, fault
				}
				return true, nil
			})
			all.Wait()
			if p.Mode() != modeOutage || verdicts[1].Degraded != isWhole || !verdicts[2].Degraded {
				t.Errorf("mode %s, verdicts %+v", p.Mode(), verdicts)
			}
			p.charged(t, int64(1+btoi(isWhole && executed)), int64(1+btoi(executed)))
		})
	}
	for _, isWhole := range []bool{false, true} {
		f(isWhole, true, errTimeout)
		f(isWhole, false, errTimeout)
	}
	f(true, false, errRefused)
}

// A gateway reports to Redis the requests of two tenants. Redis does not answer for one of them; or for both, and then fails again for one of
// the demands that are sent again. Nothing is charged twice.
func TestAPartOfTheReportIsLost(t *testing.T) {
	for _, executed := range []bool{true, false} {
		for _, again := range []error{nil, errTimeout, errRefused} {
			synctest.Test(t, func(t *testing.T) {
				p := newPartial(t)
				mustTake(t, p, asking(9, 60))
				p.set(func(byte, bool) (bool, error) { return false, errRefused })
				for n := 1; n <= 2; n++ {
					if v := mustTake(t, p, asking(n, 60)); !v.Degraded {
						t.Errorf("tenant %d: %+v", n, v)
					}
				}
				told := map[byte]int{}
				p.set(func(tenant byte, tells bool) (bool, error) {
					if !tells {
						return true, nil
					}
					switch told[tenant]++; {
					case told[tenant] == 1 && (tenant == 2 || again != nil):
						return executed, errTimeout
					case told[tenant] == 2 && tenant == 2 && again != nil:
						return executed && again == errTimeout, again
					}
					return true, nil
				})
				p.charged(t, 1, 1)
				if told[2] < 2+btoi(again != nil) {
					t.Error("the demand was not sent again")
				}
			})
		}
	}
}

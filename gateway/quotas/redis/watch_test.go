package redis

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"petgate/gateway/quotas/store"
)

// manyTenants is a ledger that knows use of many tenants.
type manyTenants struct{ noLedger }

func (manyTenants) Records(s Scope) (all []store.Request) {
	for n := range 4 * tenantsMax {
		if s != Unreported {
			all = append(all, requestOf(tenantNo(n), 60, 100))
		}
	}
	return all
}

// A server evicts records, so whatever it is told shows a loss. The gateway tells it everything again and again, but mostly leaves it alone.
func TestServerThatEvicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const trip, lasting = 100 * time.Millisecond, 5 * time.Minute
		var told atomic.Int64
		r := newOver(storeFunc(func(_ int64, demands []store.Demand, results []store.Result) error {
			time.Sleep(trip)
			told.Add(1)
			results[0].Lost = true
			return nil
		}), manyTenants{})
		defer r.Close()
		r.Start(background)
		r.Take(callOf(tenantNo(0), 60, 100))
		time.Sleep(lasting)
		if busy := time.Duration(told.Load()) * trip; busy > lasting/15 || busy < lasting/50 {
			t.Errorf("the server is told for %v of %v", busy, lasting)
		}
	})
}

package redis

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/id"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// The batchers of three gateways on one Redis admit exactly what the rule does, over many windows,
// days and ends of months, for one to three policies, costs and keys with limits of their own.
// Windows and days are short here. TestExactnessOfGateways uses those of the product.
func TestExactness(t *testing.T) {
	t.Parallel()
	rule := quota.Rule{Slice: 25 * time.Millisecond, Slices: 20, Day: 500 * time.Millisecond}
	const gateways, tenants, workers = 3, 30, 4
	requests, lasting := int64(12_000), 3*time.Second
	if testkit.FullSize {
		requests, lasting = 50_000, 10*time.Second
	}
	server := testkit.StartRedis(t)
	tape := newTape(t, server.Addr, rule, new(atomic.Int64))
	var tried, admitted atomic.Int64
	var used [tenants]atomic.Int64
	var all sync.WaitGroup
	for g := range gateways {
		r := open(t, Config{URL: "redis://" + tape.addr, Rule: rule})
		for w := range workers {
			random := rand.New(rand.NewPCG(uint64(g), uint64(w)))
			all.Go(func() {
				pace := time.NewTicker(lasting * gateways * workers / time.Duration(requests))
				defer pace.Stop()
				for tried.Add(1) <= requests {
					<-pace.C
					n := random.IntN(tenants)
					minute := []int64{1, 3, 8, 20, 50}[n%5]
					a := callOf(tenantNo(n), minute, minute*int64(1+n%4))
					switch a.Cost = 1; n % 3 {
					case 1:
						a.Limits.Month, a.MonthStarts = 4*minute, uint8(n%28+1)
						a.Limits.Day *= int64(n % 2)
					case 2:
						a.Cost = min(minute, []int64{1, 1, 5, 50}[random.IntN(4)])
						a.Key, a.Cap = id.Key{byte(1 + random.IntN(3))}, plan.Limits{Minute: minute / 2, Day: minute}
						if _, err := r.Peek(always, store.Demand{Request: a.Own()}); err != nil { // as after an outage
							t.Error(err)
						}
					}
					v, outcome := r.Take(a)
					if outcome != Decided {
						t.Errorf("outcome %d", outcome)
						return
					}
					admitted.Add(v.Granted)
					used[n].Add(a.Cost * v.Granted)
				}
			})
		}
	}
	all.Wait()
	r := tape.replay(t, rule)
	sum := admitted.Load()
	for n := range used {
		key := "petgate:{" + tenantNo(n).String() + "}"
		must.Equal(t, used[n].Load(), r.used[key],
			"units of tenant %d that were admitted; Redis charged what is wanted", n)
	}
	windows := time.Duration(r.last-r.first) * time.Millisecond / rule.Window()
	t.Logf(
		"figure: exactness, brief windows: %d requests of %d tenants at %d gateways, %d admitted, over %d windows and %d "+
			"days, %d decisions in Redis: each as the rule says",
		requests,
		tenants,
		gateways,
		sum,
		windows,
		(r.last-r.first)/rule.Day.Milliseconds(),
		r.calls,
	)
	// The number of admitted requests grows with the time that the run takes, so it is only asked
	// for many refusals.
	if windows < 4 || requests-sum < 1000 || r.spent != 0 || r.joined == 0 {
		t.Errorf("that shows too little: %d windows, %d admitted, %d charged for outages, %d decisions on keys",
			windows, sum, r.spent, r.joined)
	}
}

package quotas

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// startFleet opens gateways on one Redis. It returns what they log.
func startFleet(t *testing.T, gateways int, cfg Config) (fleet []*Shared, log *testkit.Output) {
	log = new(testkit.Output)
	cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	cfg.LiveGateways = func() int { return gateways }
	for range gateways {
		fleet = append(fleet, openQuotas(t, cfg).(*Shared))
	}
	return fleet, log
}

// keepBusy lets each gateway ask for a tenant of its own until the test ends or stop is called.
func keepBusy(t *testing.T, fleet []*Shared) (stop func()) {
	ctx, cancel := context.WithCancel(always)
	var all sync.WaitGroup
	for i, g := range fleet {
		all.Go(func() {
			pace := time.NewTicker(10 * time.Millisecond)
			defer pace.Stop()
			for ctx.Err() == nil {
				mustTake(t, g, asking(100+i, 100_000))
				<-pace.C
			}
		})
	}
	stop = func() {
		cancel()
		all.Wait()
	}
	t.Cleanup(stop)
	return stop
}

func flush(t *testing.T, urls ...string) {
	for _, url := range urls {
		must.Do(t, dial(t, url).FlushAll(always).Err())
	}
}

// Redis loses its counts, and no connection breaks or only for a moment. The gateways notice,
// although they have other requests or none, and tell what they know of all tenants: of the window,
// and of the day. There is no outage.
func TestLostCountsAreTold(t *testing.T) {
	const limit = 60
	f := func(name string, rule quota.Rule, isBusy bool, start func(t *testing.T) (urls string, lose func())) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			urls, lose := start(t)
			fleet, log := startFleet(t, 3, Config{RedisURL: urls, Rule: rule, Budget: redisBudget})
			stop := func() {}
			if isBusy {
				stop = keepBusy(t, fleet)
			}
			r := asking(1, limit)
			r.Limits.Day = limit
			must.Equal(t, takeAll(t, fleet[0], r, 2*limit), limit, "admitted")
			for losses := range 2 {
				if rule.Slices == brief.Slices { // the window is over, and only the use of the day is known
					<-time.After(rule.Window() + rule.Slice)
				}
				lose()
				testkit.Eventually(t, 20*time.Second, "a gateway tells what it knows", func() bool {
					v, err := fleet[1].Peek(always, Request{Request: store.Request{Name: r.Name, Limits: r.Limits}})
					return err == nil && v.Usages[quota.Day].Used == limit
				})
				if v := mustTake(t, fleet[2], r); v.Granted != 0 || v.Degraded {
					t.Errorf("loss %d: %+v, want a refusal", losses, v)
				}
			}
			stop()
			if text := log.String(); strings.Contains(text, "without Redis") {
				t.Errorf("there was an outage: %s", text)
			}
		})
	}
	flushed := func(t *testing.T) (string, func()) {
		s := testkit.StartRedis(t)
		return s.URL, func() { flush(t, s.URL) }
	}
	f("flushed, gateways are busy", quota.Product, true, flushed)
	f("flushed, gateways are idle", quota.Product, false, flushed)
	f("flushed, only the day is known", brief, true, flushed)
	f("flushed, only the day is known, gateways are idle", brief, false, flushed)
	moves := func(t *testing.T) (string, func()) {
		p := testkit.NewProxy(t, testkit.StartRedis(t).Addr)
		return "redis://" + p.Addr, func() { p.MoveTo(testkit.StartRedis(t).Addr) }
	}
	f("its address moves to an empty server, gateways are idle", quota.Product, false, moves)
	f("a cluster is flushed, gateways are idle", quota.Product, false, func(t *testing.T) (string, func()) {
		urls := testkit.RedisCluster(t, 3)
		return strings.Join(urls, ","), func() { flush(t, urls...) }
	})
}

// Redis loses its counts in an outage. The recovery tells the window's use; what is known of the
// day is told after it, although all gateways have requests of other tenants only.
func TestDayIsToldAfterAnOutage(t *testing.T) {
	t.Parallel()
	const limit = 60
	server := testkit.StartRedis(t)
	proxy := testkit.NewProxy(t, server.Addr)
	fleet, _ := startFleet(t, 2, Config{RedisURL: "redis://" + proxy.Addr, Rule: brief, Budget: redisBudget})
	r := asking(1, limit)
	r.Limits.Day = limit
	must.Equal(t, takeAll(t, fleet[0], r, 2*limit), limit, "admitted")
	defer keepBusy(t, fleet)()
	<-time.After(brief.Window() + brief.Slice)
	proxy.Kill()
	testkit.Eventually(t, 20*time.Second, "an outage",
		func() bool { return fleet[0].Mode() == modeOutage && fleet[1].Mode() == modeOutage })
	flush(t, server.URL)
	proxy.Restore(t)
	testkit.Eventually(t, 20*time.Second, "the day's use is told", func() bool {
		v, err := fleet[1].redis.Peek(always, store.Demand{Request: r.Request})
		return err == nil && v.Usages[quota.Day].Used == limit
	})
}

// A server that was never asked has not answered.
func TestUnaskedServerIsUnheard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFake(t, Config{}, func(context.Context, []store.Demand, []store.Result) error { return nil })
		time.Sleep(time.Minute)
		if s.redis.HasHeard(tenant(1)) {
			t.Error("a server is heard that nobody has asked")
		}
	})
}

// partial decides each tenant of a batch alone, as Redis Cluster does. fault says whether a call
// for a tenant is executed, and how it fails; tells: the call has unreported requests only.
type partial struct {
	*Shared
	mu    sync.Mutex
	fault func(tenant byte, tells bool) (executed bool, err error)
}

func newPartial(t *testing.T) *partial {
	records, p := newMemory(quota.Product, time.Now), &partial{
		fault: func(byte, bool) (bool, error) { return true, nil },
	}
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
			results[i].Err = err
			if err != nil {
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

// charged checks that Redis decides again, and how many requests it has charged to the tenants 1
// and 2.
func (p *partial) charged(t *testing.T, want ...int64) {
	t.Helper()
	time.Sleep(2 * time.Second)
	for i, n := range want {
		if v := mustTake(t, p, asking(i+1, 60)); v.Degraded || v.Usages[quota.Minute].Used != n+1 ||
			v.Usages[quota.Day].Used != n+1 {
			t.Errorf("tenant %d: %+v, want %d used before", i+1, v, n)
		}
	}
	if len(p.standIn.unreported) != 0 {
		t.Errorf("unreported: %+v", p.standIn.unreported)
	}
}

// Of a batch with two tenants, Redis does not answer for one, or for both. The server is then down,
// and the gateway decides that tenant's request. It is charged as one of the gateway, and once more
// if Redis has executed its call.
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

// A gateway reports to Redis the requests of two tenants. Redis does not answer for one of them; or
// for both, and then fails again for one of the demands that are sent again. Nothing is charged
// twice.
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

// A busy slot moves to another node. The move stops half-way: one record of the slot has moved,
// another one has not, a third is new. Then it is finished, and at last no node serves the slot: a
// request waits for the budget. Redis keeps deciding, but for then, and the other tenants notice
// nothing.
func TestInterruptedReshard(t *testing.T) {
	t.Parallel()
	servers := testkit.RedisClusterOf(t, 3, 0, "--cluster-require-full-coverage", "no")
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.URL)
	}
	fleet, log := startFleet(t, 2, Config{RedisURL: strings.Join(urls, ","), Budget: redisBudget})
	var degraded, requests atomic.Int64
	ctx, stop := context.WithCancel(always)
	var all sync.WaitGroup
	for _, g := range fleet {
		all.Go(func() {
			for n := 10; ctx.Err() == nil; n++ {
				if mustTake(t, g, asking(n%50+10, 100_000)).Degraded {
					degraded.Add(1)
				}
				requests.Add(1)
				<-time.After(time.Millisecond)
			}
		})
	}
	take := func(since instant.Millis) (degraded bool, used int64, took time.Duration) {
		began := time.Now()
		v := mustTake(t, fleet[0], resetAt(asking(1, 100_000), since))
		return v.Degraded, v.Usages[quota.Day].Used, time.Since(began)
	}
	var waited, slowest time.Duration // of requests of the slot
	var used [3]int64
	takeOfAll := func(when string, records, times int) {
		t.Helper()
		for range times {
			for since := range records {
				used[since]++
				isDegraded, n, took := take(instant.Millis(since))
				if isDegraded || n != used[since] {
					t.Fatalf("%s, record %d: degraded %t, %d used, want %d; log %s", when, since, isDegraded, n,
						used[since], log)
				}
				waited, slowest = waited+took, max(slowest, took)
			}
		}
	}
	takeOfAll("before", 2, 1)
	key := "{" + tenant(1).String() + "}"
	nodes, ids := make([]*goredis.Client, len(servers)), make([]string, len(servers))
	from, to := 0, 1
	for i, s := range servers {
		nodes[i] = dial(t, s.URL)
		ids[i] = nodes[i].ClusterMyID(always).Val()
		if nodes[i].Exists(always, "petgate:"+key).Val() == 1 {
			from, to = i, (i+1)%len(servers)
		}
	}
	do := func(node int, args ...any) {
		t.Helper()
		must.Do(t, nodes[node].Do(always, args...).Err())
	}
	slot := nodes[0].ClusterKeySlot(always, key).Val()
	do(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[from])
	do(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[to])
	host, port, _ := net.SplitHostPort(servers[to].Addr)
	do(from, "MIGRATE", host, port, "petgate:"+key+":1", 0, 5000)
	takeOfAll("half-way", 3, 30)
	do(from, "MIGRATE", host, port, "petgate:"+key, 0, 5000)
	for _, node := range []int{to, from} {
		do(node, "CLUSTER", "SETSLOT", slot, "NODE", ids[to])
	}
	takeOfAll("after the move", 3, 30)

	do(to, "CLUSTER", "DELSLOTS", slot)
	isDegraded, _, unserved := take(0)
	do(to, "CLUSTER", "ADDSLOTS", slot)
	testkit.Eventually(t, 2*redisBudget, "Redis decides again", func() bool {
		isDegraded, _, _ := take(0)
		return !isDegraded
	})
	stop()
	all.Wait()
	t.Logf(
		"figure: a slot moves: a request of that slot waits for %v at most, and for %v, "+
			"the budget here, if no node serves the slot; %d of %d requests of others were decided without Redis",
		slowest.Round(time.Millisecond),
		unserved.Round(time.Millisecond),
		degraded.Load(),
		requests.Load(),
	)
	if degraded.Load() > 0 || strings.Contains(log.String(), "without Redis") {
		t.Errorf("%d requests of other tenants were decided without Redis; log %s", degraded.Load(), log)
	}
	if of := time.Duration(used[0] + used[1] + used[2]); waited > of*200*time.Millisecond {
		t.Errorf("while the slot moves, %d requests of it wait for %v", of, waited)
	}
	if !isDegraded || unserved < redisBudget || unserved > 2*redisBudget {
		t.Errorf("without a node for the slot, a request is decided after %v, degraded: %t", unserved, isDegraded)
	}
}

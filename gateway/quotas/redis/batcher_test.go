package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/redis/go-redis/v9"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// storeFunc is a store that decides by a function.
type storeFunc func(number int64, demands []store.Demand, results []store.Result) error

func (f storeFunc) DecideBatch(_ context.Context, number int64, demands []store.Demand, results []store.Result) error {
	return f(number, demands, results)
}

func newOver(s Store, l Ledger) *Decider {
	return New(Config{Rule: quota.Product, Clock: time.Now, Metrics: NewMetrics(nil), Changed: func(bool, error) {}}, s,
		l)
}

// newCluster returns a Redis on a cluster of servers that are never asked. slots says which of them
// serve which slots.
func newCluster(t *testing.T, s Store, slots func() []redis.ClusterSlot) *Decider {
	r := newOver(s, noLedger{})
	r.servers.cluster = redis.NewClusterClient(
		&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return slots(), nil
		}},
	)
	t.Cleanup(func() {
		_ = r.Close()
		_ = r.servers.cluster.Close()
	})
	return r
}

func slotsFrom(start, end int, port int32) redis.ClusterSlot {
	return redis.ClusterSlot{Start: start, End: end, Nodes: []redis.ClusterNode{{Addr: fmt.Sprint("127.0.0.1:", port)}}}
}

// A server leaves the cluster. Its batcher sends what it has to, and ends, with all its goroutines.
// A request that has found it before is still decided. The batcher of a new server may decide only
// after a probe, if another server is down, from which it may have taken over.
func TestBatcherOfAServerThatLeaves(t *testing.T) {
	var port atomic.Int32
	r := newCluster(t, storeFunc(func(_ int64, demands []store.Demand, _ []store.Result) error {
		if at := port.Load(); at == 2 || at == 0 && demands[0].Want == 0 {
			return reply("CLUSTERDOWN Hash slot not served")
		}
		return nil
	}), func() []redis.ClusterSlot {
		return []redis.ClusterSlot{slotsFrom(0, 16383, port.Load())}
	})
	running := func() int {
		all := make([]byte, 1<<20)
		text := string(all[:runtime.Stack(all, true)])
		return strings.Count(text, "redis.(*stack).calls(") + strings.Count(text, "redis.(*batcher).watch(")
	}
	was, q := running(), callOf(tenantNo(1), 60, 100)
	old := r.servers.of(q.Tenant)
	take := func() {
		t.Helper()
		must.Equal(t, old.take(&q, new(quota.Verdict)), Decided, "the outcome")
	}
	take()
	testkit.Eventually(t, 20*time.Second, "it has a batch and watch", func() bool { return running() == was+2 })
	old.unanswered.keep(unansweredBatch{1, []store.Demand{{Request: q.Request}}})
	port.Store(1)
	r.servers.cluster.ReloadState(always)
	testkit.Eventually(t, 20*time.Second, "its goroutines end", func() bool { return running() == was })
	take()
	if n := running() - was; n != 0 || len(r.servers.byMaster)+len(old.unanswered.batches) != 0 {
		t.Errorf("%d goroutines and %d batchers are left, unanswered: %v", n, len(r.servers.byMaster),
			old.unanswered.batches)
	}
	port.Store(2)
	r.env.outage.begin(errDown)
	must.Equal(t, r.servers.of(q.Tenant).down.Load(), true,
		"whether a new server waits until it is told what this gateway knows")
	if r.servers.first.fail(errDown); r.servers.of(q.Tenant) != r.servers.first {
		t.Error("a cluster that has never answered is asked for each request")
	}
}

// Each trip is counted by its outcome, with its requests and tenants. The second one is of three
// requests of two tenants.
func TestTripsAreCounted(t *testing.T) {
	for want, faults := range map[string][2]error{ // of the trip, and of one tenant's record
		"[2 0 0 0 0 0 4 3]": {},
		"[2 0 0 0 1 0 4 3]": {nil, store.ErrRecord},
		"[1 1 0 0 0 1 4 3]": {reply("OOM")},
		"[1 0 1 3 0 1 4 3]": {&net.OpError{Op: "read", Err: context.DeadlineExceeded}},
	} {
		synctest.Test(t, func(t *testing.T) {
			first := make(chan bool)
			r := newOver(storeFunc(func(_ int64, demands []store.Demand, results []store.Result) error {
				if <-first; len(demands) == 1 {
					return nil
				}
				second := slices.IndexFunc(demands, func(d store.Demand) bool { return d.Tenant == tenantNo(2) })
				results[second].Err = faults[1]
				results[0].Verdict = quota.Verdict{
					Granted: 2,
					Usages:  [quota.Policies]quota.Usage{{Limit: 60, Used: 10, ResetAt: 1}},
				}
				return faults[0]
			}), noLedger{})
			defer r.Close()
			var all sync.WaitGroup
			var verdicts [4]quota.Verdict
			for i, n := range []int{9, 1, 1, 2} {
				all.Go(func() {
					c := callOf(tenantNo(n), 60, 100)
					c.Cost = 5
					verdicts[i], _ = r.Take(c)
				})
				synctest.Wait()
			}
			close(first)
			all.Wait()
			synctest.Wait() // some are counted after the requests have their answer
			if faults[0] == nil {
				must.Equal(t, verdicts[1].Usages[0].Used, 5, "what the first of two requests sees as used")
				must.Equal(t, verdicts[2].Usages[0].Used, 10, "what the second one sees as used")
			}
			var requests, tenants dto.Metric
			m := r.cfg.Metrics
			must.Do(t, errors.Join(m.batchRequests.Write(&requests), m.batchTenants.Write(&tenants)))
			got := []float64{}
			for _, c := range []prometheus.Collector{
				m.tripOK, m.tripFailed, m.tripUnsure, m.timeouts, m.recordErrors,
				m.serversDown,
			} {
				got = append(got, testutil.ToFloat64(c))
			}
			got = append(got, requests.GetHistogram().GetSampleSum(), tenants.GetHistogram().GetSampleSum())
			must.Equal(t, fmt.Sprint(got), want,
				"trips by outcome, timeouts, record errors, servers down, requests, tenants")
		})
	}
}

// Two of three unanswered batches are sent again, although a slot of the first is served nowhere.
// Of that batch, only the demand of that slot is kept.
func TestUnansweredBatchesAreSentAgain(t *testing.T) {
	var sent []string
	var fault error = reply("CLUSTERDOWN Hash slot not served")
	r := newOver(storeFunc(func(number int64, demands []store.Demand, results []store.Result) error {
		for i := range demands {
			sent = append(sent, fmt.Sprint(number, ":", demands[i].Tenant[9]))
			if demands[i].Tenant == tenantNo(1) {
				results[i] = store.Result{Err: fault}
			}
		}
		return nil
	}), noLedger{})
	defer r.Close()
	b := r.servers.first
	for n, tenants := range [][]int{{1, 2}, {3}, {1}, {2}} {
		u := unansweredBatch{number: int64(n)}
		for _, tenant := range tenants {
			u.demands = append(u.demands, store.Demand{Request: requestOf(tenantNo(tenant), 10, 100)})
		}
		b.unanswered.keep(u)
	}
	for _, want := range []string{"[0:1 0:2 1:3 2:1 3:2]", "[0:1 2:1]"} {
		sent = nil
		if b.sendAgain() != nil || fmt.Sprint(sent) != want {
			t.Errorf("sent %v, want %s", sent, want)
		}
	}
	fault = &net.OpError{Op: "read", Err: context.DeadlineExceeded}
	sent = nil
	if b.sendAgain() == nil || fmt.Sprint(sent) != "[0:1]" || len(b.unanswered.batches) != 2 {
		t.Errorf("after a timeout: sent %v, %d batches are kept", sent, len(b.unanswered.batches))
	}
}

// owing is a ledger that has one unreported request of each record.
type owing struct{ noLedger }

func (owing) Collect(d *store.Demand) { d.Unreported = quota.Use{Minute: 1} }

// A request whose batch gets no answer is decided without Redis. So only what the batch reported is
// sent again, without a demand for the request.
func TestOnlyReportsAreSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []store.Demand
		r := newOver(storeFunc(func(_ int64, demands []store.Demand, _ []store.Result) error {
			if demands[0].Tenant == tenantNo(1) { // no probe
				sent = append(sent, demands...)
			}
			if demands[0].Joined {
				return &net.OpError{Op: "read", Err: context.DeadlineExceeded}
			}
			return nil
		}), owing{})
		defer r.Close()
		c := callOf(tenantNo(1), 60, 100)
		c.Key, c.Cap = id.Key{1}, plan.Limits{Minute: 10}
		_, outcome := r.Take(c)
		must.Equal(t, outcome, Undecided, "the outcome")
		time.Sleep(probeInterval)
		synctest.Wait()
		report := quota.Use{Minute: 1}
		must.Equal(t, fmt.Sprint(sent), fmt.Sprint([]store.Demand{
			{Request: c.Own(), Want: 1, Joined: true, Unreported: report},
			{Request: c.Request, Want: 1, Unreported: report},
			{Request: c.Own(), Unreported: report},
			{Request: c.Request, Unreported: report},
		}), "the demands")
	})
}

// Each master of a cluster has its own clock. The masters' batches alternate, and no clock moves
// because of another one.
func TestClocksOfMasters(t *testing.T) {
	const tenants, ahead = 20, time.Hour
	var r *Decider
	aheadOf := func(tenant id.Tenant) time.Duration {
		if r.servers.of(tenant) != r.servers.of(tenantNo(0)) {
			return ahead
		}
		return 0
	}
	r = newCluster(t, storeFunc(func(_ int64, demands []store.Demand, results []store.Result) error {
		for i := range demands {
			results[i].Verdict.At = r.env.hostClock().Add(aheadOf(demands[i].Tenant))
		}
		return nil
	}), func() []redis.ClusterSlot {
		return []redis.ClusterSlot{slotsFrom(0, 8191, 1), slotsFrom(8192, 16383, 2)}
	})
	others := 0
	for n := range 3 * tenants {
		tenant := tenantNo(n % tenants)
		if _, outcome := r.Take(callOf(tenant, 60, 100)); outcome != Decided {
			t.Fatalf("outcome %d", outcome)
		}
		want := aheadOf(tenant)
		others += int(want / ahead)
		if d := r.Now(tenant).Sub(r.env.hostClock()); (d - want).Abs() > time.Minute {
			t.Errorf("tenant %d: the clock of its master is ahead by %v, want %v", n%tenants, d, want)
		}
	}
	if others == 0 || others == 3*tenants {
		t.Errorf("%d of %d tenants are on the other master: the test shows nothing", others/3, tenants)
	}
	if skew := r.Skew(time.Now()); (skew - ahead).Abs() > time.Minute {
		t.Errorf("a skew of %v, want the largest, %v", skew, ahead)
	}
}

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

// A server evicts records, so whatever it is told shows a loss. The gateway tells it everything
// again and again, but mostly leaves it alone.
func TestServerThatEvicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const trip, lasting = 100 * time.Millisecond, 5 * time.Minute
		var told atomic.Int64
		r := newOver(storeFunc(func(_ int64, demands []store.Demand, results []store.Result) error {
			time.Sleep(trip)
			if told.Add(1); len(demands) > 256 {
				t.Errorf("a trip with %d demands", len(demands))
			}
			results[0].Lost = true
			return nil
		}), manyTenants{})
		defer r.Close()
		r.Start(always)
		r.Take(callOf(tenantNo(0), 60, 100))
		time.Sleep(lasting)
		if busy := time.Duration(told.Load()) * trip; busy > lasting/15 || busy < lasting/50 {
			t.Errorf("the server is told for %v of %v", busy, lasting)
		}
	})
}

// A record remembers its last batch, and the last seven with unreported requests: these are charged
// once, whatever is charged in between. It stays small.
func TestReportsAreRemembered(t *testing.T) {
	client, prefix := dialRedis(t)
	d := demandOf(tenantNo(1), 1000, 1000)
	d.Limits.Month = 9000
	d.MonthStarts = uint8(time.Now().UTC().AddDate(0, 0, 10).Day()%28 + 1) // it lasts for more than a week
	take := func(s *script, d store.Demand) int64 {
		t.Helper()
		var results [1]store.Result
		if err := s.DecideBatch(always, 1, []store.Demand{d}, results[:]); err != nil || results[0].Err != nil {
			t.Fatalf("%+v, %v", results[0], err)
		}
		return results[0].Verdict.Usages[quota.Day].Used
	}
	day := take(newScript(client, prefix, quota.Product, takeScript), d) - 1 + int64(instant.Of(time.Now()))/86_400_000
	report := store.Demand{
		Request:    d.Request,
		Unreported: quota.Use{Minute: 5, Day: quota.Period{Ends: day + 1, Used: 5}},
	}
	first := newScript(client, prefix, quota.Product, takeScript)
	used := take(first, report)
	for others := 1; others <= 7; others++ {
		must.Equal(t, take(first, report), used, "what is used when it is sent again after %d other reports", others-1)
		other := newScript(client, prefix, quota.Product, takeScript)
		take(other, report)
		used = take(other, report)
		if used != 1+5*(1+int64(others)) {
			t.Errorf("%d used after %d reports", used, others+1)
		}
	}
	must.Equal(t, take(first, report), used+5, "what is used when it is sent again after 7 other reports")
	must.Equal(t, client.PTTL(always, first.keyOf(d)).Val() > 7*24*time.Hour, true,
		"a record is kept until its month ends")
	bytes := client.MemoryUsage(always, first.keyOf(d)).Val()
	if bytes > 1400 {
		t.Errorf("a record takes %d bytes of memory", bytes)
	}
	t.Logf("figure: a record takes %d bytes of Redis's memory", bytes)
}

package redis

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/quota"
	"petgate/shared/testkit"
)

// unnumbered is a store that does not remember batches.
type unnumbered struct{ memory }

func (s unnumbered) DecideBatch(ctx context.Context, _ int64, demands []store.Demand, results []store.Result) error {
	return s.Decide(ctx, demands, results)
}

// A server leaves the cluster. Its batcher ends, with all its goroutines. A request that has found it before is still decided.
func TestBatcherOfAServerThatLeaves(t *testing.T) {
	r := newOver(unnumbered{newMemory(quota.Product, time.Now)}, noLedger{})
	var port atomic.Int32
	r.servers.cluster = redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: fmt.Sprint("127.0.0.1:", port.Load())}}}}, nil
	}})
	defer r.servers.cluster.Close()
	defer r.Close()
	running := func() int {
		all := make([]byte, 1<<20)
		text := string(all[:runtime.Stack(all, true)])
		return strings.Count(text, "redis.(*stack).calls(") + strings.Count(text, "redis.(*batcher).watch(")
	}
	was, q := running(), callOf(tenantNo(1), 60, 100)
	old := r.batcher(q.Tenant)
	take := func(used int64) {
		t.Helper()
		var v quota.Verdict
		if outcome := old.take(&q, &v); outcome != Decided || v.Usages[quota.Minute].Used != used {
			t.Errorf("outcome %d, %+v, want %d used", outcome, v, used)
		}
	}
	take(1)
	testkit.Eventually(t, 20*time.Second, "it has a batch and watch", func() bool { return running() == was+2 })
	port.Store(1)
	r.servers.cluster.ReloadState(background)
	testkit.Eventually(t, 20*time.Second, "its goroutines end", func() bool { return running() == was })
	take(2)
	if n := running() - was; n != 0 || len(r.servers.byMaster) != 0 {
		t.Errorf("%d goroutines and %d batchers are left", n, len(r.servers.byMaster))
	}
}

// storeFunc is a store that decides by a function.
type storeFunc func(number int64, demands []store.Demand, results []store.Result) error

func (f storeFunc) DecideBatch(_ context.Context, number int64, demands []store.Demand, results []store.Result) error {
	return f(number, demands, results)
}

func newOver(s Store, l Ledger) *Redis {
	return New(Config{Rule: quota.Product, Clock: time.Now, Metrics: NewMetrics(nil), Changed: func(bool, error) {}}, s, l)
}

// answers is a pipeline whose calls end with these errors.
type answers []error

func (answers) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (answers) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (a answers) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		for i, cmd := range cmds {
			cmd.SetErr(a[i])
		}
		return nil
	}
}

// All calls of a cluster's batch fail. If Redis may have executed one of them, the error of the batch says so, in any order.
func TestABatchOfWhichNothingIsDecided(t *testing.T) {
	refused, timeout := reply("OOM"), &net.OpError{Op: "read", Err: context.DeadlineExceeded}
	f := func(want bool, errs ...error) {
		t.Helper()
		client := redis.NewClient(&redis.Options{})
		defer client.Close()
		client.AddHook(answers(errs))
		s := newScript(client, "petgate:", quota.Product, takeScript)
		s.cluster = true
		demands := make([]store.Demand, len(errs))
		for i := range demands {
			demands[i] = store.Demand{Request: requestOf(tenantNo(i), 10, 100), Want: 1}
		}
		if err := s.DecideBatch(background, 1, demands, make([]store.Result, len(errs))); err == nil || isUnsure(err) != want {
			t.Errorf("%v: %v, want unsure: %t", errs, err, want)
		}
	}
	f(false, refused, refused)
	f(true, timeout, timeout)
	f(true, timeout, refused)
	f(true, refused, timeout)
}

// Two of three unanswered batches are sent again, although a slot of the first is served nowhere. Of that batch, only the demand of that
// slot is kept.
func TestUnansweredBatchesAreSentAgain(t *testing.T) {
	records := newMemory(quota.Product, time.Now)
	var sent []string
	var fault error = reply("CLUSTERDOWN Hash slot not served")
	r := newOver(storeFunc(func(number int64, demands []store.Demand, results []store.Result) error {
		_ = records.Decide(background, demands, results)
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
		u := unanswered{number: int64(n)}
		for _, tenant := range tenants {
			u.demands = append(u.demands, store.Demand{Request: requestOf(tenantNo(tenant), 10, 100)})
		}
		b.keep(u)
	}
	for _, want := range []string{"[0:1 0:2 1:3 2:1 3:2]", "[0:1 2:1]"} {
		if sent = nil; b.sendAgain() != nil || fmt.Sprint(sent) != want {
			t.Errorf("sent %v, want %s", sent, want)
		}
	}
	fault = &net.OpError{Op: "read", Err: context.DeadlineExceeded}
	if sent = nil; b.sendAgain() == nil || fmt.Sprint(sent) != "[0:1]" || len(b.unanswered) != 2 {
		t.Errorf("after a timeout: sent %v, %d batches are kept", sent, len(b.unanswered))
	}
}

// Each master of a cluster has its own clock. The masters' batches alternate, and no clock moves because of another one.
func TestClocksOfMasters(t *testing.T) {
	const tenants, ahead = 20, time.Hour
	master := func(r *Redis, n int) *redis.Client {
		m, err := r.servers.cluster.MasterForKey(background, "{"+tenantNo(n).String()+"}")
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	var r *Redis
	r = newOver(storeFunc(func(_ int64, demands []store.Demand, results []store.Result) error {
		for i := range demands {
			results[i].Verdict.At = r.now()
			if r.batcher(demands[i].Tenant) != r.batcher(tenantNo(0)) {
				results[i].Verdict.At = r.now().Add(ahead)
			}
		}
		return nil
	}), noLedger{})
	r.servers.cluster = redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{
			{End: 8191, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:1"}}},
			{Start: 8192, End: 16383, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:2"}}},
		}, nil
	}})
	defer r.servers.cluster.Close()
	defer r.Close()
	others := 0
	for range 3 {
		for n := range tenants {
			if _, outcome := r.Take(callOf(tenantNo(n), 60, 100)); outcome != Decided {
				t.Fatalf("outcome %d", outcome)
			}
			want := time.Duration(0)
			if master(r, n) != master(r, 0) {
				want = ahead
				others++
			}
			if d := r.Now(tenantNo(n)).Sub(r.now()); (d - want).Abs() > time.Minute {
				t.Errorf("tenant %d: the clock of its master is ahead by %v, want %v", n, d, want)
			}
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

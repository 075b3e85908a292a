package quotas

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// A busy slot moves to another node. The move stops half-way: one record of the slot has moved, another one has not, a third is new. Then it
// is finished, and at last no node serves the slot: a request waits for the budget. Redis keeps deciding, but for then, and the other tenants
// notice nothing.
func TestInterruptedReshard(t *testing.T) {
	t.Parallel()
	servers := testkit.RedisClusterOf(t, 3, 0, "--cluster-require-full-coverage", "no")
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.URL)
	}
	fleet, log := startFleet(t, 2, Config{RedisURL: strings.Join(urls, ","), Budget: redisBudget})
	var degraded, requests atomic.Int64
	ctx, stop := context.WithCancel(background)
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
					t.Fatalf("%s, record %d: degraded %t, %d used, want %d; log %s", when, since, isDegraded, n, used[since], log)
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
		ids[i] = nodes[i].ClusterMyID(background).Val()
		if nodes[i].Exists(background, "petgate:"+key).Val() == 1 {
			from, to = i, (i+1)%len(servers)
		}
	}
	do := func(node int, args ...any) {
		t.Helper()
		must.Do(t, nodes[node].Do(background, args...).Err())
	}
	slot := nodes[0].ClusterKeySlot(background, key).Val()
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
	t.Logf("figure: a slot moves: a request of that slot waits for %v at most, and for %v, the budget here, if no node serves the slot; %d of %d requests of others were decided without Redis",
		slowest.Round(time.Millisecond), unserved.Round(time.Millisecond), degraded.Load(), requests.Load())
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

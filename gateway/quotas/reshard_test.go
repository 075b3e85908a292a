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
// is finished, and at last no node serves the slot. Redis keeps deciding, but for then, and the other tenants notice nothing.
func TestInterruptedReshard(t *testing.T) {
	t.Parallel()
	servers := testkit.RedisClusterOf(t, 3, 0, "--cluster-require-full-coverage", "no")
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.URL)
	}
	fleet, log := startFleet(t, 2, Config{RedisURL: strings.Join(urls, ","), Budget: 200 * time.Millisecond})
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
	var slowest time.Duration // request of the slot
	take := func(since instant.Millis) (degraded bool, used int64) {
		began := time.Now()
		v := mustTake(t, fleet[0], resetAt(asking(1, 100_000), since))
		slowest = max(slowest, time.Since(began))
		return v.Degraded, v.Usages[quota.Day].Used
	}
	var used [3]int64
	takeOfAll := func(when string, records, times int) {
		t.Helper()
		for range times {
			for since := range records {
				used[since]++
				if isDegraded, n := take(instant.Millis(since)); isDegraded || n != used[since] {
					t.Fatalf("%s, record %d: degraded %t, %d used, want %d", when, since, isDegraded, n, used[since])
				}
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
	moving := slowest

	do(to, "CLUSTER", "DELSLOTS", slot)
	for range 20 {
		if isDegraded, _ := take(0); !isDegraded {
			t.Error("Redis decides a tenant whose slot nobody serves")
		}
	}
	do(to, "CLUSTER", "ADDSLOTS", slot)
	testkit.Eventually(t, 5*time.Second, "Redis decides again", func() bool {
		isDegraded, _ := take(0)
		return !isDegraded
	})
	stop()
	all.Wait()
	t.Logf("figure: a slot moves: a request of that slot waits for %v at most, and for %v if no node serves the slot; %d of %d requests of others were decided without Redis",
		moving.Round(time.Millisecond), slowest.Round(time.Millisecond), degraded.Load(), requests.Load())
	if degraded.Load() > 0 || strings.Contains(log.String(), "without Redis") || slowest > time.Second {
		t.Errorf("%d requests of other tenants were decided without Redis, the slowest request took %v; log %s", degraded.Load(), slowest, log)
	}
}

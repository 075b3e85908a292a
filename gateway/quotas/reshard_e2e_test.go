//go:build e2e

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
)

// A reshard is interrupted in a busy slot: one record of the slot has moved, another one has not, a third is new. Then no node serves the
// slot. The other tenants notice neither.
func TestInterruptedReshard(t *testing.T) {
	servers := testkit.RedisClusterOf(t, 3, 0, "--cluster-require-full-coverage", "no")
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.URL)
	}
	fleet, log := startFleet(t, 2, Config{RedisURL: strings.Join(urls, ","), Budget: 200 * time.Millisecond})
	moving := func(since instant.Millis) Request {
		r := asking(1, 100_000)
		r.Since = since
		return r
	}
	var degraded, requests atomic.Int64
	var slowest atomic.Int64 // request of the slot
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
	take := func(since instant.Millis) (degraded bool, used int64) {
		began := time.Now()
		v := mustTake(t, fleet[0], moving(since))
		slowest.Store(max(slowest.Load(), int64(time.Since(began))))
		return v.Degraded, v.Usages[quota.Day].Used
	}
	take(0)
	take(1)
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
	must := func(c *goredis.Client, args ...any) {
		t.Helper()
		if err := c.Do(background, args...).Err(); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
	slot := nodes[0].ClusterKeySlot(background, key).Val()
	must(nodes[to], "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[from])
	must(nodes[from], "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[to])
	host, port, _ := net.SplitHostPort(servers[to].Addr)
	must(nodes[from], "MIGRATE", host, port, "petgate:"+key+":1", 0, 5000)
	for n := range int64(100) {
		for since := range instant.Millis(3) { // those of 2 are new
			want := n + 1
			if since < 2 {
				want++
			}
			if isDegraded, used := take(since); isDegraded || used != want {
				t.Fatalf("request %d of record %d: degraded %t, %d used, want %d", n, since, isDegraded, used, want)
			}
		}
	}
	half := time.Duration(slowest.Swap(0))

	must(nodes[from], "CLUSTER", "SETSLOT", slot, "STABLE")
	must(nodes[to], "CLUSTER", "SETSLOT", slot, "STABLE")
	must(nodes[from], "CLUSTER", "DELSLOTS", slot)
	for range 20 {
		if isDegraded, _ := take(0); !isDegraded {
			t.Error("Redis decides a tenant whose slot nobody serves")
		}
	}
	nowhere := time.Duration(slowest.Load())
	must(nodes[from], "CLUSTER", "ADDSLOTS", slot)
	testkit.Eventually(t, 5*time.Second, "Redis decides again", func() bool {
		isDegraded, _ := take(0)
		return !isDegraded
	})
	stop()
	all.Wait()
	t.Logf("figure: a reshard is interrupted: a request of that slot waits for %v at most, and for %v if no node serves the slot; %d of %d requests of others were decided without Redis",
		half.Round(time.Millisecond), nowhere.Round(time.Millisecond), degraded.Load(), requests.Load())
	if degraded.Load() > 0 || strings.Contains(log.String(), "without Redis") || max(half, nowhere) > time.Second {
		t.Errorf("%d requests of other tenants were decided without Redis, the slowest request took %v; log %s", degraded.Load(), max(half, nowhere), log)
	}
}

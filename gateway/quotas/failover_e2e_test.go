//go:build e2e

package quotas

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/instant"
	"petgate/shared/testkit"
)

// dialNode connects to one Redis server.
func dialNode(t *testing.T, addr string) *goredis.Client {
	c := goredis.NewClient(&goredis.Options{Addr: addr, MaxRetries: -1})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// failOver kills a master under load. It checks that each gateway lets Redis decide again soon after another server has taken over, that
// tenants of other servers notice nothing, and that gateways which refuse in an outage admit no request above the limit.
func failOver(t *testing.T, urls string, kill func(), isOver func() bool, isAffected func(r store.Request) bool) {
	const gateways, tenants, limit = 3, 30, 40
	shares, _ := startFleet(t, gateways, Config{RedisURL: urls, Budget: time.Second})
	exact, _ := startFleet(t, gateways, Config{RedisURL: urls, Prefix: "exact:", Budget: time.Second, OnOutage: Refuse})
	var admitted [tenants]atomic.Int64
	var spared atomic.Int64 // tenants of other servers that were decided without Redis
	affected := 0
	var isSpared [tenants]bool
	for n := range tenants {
		if isSpared[n] = !isAffected(asking(n, limit)); !isSpared[n] {
			affected++
		}
	}
	began := time.Now()
	ctx, stop := context.WithCancel(background)
	var all sync.WaitGroup
	for i := range gateways {
		all.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				if v, err := exact[i].Take(asking(n%tenants, limit)); err == nil {
					admitted[n%tenants].Add(v.Granted)
				}
				if v := mustTake(t, shares[i], asking(n%tenants, 100_000)); v.Degraded && isSpared[n%tenants] {
					spared.Add(1)
				}
				<-time.After(time.Millisecond)
			}
		})
	}
	testkit.Eventually(t, 20*time.Second, "the load is under way", func() bool { return admitted[tenants-1].Load() > 20 })
	killed := time.Now()
	kill()
	testkit.Eventually(t, time.Minute, "another server takes over", isOver)
	over := time.Now()
	testkit.Eventually(t, 5*time.Second, "each gateway lets Redis decide", func() bool {
		for _, g := range append(shares, exact...) {
			if g.Mode() != modeShared {
				return false
			}
			for n := range tenants {
				if v, err := g.Take(asking(1000+n, 100_000)); err != nil || v.Degraded {
					return false
				}
			}
		}
		return true
	})
	again := time.Since(over)
	<-time.After(time.Second)
	stop()
	all.Wait()
	most := int64(0)
	for i := range admitted {
		most = max(most, admitted[i].Load())
	}
	t.Logf("figure: a master is killed, %d of %d tenants are on it: another server takes over after %v, and %v later Redis decides at each of %d gateways; "+
		"with refuse, at most %d admitted of %d", affected, tenants, over.Sub(killed).Round(time.Millisecond), again.Round(time.Millisecond), 2*gateways, most, limit)
	if time.Since(began) > time.Minute {
		t.Error("the run took longer than a window: the test shows nothing")
	}
	if most != limit || affected == 0 {
		t.Errorf("%d admitted, want %d; %d tenants were on the master", most, limit, affected)
	}
	if n := spared.Load(); n > 0 {
		t.Errorf("%d requests of tenants on other servers were decided without Redis", n)
	}
}

// One of three masters of a cluster is killed, and its replica takes over.
func TestClusterFailOver(t *testing.T) {
	servers := testkit.RedisClusterOf(t, 3, 3, "--cluster-require-full-coverage", "no")
	var urls, addrs []string
	for _, s := range servers {
		urls, addrs = append(urls, s.URL), append(addrs, s.Addr)
	}
	cluster := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: addrs})
	defer cluster.Close()
	replica := dialNode(t, servers[3].Addr)
	failOver(t, strings.Join(urls, ","), func() { servers[0].Kill(t) }, func() bool {
		return strings.Contains(replica.Info(background, "replication").Val(), "role:master")
	}, func(r store.Request) bool {
		master, err := cluster.MasterForKey(background, "{"+r.Tenant.String()+"}")
		if err != nil {
			t.Fatal(err)
		}
		return master.Options().Addr == servers[0].Addr
	})
}

// Sentinel promotes the replica of a master that is killed.
func TestSentinelFailOver(t *testing.T) {
	master, second := testkit.StartRedis(t), testkit.StartRedis(t)
	host, port, _ := net.SplitHostPort(master.Addr)
	replica := dialNode(t, second.Addr)
	if err := replica.ReplicaOf(background, host, port).Err(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 20*time.Second, "the replica is connected", func() bool {
		return strings.Contains(replica.Info(background, "replication").Val(), "master_link_status:up")
	})
	var sentinels []string
	for range 3 {
		sentinels = append(sentinels, startSentinel(t, host, port))
	}
	testkit.Eventually(t, 30*time.Second, "the Sentinels know one another", func() bool {
		for _, addr := range sentinels {
			c := goredis.NewSentinelClient(&goredis.Options{Addr: addr})
			others, err := c.Sentinels(background, "main").Result()
			replicas, errOfReplicas := c.Replicas(background, "main").Result()
			_ = c.Close()
			if err != nil || errOfReplicas != nil || len(others) != 2 || len(replicas) != 1 {
				return false
			}
		}
		return true
	})
	url := "redis+sentinel://" + strings.Join(sentinels, ",") + "/main"
	l := openQuotas(t, Config{RedisURL: url, Budget: redisBudget}).(*Shared)
	if s := l.redis.Servers(background); len(s) != 1 || s[0].Address != "the master of Sentinel" || s[0].Error != "" {
		t.Errorf("servers %+v, want one, the master of Sentinel", s)
	}
	failOver(t, url, func() { master.Kill(t) }, func() bool {
		return strings.Contains(replica.Info(background, "replication").Val(), "role:master")
	}, func(store.Request) bool { return true })
}

// startSentinel starts a Sentinel that watches a master, and returns its address.
func startSentinel(t *testing.T, host, port string) (addr string) {
	dir, own := t.TempDir(), testkit.FreePort(t)
	file := filepath.Join(dir, "sentinel.conf")
	text := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nsentinel monitor main %s %s 2\nsentinel down-after-milliseconds main 1500\n"+
		"sentinel failover-timeout main 10000\n", own, dir, host, port)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	sentinel := exec.Command("redis-server", file, "--sentinel")
	sentinel.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := sentinel.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = sentinel.Process.Kill()
		_ = sentinel.Wait()
	})
	return fmt.Sprintf("127.0.0.1:%d", own)
}

// A reshard is interrupted in a busy slot: one record of the slot has moved, another one has not, a third is new. Then no node serves the
// slot. The other tenants notice neither.
func TestInterruptedReshard(t *testing.T) {
	servers := testkit.RedisClusterOf(t, 3, 0, "--cluster-require-full-coverage", "no")
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.URL)
	}
	fleet, log := startFleet(t, 2, Config{RedisURL: strings.Join(urls, ","), Budget: 200 * time.Millisecond})
	moving := func(since instant.Millis) store.Request {
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
		return v.Degraded, v.Day.Used
	}
	take(0)
	take(1)
	key := "{" + tenant(1).String() + "}"
	nodes, ids := make([]*goredis.Client, len(servers)), make([]string, len(servers))
	from, to := 0, 1
	for i, s := range servers {
		nodes[i] = dialNode(t, s.Addr)
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

//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// refusing is a fleet that admits only what Redis has counted, with clients of some tenants at each
// gateway.
type refusing struct {
	*quotaSite
	began time.Time
	keys  []fleet.Key
	loads []*fleet.Load
	asked [failOverTenants]struct{ admitted, refused int } // beside the load
}

const (
	failOverTenants = 9
	failOverLimit   = 200
)

func startRefusing(t *testing.T, redis string) *refusing {
	r := &refusing{
		quotaSite: openQuotaSite(t, fleet.Spec{Redis: redis, Gateways: 3}, "GATEWAY_BAN_AFTER=0",
			"GATEWAY_LIMITS_ON_OUTAGE=refuse"),
	}
	for n := range failOverTenants {
		r.keys = append(r.keys,
			r.NewTenant(fmt.Sprint("t", n), "--minute", fmt.Sprint(failOverLimit), "--day", "100000"))
	}
	r.began = time.Now()
	for _, key := range r.keys {
		r.loads = append(r.loads, fleet.StartLoad(t, key.Token, 1, 100*time.Millisecond, r.Gateways...))
	}
	testkit.Eventually(t, 20*time.Second, "the load is under way", func() bool {
		return r.loads[failOverTenants-1].Count(200) > failOverLimit/8
	})
	return r
}

// await waits until each gateway decides for all tenants: they are admitted, or their limits are
// used up.
func (r *refusing) await() {
	r.t.Helper()
	testkit.Eventually(r.t, 5*time.Second, "Redis decides at each gateway", func() bool {
		for n, key := range r.keys {
			for _, g := range r.Gateways {
				switch got := g.Ask(key.Token); {
				case got.Status == 200:
					r.asked[n].admitted++
				case got.Code() != "minute_quota_exceeded":
					r.asked[n].refused++
					return false
				}
			}
		}
		return true
	})
}

// judge waits until all limits are used up. No tenant got more than its limit, or less by more than
// Redis may have charged to requests that were refused. It returns how many requests of each tenant
// were refused because Redis did not decide.
func (r *refusing) judge() (refused []int) {
	r.t.Helper()
	for n, l := range r.loads {
		testkit.Eventually(r.t, fleet.ReplyWithin, "the limit is used up", func() bool { return l.Count(429) > 0 })
		l.End()
		refused = append(refused, l.Count(503)+r.asked[n].refused)
		if all := l.Count(200) + r.asked[n].admitted; all > failOverLimit || all < failOverLimit-refused[n] {
			r.t.Errorf("tenant %d: %d admitted, limit %d; %d were refused without Redis", n, all, failOverLimit,
				refused[n])
		}
	}
	if took := time.Since(r.began); took > 59*time.Second {
		r.t.Errorf("the run took %v, longer than a window: the test shows nothing", took)
	}
	return refused
}

// failOver kills a master. It returns when its replica had taken over, and how much later Redis
// decided again.
func (r *refusing) failOver(master, replica *testkit.Server) (over, again time.Duration) {
	r.t.Helper()
	c := redis.NewClient(&redis.Options{Addr: replica.Addr})
	defer c.Close()
	began := time.Now()
	master.Kill(r.t)
	testkit.Eventually(r.t, time.Minute, "the replica takes over", func() bool {
		return strings.Contains(c.Info(context.Background(), "replication").Val(), "role:master")
	})
	over = time.Since(began)
	r.await()
	return over.Round(time.Millisecond), (time.Since(began) - over).Round(time.Millisecond)
}

// One of three masters of a cluster is killed, and its replica takes over. Its tenants are refused
// until then, the others are not.
func TestGatewaysAndAClusterFailOver(t *testing.T) {
	t.Parallel()
	servers := testkit.RedisClusterOf(t, 3, 3, "--cluster-require-full-coverage", "no")
	r := startRefusing(t, urlsOf(servers))
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{servers[0].Addr}})
	defer cluster.Close()
	var affected []bool
	counts := map[bool]int{}
	for _, key := range r.keys {
		master := must.Get[*redis.Client](t)(cluster.MasterForKey(context.Background(), "{"+key.TenantID+"}"))
		affected = append(affected, master.Options().Addr == servers[0].Addr)
		counts[affected[len(affected)-1]]++
	}
	over, again := r.failOver(servers[0], servers[3])
	sums := map[bool]int{}
	for n, refused := range r.judge() {
		sums[affected[n]] += refused
	}
	t.Logf(
		"figure: a master of a cluster is killed; its replica takes over after %v, and %v later Redis decides at each of %d gateways. "+
			"Refused meanwhile: %d requests of its %d tenants, %d of the %d others",
		over,
		again,
		len(r.Gateways),
		sums[true],
		counts[true],
		sums[false],
		counts[false],
	)
	switch {
	case counts[true] == 0 || counts[false] == 0:
		t.Logf("%d of %d tenants are on the master: this run shows less", counts[true], failOverTenants)
	case sums[false]*counts[true]*2 > sums[true]*counts[false]:
		t.Error("tenants of other masters are refused at least half as often")
	}
}

// urlsOf returns the URLs of servers as a setting.
func urlsOf(servers []*testkit.Server) string {
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.URL)
	}
	return strings.Join(urls, ",")
}

// Sentinel promotes the replica of a master that is killed.
func TestGatewaysAndASentinelFailOver(t *testing.T) {
	t.Parallel()
	master, second := testkit.StartRedis(t), testkit.StartRedis(t)
	r := startRefusing(t, "redis+sentinel://"+strings.Join(testkit.StartSentinels(t, master, second), ",")+"/main")
	if about := r.Gateways[0].AdminPage(t, "/about"); !strings.Contains(about, "the master of Sentinel") {
		t.Errorf("the server is not called the master of Sentinel: %s", about)
	}
	over, again := r.failOver(master, second)
	r.judge()
	t.Logf(
		"figure: Sentinel promotes a replica %v after its master is killed, and %v later Redis decides at each of %d gateways",
		over, again, len(r.Gateways),
	)
}

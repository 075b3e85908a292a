package redis

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"

	"petgate/gateway/quotas/store"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// On a cluster of three masters, each master has its own batcher. The loss of one master does not
// affect the tenants of the others.
func TestCluster(t *testing.T) {
	t.Parallel()
	r := open(t, Config{URL: strings.Join(testkit.RedisCluster(t, 3), ",")})
	used := map[*batcher]int{}
	const tenants, requests, clients = 60, 30, 24
	var next atomic.Int64
	var granted [tenants]atomic.Int64
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for n := next.Add(1); n <= tenants*requests; n = next.Add(1) {
				i := int(n) % tenants
				v, outcome := r.Take(callOf(tenantNo(i), 10, 1000))
				if outcome != Decided {
					t.Errorf("tenant %d: outcome %d", i, outcome)
				}
				granted[i].Add(v.Granted)
			}
		})
	}
	all.Wait()
	for i := range granted {
		used[r.servers.of(tenantNo(i))]++
		must.Equal(t, granted[i].Load(), 10, "how many requests of tenant %d are admitted", i)
	}
	if len(used) != 3 || r.IsDown() {
		t.Errorf("%d masters serve tenants, down: %t", len(used), r.IsDown())
	}
	for b := range used {
		must.Equal(t, r.servers.of(b.probing) == b, true, "whether a batcher probes its own server")
	}
	for n := range 12 {
		answer, err := r.Allow(always, "failed:203.0.113.7", redis_rate.PerMinute(10))
		if err != nil || (answer.Allowed > 0) != (n < 10) ||
			r.client.Exists(always, "rate:petgate:failed:203.0.113.7").Val() != 1 {
			t.Errorf("failure %d: %+v, %v", n, answer, err)
		}
	}

	lost := r.servers.of(tenantNo(0))
	_ = lost.ask(func() error { return errors.New("lost") })
	for i := range 60 {
		q := store.Request{Name: store.Name{Tenant: tenantNo(i)}, Limits: generous}
		_, outcome := r.Take(store.Call{Request: q})
		down := r.IsDownFor(q.Tenant)
		if onLost := r.servers.of(q.Tenant) == lost; (onLost != (outcome == Undecided) || onLost != down) &&
			lost.down.Load() {
			t.Errorf("tenant %d, on the lost master %t: outcome %d, down for it %t", i, onLost, outcome, down)
		}
		_, err := r.Allow(always, q.Tenant.String(), redis_rate.PerMinute(10))
		if onLost := r.servers.ofKey("rate:petgate:"+q.Tenant.String()) == lost; onLost != errors.Is(err, errDown) &&
			lost.down.Load() {
			t.Errorf("bucket %d, on the lost master %t: %v", i, onLost, err)
		}
	}
	testkit.Eventually(t, 20*time.Second, "the server is back", func() bool { return !r.IsDown() })
	r.client.RPush(always, "rate:"+r.cfg.Prefix+"list", "a")
	if answer, err := r.Allow(always, "list", redis_rate.PerMinute(10)); err == nil {
		t.Errorf("a bucket that Redis cannot read has %+v", answer)
	}
}

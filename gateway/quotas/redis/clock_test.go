package redis

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"petgate/gateway/quotas/store"
)

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

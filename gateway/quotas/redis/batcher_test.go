package redis

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
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

package redis

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"petgate/gateway/quotas/store"
	"petgate/gateway/quotas/store/storetest"
	"petgate/shared/core/quota"
	"petgate/shared/testkit"
)

// heldStore decides a batch when the test says so.
type heldStore struct {
	records *store.Memory
	mu      sync.Mutex
	held    []heldBatch
}

type heldBatch struct {
	tenants []byte // the last byte of each
	decide  chan struct{}
}

func (s *heldStore) DecideBatch(ctx context.Context, _ int64, demands []store.Demand, results []store.Result) error {
	b := heldBatch{decide: make(chan struct{})}
	for _, d := range demands {
		b.tenants = append(b.tenants, d.Tenant[9])
	}
	s.mu.Lock()
	s.held = append(s.held, b)
	s.mu.Unlock()
	<-b.decide
	return s.records.Decide(ctx, demands, results)
}

// unnumbered is a store that does not remember batches.
type unnumbered struct{ *store.Memory }

func (s unnumbered) DecideBatch(ctx context.Context, _ int64, demands []store.Demand, results []store.Result) error {
	return s.Decide(ctx, demands, results)
}

// underWay returns the tenants of the batches under way, in the order in which they were sent.
func (s *heldStore) underWay() (all [][]byte) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.held {
		all = append(all, b.tenants)
	}
	return all
}

// decide decides the first batch under way.
func (s *heldStore) decide() {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.held[0].decide)
	s.held = s.held[1:]
}

// Requests arrive while a leader is about to gather its batch. Those whose tenants are under way do not join it: they wait for the
// batch of their tenant, in their order.
func TestALeaderLeavesTenantsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &heldStore{records: store.NewMemory(quota.Product, time.Now)}
		r := New(Config{Rule: quota.Product, Clock: time.Now, Metrics: NewMetrics(nil), Lanes: 2, Changed: func(bool, error) {}}, s, noLedger{})
		defer r.Close()
		b := r.servers.first
		tenants := []int{1, 2, 1, 3, 2, 1} // of the requests
		used := make([]int64, len(tenants))
		var all sync.WaitGroup
		ask := func(requests ...int) {
			b.mu.Lock() // until all of them have arrived
			defer b.mu.Unlock()
			for _, i := range requests {
				w := b.waiters.Get().(*waiter)
				w.call = storetest.Call(storetest.Tenant(tenants[i]), 60, 100)
				b.enqueue(w)
				all.Go(func() {
					var v quota.Verdict
					b.await(w, &v)
					used[i] = v.Usages[quota.Minute].Used
				})
			}
		}
		is := func(want string) {
			t.Helper()
			if got := fmt.Sprint(s.underWay()); got != want {
				t.Errorf("under way: %s, want %s", got, want)
			}
		}
		ask(0)
		is("[[1]]")
		ask(1, 2, 3, 4, 5)
		is("[[1] [2 3]]")
		s.decide()
		is("[[2 3] [1]]")
		s.decide()
		s.decide()
		all.Wait()
		if want := []int64{1, 1, 2, 1, 2, 3}; !slices.Equal(used, want) {
			t.Errorf("used %v, want %v", used, want)
		}
	})
}

// A server leaves the cluster. Its batcher ends, with all its goroutines. A request that has found it before is still decided.
func TestBatcherOfAServerThatLeaves(t *testing.T) {
	r := newOver(unnumbered{store.NewMemory(quota.Product, time.Now)}, noLedger{})
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
	was, q := running(), storetest.Call(storetest.Tenant(1), 60, 100)
	old := r.batcher(q.Tenant)
	take := func(used int64) {
		t.Helper()
		var v quota.Verdict
		if outcome := old.take(&q, &v); outcome != Decided || v.Usages[quota.Minute].Used != used {
			t.Errorf("outcome %d, %+v, want %d used", outcome, v, used)
		}
	}
	take(1)
	testkit.Eventually(t, 20*time.Second, "it has a lane and watch", func() bool { return running() == was+2 })
	port.Store(1)
	r.servers.cluster.ReloadState(background)
	testkit.Eventually(t, 20*time.Second, "its goroutines end", func() bool { return running() == was })
	take(2)
	if n := running() - was; n != 0 || len(r.servers.byMaster) != 0 {
		t.Errorf("%d goroutines and %d batchers are left", n, len(r.servers.byMaster))
	}
}

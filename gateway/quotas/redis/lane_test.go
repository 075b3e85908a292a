package redis

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"petgate/gateway/quotas/store"
	"petgate/gateway/quotas/store/storetest"
	"petgate/shared/core/quota"
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

func (s *heldStore) DecideBatch(ctx context.Context, _ Batch, demands []store.Demand, results []store.Result) error {
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

func (*heldStore) Reset(context.Context, store.Reset) error { return nil }

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
				w.request = storetest.Request(storetest.Tenant(tenants[i]), 60, 100)
				b.enqueue(w)
				all.Go(func() {
					var v quota.Verdict
					b.await(w, &v)
					used[i] = v.Minute.Used
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

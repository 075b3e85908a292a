package share

import (
	"sync"
	"testing"

	"petgate/shared/core/id"
)

func TestShares(t *testing.T) {
	s := New(2)
	one, other, far := id.Tenant{1}, id.Tenant{2}, id.Tenant{len(id.Tenant{}) - 1: 7} // the first two are in one shard
	f := func(tenant id.Tenant, want bool) {
		t.Helper()
		if got := s.Take(tenant); got != want {
			t.Errorf("%s takes: %t, want %t", tenant, got, want)
		}
	}
	f(one, true)
	f(one, true)
	f(one, false)
	f(other, true)
	f(far, true)
	s.Add(one) // also above the maximum
	s.Return(one)
	f(one, false)
	s.Return(one)
	f(one, true)
	for _, tenant := range []id.Tenant{one, one, other, far} {
		s.Return(tenant)
	}
	for tenant, n := range s.held.All() {
		t.Errorf("after all were returned, %s holds %d", tenant, n)
	}
}

// No tenant gets more than its maximum at a time.
func TestSharesOfManyGoroutines(t *testing.T) {
	const most, goroutines, times = 3, 8, 1000
	s := New(most)
	var mu sync.Mutex
	var holding int
	count := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		if holding += n; holding > most {
			t.Errorf("%d are held, want at most %d", holding, most)
		}
	}
	var running sync.WaitGroup
	for range goroutines {
		running.Go(func() {
			for range times {
				if s.Take(id.Tenant{1}) {
					count(1)
					count(-1)
					s.Return(id.Tenant{1})
				}
			}
		})
	}
	running.Wait()
}

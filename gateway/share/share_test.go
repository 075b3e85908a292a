package share

import (
	"testing"

	"petgate/shared/core/id"
	"petgate/shared/testkit/must"
)

// A tenant takes all but the last tenth. That is for tenants with less than an equal share, of
// those that hold something and one more.
func TestShares(t *testing.T) {
	s := New(21)
	one, other, third, far := id.Tenant{1}, id.Tenant{2}, id.Tenant{3}, id.Tenant{
		len(id.Tenant{}) - 1: 7,
	} // the first three are in one shard
	f := func(tenant id.Tenant, times, want int) {
		t.Helper()
		got := 0
		for range times {
			if s.Take(tenant) {
				got++
			}
		}
		must.Equal(t, got, want, "what %s takes", tenant)
	}
	f(one, 20, 18)
	f(other, 20, 21/3) // its share is one of three
	s.Return(one)
	f(one, 1, 0)
	f(third, 1, 1) // also above the maximum
	f(far, 1, 1)
	for tenant, n := range map[id.Tenant]int{one: 17, other: 7, third: 1, far: 1} {
		for range n {
			s.Return(tenant)
		}
	}
	for tenant, n := range s.held.All() {
		t.Errorf("after all were returned, %s holds %d", tenant, n)
	}
	if s.total.Load() != 0 || s.tenants.Load() != 0 {
		t.Errorf("after all were returned, %d are held by %d tenants", s.total.Load(), s.tenants.Load())
	}
	f(one, 20, 18)
	s = New(1)
	f(one, 2, 1)
	f(other, 2, 1) // a tenant that holds nothing always gets one
}

// Package share limits how much of something one tenant holds at a time, so that one tenant cannot
// keep the others out.
package share

import (
	"sync/atomic"

	"petgate/shared/core/id"
	"petgate/shared/sharded"
)

// Shares counts what each tenant holds of one thing. The last tenth is for tenants that hold less
// than an equal share: the whole divided among the tenants that hold something and one more. The
// methods are safe for concurrent use.
type Shares struct {
	max            int64
	total, tenants atomic.Int64
	held           *sharded.Map[id.Tenant, int64] // without zeros
}

// reservedPart is the part that tenants with little find free.
const reservedPart = 10

// New returns shares of max in all.
func New(max int) *Shares {
	last := func(t id.Tenant) byte { return t[len(t)-1] } // an ID is random
	return &Shares{max: int64(max), held: sharded.New[id.Tenant, int64](0, last)}
}

// Take takes one for the tenant, if the tenant may have one more. A tenant that holds nothing
// always gets one.
func (s *Shares) Take(t id.Tenant) bool {
	shard := s.held.Lock(t)
	defer shard.Unlock()
	n := shard.Entries[t]
	isScarce := s.total.Load() >= s.max-(s.max+reservedPart-1)/reservedPart
	if n > 0 && isScarce && n >= s.max/(s.tenants.Load()+1) {
		return false
	}
	if n == 0 {
		s.tenants.Add(1)
	}
	s.total.Add(1)
	shard.Entries[t] = n + 1
	return true
}

// Return gives back what Take has taken.
func (s *Shares) Return(t id.Tenant) {
	shard := s.held.Lock(t)
	defer shard.Unlock()
	s.total.Add(-1)
	if n := shard.Entries[t]; n > 1 {
		shard.Entries[t] = n - 1
	} else {
		s.tenants.Add(-1)
		delete(shard.Entries, t)
	}
}

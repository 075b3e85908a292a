// Package share limits how much of something one tenant holds at a time, so that one tenant cannot keep the others out.
package share

import (
	"math"

	"petgate/shared/core/id"
	"petgate/shared/sharded"
)

// Shares counts what each tenant holds of one thing. Its methods are safe for concurrent use.
type Shares struct {
	max  int
	held *sharded.Map[id.Tenant, int] // without zeros
}

// New returns shares of at most max for each tenant.
func New(max int) *Shares {
	return &Shares{max, sharded.New[id.Tenant, int](0, func(t id.Tenant) byte { return t[len(t)-1] })} // an ID is random
}

// Take takes one for the tenant, unless the tenant already holds its maximum.
func (s *Shares) Take(t id.Tenant) bool { return s.take(t, s.max) }

// Add takes one for the tenant, also above its maximum.
func (s *Shares) Add(t id.Tenant) { s.take(t, math.MaxInt) }

func (s *Shares) take(t id.Tenant, max int) bool {
	shard := s.held.Lock(t)
	defer shard.Unlock()
	n := shard.Entries[t]
	if n >= max {
		return false
	}
	shard.Entries[t] = n + 1
	return true
}

// Return gives back what Take or Add has taken.
func (s *Shares) Return(t id.Tenant) {
	shard := s.held.Lock(t)
	defer shard.Unlock()
	if n := shard.Entries[t]; n > 1 {
		shard.Entries[t] = n - 1
	} else {
		delete(shard.Entries, t)
	}
}

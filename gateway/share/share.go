// Package share limits how much of something one tenant holds at a time, so that one tenant cannot keep the others out.
package share

import (
	"math"
	"sync"

	"petgate/shared/core/id"
)

// 64 locks: requests of different tenants seldom wait for each other, and each map stays small.
const shards = 64

// Shares counts what each tenant holds of one thing. Its methods are safe for concurrent use.
type Shares struct {
	max    int
	shards [shards]shard
}

type shard struct {
	mu   sync.Mutex
	held map[id.Tenant]int // without zeros
	_    [48]byte          // gives each shard its own cache line
}

// New returns shares of at most max for each tenant.
func New(max int) *Shares {
	s := &Shares{max: max}
	for i := range s.shards {
		s.shards[i].held = make(map[id.Tenant]int)
	}
	return s
}

// A tenant's ID is random: any of its bytes spreads tenants evenly.
func (s *Shares) shard(t id.Tenant) *shard { return &s.shards[t[len(t)-1]%shards] }

// Take takes one for the tenant, unless the tenant already holds its maximum.
func (s *Shares) Take(t id.Tenant) bool { return s.shard(t).take(t, s.max) }

// Add takes one for the tenant, also above its maximum.
func (s *Shares) Add(t id.Tenant) { s.shard(t).take(t, math.MaxInt) }

func (s *shard) take(t id.Tenant, max int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.held[t]
	if n >= max {
		return false
	}
	s.held[t] = n + 1
	return true
}

// Return gives back what Take or Add has taken.
func (s *Shares) Return(t id.Tenant) {
	own := s.shard(t)
	own.mu.Lock()
	defer own.mu.Unlock()
	if n := own.held[t]; n > 1 {
		own.held[t] = n - 1
	} else {
		delete(own.held, t)
	}
}

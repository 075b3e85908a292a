// Package share limits how much of something one tenant holds at a time, so that one tenant cannot keep the others out.
package share

import (
	"sync"

	"petgate/shared/core/id"
)

// Shares counts what each tenant holds of one thing. Its methods are safe for concurrent use.
type Shares struct {
	max  int
	mu   sync.Mutex
	held map[id.Tenant]int // without zeros
}

// New returns shares of at most max for each tenant.
func New(max int) *Shares { return &Shares{max: max, held: make(map[id.Tenant]int)} }

// Take takes one for the tenant, unless the tenant already holds its maximum.
func (s *Shares) Take(t id.Tenant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[t] >= s.max {
		return false
	}
	s.held[t]++
	return true
}

// Add takes one for the tenant, also above its maximum.
func (s *Shares) Add(t id.Tenant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[t]++
}

// Return gives back what Take or Add has taken.
func (s *Shares) Return(t id.Tenant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[t]--; s.held[t] == 0 {
		delete(s.held, t)
	}
}

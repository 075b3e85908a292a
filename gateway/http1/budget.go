package http1

import "sync/atomic"

// Budget limits what all connections together use for one purpose: bytes of memory, or places. Its
// methods are safe for concurrent use.
type Budget struct {
	most int64
	used atomic.Int64
}

// NewBudget returns a budget of the given size.
func NewBudget(most int) *Budget { return &Budget{most: int64(most)} }

// IsTight reports whether more than half of the budget is used.
func (b *Budget) IsTight() bool { return b.used.Load() > b.most/2 }

// Used returns how much is taken.
func (b *Budget) Used() int64 { return b.used.Load() }

// Take takes n, and reports whether so much was left.
func (b *Budget) Take(n int) bool {
	if b.used.Add(int64(n)) > b.most {
		b.used.Add(-int64(n))
		return false
	}
	return true
}

// Give gives back what Take has taken.
func (b *Budget) Give(n int) { b.used.Add(-int64(n)) }

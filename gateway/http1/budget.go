package http1

import "sync/atomic"

// Budget limits the memory that all connections together use for one purpose. Its methods are safe for concurrent use.
type Budget struct {
	bytesMax int64
	used     atomic.Int64
}

// NewBudget returns a budget of the given number of bytes.
func NewBudget(bytesMax int) *Budget { return &Budget{bytesMax: int64(bytesMax)} }

// IsTight reports whether more than half of the budget is used.
func (b *Budget) IsTight() bool { return b.used.Load() > b.bytesMax/2 }

// Used returns how many bytes are taken.
func (b *Budget) Used() int64 { return b.used.Load() }

func (b *Budget) take(n int) bool {
	if b.used.Add(int64(n)) > b.bytesMax {
		b.used.Add(-int64(n))
		return false
	}
	return true
}

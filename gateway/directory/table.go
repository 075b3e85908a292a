package directory

import (
	"sync/atomic"
)

// list is an array that grows in place. Its elements never move, so references stay valid. One
// goroutine at a time may add; any number of goroutines may read, without locks.
type list[T any] struct {
	chunks atomic.Pointer[[]*[chunkLen]T]
	len    int // used only by the goroutine that adds
}

const chunkLen = 1024

// add adds an element. Readers must get its reference from an index or another atomic value.
func (l *list[T]) add() (ref uint32, item *T) {
	ref = uint32(l.len)
	if l.len%chunkLen == 0 {
		var chunks []*[chunkLen]T
		if known := l.chunks.Load(); known != nil {
			chunks = *known
		}
		chunks = append(chunks, new([chunkLen]T)) // readers of the old slice are not affected
		l.chunks.Store(&chunks)
	}
	l.len++
	return ref, l.at(ref)
}

func (l *list[T]) at(ref uint32) *T { return &(*l.chunks.Load())[ref/chunkLen][ref%chunkLen] }

// index finds references by hash: open addressing with linear probing, in a table that is replaced
// when it is three quarters full. Elements are never removed. One goroutine at a time may insert;
// any number of goroutines may search, without locks.
type index struct {
	slots atomic.Pointer[[]atomic.Uint32] // reference + 1; 0 is free. The length is a power of two
	used  int                             // used only by the goroutine that inserts
}

// reserve makes room for n references.
func (x *index) reserve(n int) {
	size := 16
	for size*3/4 < n {
		size *= 2
	}
	slots := make([]atomic.Uint32, size)
	x.slots.Store(&slots)
}

// find returns the reference with this hash for which same is true.
func (x *index) find(hash uint64, same func(ref uint32) bool) (ref uint32, ok bool) {
	slots := *x.slots.Load()
	mask := uint64(len(slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		slot := slots[i].Load()
		if slot == 0 {
			return 0, false
		}
		if same(slot - 1) {
			return slot - 1, true
		}
	}
}

// insert adds a new reference. Readers then see its element as it was when insert was called. When
// the table grows, hashOf returns the hashes of the earlier references.
func (x *index) insert(hash uint64, ref uint32, hashOf func(ref uint32) uint64) {
	slots := *x.slots.Load()
	if (x.used+1)*4 > len(slots)*3 {
		grown := make([]atomic.Uint32, 2*len(slots))
		for i := range slots {
			if slot := slots[i].Load(); slot != 0 {
				put(grown, hashOf(slot-1), slot)
			}
		}
		x.slots.Store(&grown)
		slots = grown
	}
	put(slots, hash, ref+1)
	x.used++
}

func put(slots []atomic.Uint32, hash uint64, slot uint32) {
	mask := uint64(len(slots) - 1)
	i := hash & mask
	for slots[i].Load() != 0 {
		i = (i + 1) & mask
	}
	slots[i].Store(slot)
}

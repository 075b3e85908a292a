// Package sharded is a map that many goroutines change at once: each key is in one of 64 shards
// with their own locks.
package sharded

import (
	"iter"
	"maps"
	"sync"
)

const (
	shards = 64
	// sweepFrom is how many entries a shard holds before it first looks for idle ones.
	sweepFrom = 64
)

// Map is a map in shards. Create it with New.
type Map[K comparable, V any] struct {
	hash   func(K) byte
	shards [shards]Shard[K, V]
}

// Shard is a part of a Map, or stands alone. Its lock guards its entries.
type Shard[K comparable, V any] struct {
	sync.Mutex
	Entries map[K]V // new keys are added by Put

	max, sweepAt int
	_            [32]byte // gives each shard its own cache line
}

// New returns an empty map. hash spreads the keys evenly. At most max entries are kept, rounded up
// to whole shards; 0 = no bound.
func New[K comparable, V any](max int, hash func(K) byte) *Map[K, V] {
	m := &Map[K, V]{hash: hash}
	for i := range m.shards {
		m.shards[i].Init((max + shards - 1) / shards)
	}
	return m
}

// Init prepares an empty shard. At most max entries are kept; 0 = no bound.
func (s *Shard[K, V]) Init(max int) { s.Entries, s.max, s.sweepAt = make(map[K]V), max, sweepFrom }

// Lock returns the shard of k, locked. The caller unlocks it.
func (m *Map[K, V]) Lock(k K) *Shard[K, V] {
	s := &m.shards[m.hash(k)%shards]
	s.Lock()
	return s
}

// Get returns the value of k; the zero value if there is none.
func (m *Map[K, V]) Get(k K) V {
	s := m.Lock(k)
	defer s.Unlock()
	return s.Entries[k]
}

// Shards returns all shards, none of them locked.
func (m *Map[K, V]) Shards() iter.Seq[*Shard[K, V]] {
	return func(yield func(*Shard[K, V]) bool) {
		for i := range m.shards {
			if !yield(&m.shards[i]) {
				return
			}
		}
	}
}

// All returns copies of all entries. No lock is held while the caller looks at them.
func (m *Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for s := range m.Shards() {
			s.Lock()
			entries := maps.Clone(s.Entries)
			s.Unlock()
			for k, v := range entries {
				if !yield(k, v) {
					return
				}
			}
		}
	}
}

// Put sets the value of k. Whenever the shard has doubled, and when it is full, entries for which
// idle is true are dropped first; nil: none is idle. If a full shard has none, arbitrary entries
// are dropped until a sixteenth is free. So a Put costs O(1) on average, and idle entries never
// outnumber the others by much. The caller holds the lock.
func (s *Shard[K, V]) Put(k K, v V, idle func(K, V) bool) {
	if _, known := s.Entries[k]; !known && len(s.Entries) >= s.sweepAt {
		s.evict(idle)
	}
	s.Entries[k] = v
}

func (s *Shard[K, V]) evict(idle func(K, V) bool) {
	if idle != nil {
		maps.DeleteFunc(s.Entries, idle)
	}
	s.sweepAt = max(sweepFrom, 2*len(s.Entries))
	if s.max == 0 {
		return
	}
	s.sweepAt = min(s.sweepAt, s.max)
	if len(s.Entries) < s.max {
		return
	}
	for k := range s.Entries { // map order is random
		if len(s.Entries) <= s.max-s.max/16-1 {
			return
		}
		delete(s.Entries, k)
	}
}

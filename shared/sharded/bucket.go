package sharded

import (
	"sync/atomic"
	"time"
)

// Buckets limit how often each key may do something. Every key has a bucket with Burst tokens. Take
// takes one, and one comes back in each Interval. Of a bucket, only the instant is kept at which it
// is full again. The methods are safe for concurrent use.
type Buckets[K comparable] struct {
	Burst    int
	Interval time.Duration

	fullAt *Map[K, time.Time]
	kept   atomic.Int64
}

// NewBuckets returns buckets that are full. At most max are kept, rounded up to whole shards. A key
// whose bucket was dropped has a full one again. hash spreads the keys evenly.
func NewBuckets[K comparable](burst int, interval time.Duration, max int, hash func(K) byte) *Buckets[K] {
	return &Buckets[K]{Burst: burst, Interval: interval, fullAt: New[K, time.Time](max, hash)}
}

// Take takes a token from the bucket of k, if there is one. It returns when the bucket is full
// again.
func (b *Buckets[K]) Take(k K, now time.Time) (fullAt time.Time, isAllowed bool) {
	shard := b.fullAt.Lock(k)
	defer shard.Unlock()
	fullAt = b.clamp(shard.Entries[k], now)
	if b.Tokens(fullAt, now) == 0 {
		shard.Entries[k] = fullAt // if the clock has stepped back, the wait begins now
		return fullAt, false
	}
	fullAt = fullAt.Add(b.Interval)
	b.put(shard, k, fullAt, now)
	return fullAt, true
}

// Lower takes tokens away, so that the bucket of k is full at fullAt, or later if that is so
// already. It returns when the bucket is full again.
func (b *Buckets[K]) Lower(k K, fullAt, now time.Time) time.Time {
	shard := b.fullAt.Lock(k)
	defer shard.Unlock()
	if was := b.clamp(shard.Entries[k], now); was.After(fullAt) {
		return was
	}
	fullAt = b.clamp(fullAt, now)
	b.put(shard, k, fullAt, now)
	return fullAt
}

// FullAt returns when the bucket of k is full again; now, if it is full.
func (b *Buckets[K]) FullAt(k K, now time.Time) time.Time { return b.clamp(b.fullAt.Get(k), now) }

// Tokens returns how many tokens a bucket has now that is full at fullAt.
func (b *Buckets[K]) Tokens(fullAt, now time.Time) int {
	return int((time.Duration(b.Burst)*b.Interval - fullAt.Sub(now)) / b.Interval)
}

// Since returns from when a bucket that is full at fullAt has so many tokens.
func (b *Buckets[K]) Since(fullAt time.Time, tokens int) time.Time {
	return fullAt.Add(-time.Duration(b.Burst-tokens) * b.Interval)
}

// Len returns how many buckets are kept.
func (b *Buckets[K]) Len() int { return int(b.kept.Load()) }

// clamp returns an instant at which a bucket may be full: no earlier than now, and no later than an
// empty one. It may be later if the clock has stepped back.
func (b *Buckets[K]) clamp(fullAt, now time.Time) time.Time {
	empty := now.Add(time.Duration(b.Burst) * b.Interval)
	switch {
	case fullAt.Before(now):
		return now
	case fullAt.After(empty):
		return empty
	}
	return fullAt
}

// put keeps a bucket. The caller holds the lock of its shard.
func (b *Buckets[K]) put(shard *Shard[K, time.Time], k K, fullAt, now time.Time) {
	before := len(shard.Entries)
	shard.Put(k, fullAt, func(_ K, fullAt time.Time) bool { return !fullAt.After(now) })
	b.kept.Add(int64(len(shard.Entries) - before))
}

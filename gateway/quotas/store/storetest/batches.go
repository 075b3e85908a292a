package storetest

import (
	"slices"
	"sync"
	"time"

	"petgate/gateway/quotas/store"
)

// Batches remembers the last batch of each lane, as gateway/quotas/redis/take.lua does. It is for stores that a test makes up. All
// methods are safe for concurrent use.
type Batches struct {
	mu    sync.Mutex
	lanes map[int]batch
}

type batch struct {
	number  int64
	results []store.Result // nil: the batch can no longer be decided
	at      time.Time
}

// batchKept is how long a batch is remembered.
const batchKept = time.Minute

// Reply is an error reply of Redis.
type Reply string

func (r Reply) Error() string { return string(r) }

// RedisError marks it as a reply.
func (Reply) RedisError() {}

// Answer answers a batch that is known, and every question: a negative number asks about a batch. It reports false if the batch is
// still to be decided. Number 0 is not remembered.
func (b *Batches) Answer(lane int, number int64, results []store.Result) (answered bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	last, this := b.lanes[lane], max(number, -number)
	if time.Since(last.at) >= batchKept {
		last = batch{}
	}
	switch {
	case number == 0 || number > last.number:
		return false, nil
	case this > last.number:
		last = batch{number: this}
	}
	b.remember(lane, last)
	switch {
	case this < last.number:
		return true, Reply("SUPERSEDED")
	case last.results == nil:
		return true, Reply("NOTDECIDED")
	}
	copy(results, last.results)
	return true, nil
}

// Remember remembers what a batch was granted.
func (b *Batches) Remember(lane int, number int64, results []store.Result) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if number > 0 {
		b.remember(lane, batch{number: number, results: slices.Clone(results)})
	}
}

func (b *Batches) remember(lane int, last batch) {
	if b.lanes == nil {
		b.lanes = map[int]batch{}
	}
	last.at = time.Now()
	b.lanes[lane] = last
}

// Forget forgets all batches.
func (b *Batches) Forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lanes = nil
}

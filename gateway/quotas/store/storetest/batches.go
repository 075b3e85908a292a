package storetest

import (
	"slices"
	"sync"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/quota"
)

// Batches remembers which batches charged each tenant's record, as gateway/quotas/redis/take.lua does. It is for stores that a test
// makes up. All methods are safe for concurrent use.
type Batches struct {
	mu      sync.Mutex
	records map[store.Name]charged
}

type charged struct {
	last, granted int64
	reports       []int64 // the last batches with unreported requests, at most reportsMax
}

const reportsMax = 7

// Reply is an error reply of Redis.
type Reply string

func (r Reply) Error() string { return string(r) }

// RedisError marks it as a reply.
func (Reply) RedisError() {}

// Decide lets decide decide the demands that were not decided under this number before. Number 0 is no number. Demands for which
// decide has set a verdict are remembered, even if it then returned an error.
func (b *Batches) Decide(
	number int64, demands []store.Demand, results []store.Result, decide func([]store.Demand, []store.Result) error,
) error {
	asked := slices.Clone(demands)
	b.mu.Lock()
	for i := range asked {
		before := b.records[asked[i].Name]
		if number != 0 && before.last == number {
			asked[i].Want = 0
		}
		if number != 0 && (before.last == number || slices.Contains(before.reports, number)) {
			asked[i].Spent = quota.Use{}
		}
	}
	b.mu.Unlock()
	err := decide(asked, results)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.records == nil {
		b.records = map[store.Name]charged{}
	}
	for i, d := range asked {
		v, c := &results[i].Verdict, b.records[d.Name]
		switch {
		case v.At == 0:
			continue
		case number != 0 && c.last == number:
			v.Granted = c.granted
			continue
		case d.Spent != (quota.Use{}):
			c.reports = append(c.reports, number)
			c.reports = c.reports[max(0, len(c.reports)-reportsMax):]
			c.last, c.granted = number, v.Granted
		case v.Granted > 0:
			c.last, c.granted = number, v.Granted
		}
		b.records[d.Name] = c
	}
	return err
}

// Forget forgets all batches.
func (b *Batches) Forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.records = nil
}

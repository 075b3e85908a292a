package directory

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
)

const (
	flushEvery   = 3 * time.Second
	usageRowsMax = 5000 // in one batch, so that transactions are short
	usageShards  = 32

	// The largest number of rows that wait for the database, about 40 MB. Further rows are dropped.
	usageBacklogMax = 200_000
)

// Usage is one request, as the statistics count it.
type Usage struct {
	Tenant  id.Tenant
	Key     id.Key
	Outcome string // one of a few constants
	// At is when the request was made. For a charged request, it is taken from the clock that decided on the quota, so the
	// usage of a day equals what the quota has charged on that day.
	At instant.Millis
}

// usage counts requests. A request takes a short lock on one of many shards.
type usage struct {
	shards [usageShards]usageShard

	mu      sync.Mutex // guards the fields below
	backlog map[Usage]usageSum
	batch   int64               // the last batch's number
	sent    []keystore.UsageRow // the last batch, until the database has certainly stored it
	dropped prometheus.Counter

	live live
}

type usageShard struct {
	mu     sync.Mutex
	counts map[Usage]int64 // At is the hour, here and in the backlog
	_      [48]byte        // gives each shard its own cache line
}

type usageSum struct {
	requests int64
	lastAt   instant.Millis
}

func (u *usage) init() {
	for i := range u.shards {
		u.shards[i].counts = map[Usage]int64{}
	}
	u.backlog = map[Usage]usageSum{}
}

// Count adds one request of a tenant's key to the statistics.
func (d *Directory) Count(request Usage) {
	shard := &d.usage.shards[request.Key[0]%usageShards]
	request.At = request.At.Truncate(time.Hour)
	shard.mu.Lock()
	shard.counts[request]++
	shard.mu.Unlock()
}

// collect moves all counts to the backlog.
func (u *usage) collect(now instant.Millis) {
	u.live.mu.Lock()
	defer u.live.mu.Unlock()
	u.live.forget(time.Now())
	for i := range u.shards {
		shard := &u.shards[i]
		shard.mu.Lock()
		counts := shard.counts
		if len(counts) == 0 { // the map stays the shard's: it must not be read without the lock
			shard.mu.Unlock()
			continue
		}
		shard.counts = make(map[Usage]int64, len(counts))
		shard.mu.Unlock()
		for row, n := range counts {
			u.live.add(row, n)
			if _, known := u.backlog[row]; !known && len(u.backlog) >= usageBacklogMax {
				u.dropped.Add(float64(n))
				continue
			}
			u.backlog[row] = usageSum{u.backlog[row].requests + n, now}
		}
	}
}

// next returns the batch to send. It is the last batch again if that may not have been stored.
func (u *usage) next() []keystore.UsageRow {
	if u.sent != nil || len(u.backlog) == 0 {
		return u.sent
	}
	u.batch++
	for row, sum := range u.backlog {
		u.sent = append(u.sent, keystore.UsageRow{
			Tenant: row.Tenant, Key: row.Key, Outcome: row.Outcome, Hour: row.At, Requests: sum.requests, LastAt: sum.lastAt,
		})
		delete(u.backlog, row)
		if len(u.sent) == usageRowsMax {
			break
		}
	}
	return u.sent
}

func (d *Directory) flushUsage(ctx context.Context) {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		err := d.drainUsage(context.WithoutCancel(ctx))
		if err != nil && !failing {
			d.cfg.Log.Warn("directory: usage cannot be written; it is kept and written later", "error", err)
		}
		failing = err != nil
	}
}

// drainUsage writes all counts. It keeps counts that it cannot write.
func (d *Directory) drainUsage(ctx context.Context) error {
	u := &d.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	u.collect(instant.Of(d.cfg.Clock()))
	for {
		rows := u.next()
		if len(rows) == 0 {
			return nil
		}
		if err := d.store.AddUsage(ctx, *d.self.Load(), u.batch, rows); err != nil {
			return err
		}
		u.sent = nil
	}
}

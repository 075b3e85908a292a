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

// usage counts requests. A request takes a short lock on one of many shards. The clock is read only when the counts are collected,
// so requests shortly before a full hour may be counted in the next hour.
type usage struct {
	shards [usageShards]usageShard

	mu      sync.Mutex // guards the fields below
	backlog map[usageRow]usageSum
	batch   int64               // the last batch's number
	sent    []keystore.UsageRow // the last batch, until the database has certainly stored it
	dropped prometheus.Counter
}

type usageShard struct {
	mu     sync.Mutex
	counts map[usageKey]int64
	_      [48]byte // gives each shard its own cache line
}

type usageKey struct {
	tenant  id.Tenant
	key     id.Key
	outcome string
}

type usageRow struct {
	usageKey
	hour instant.Millis
}

type usageSum struct {
	requests int64
	lastAt   instant.Millis
}

func (u *usage) init() {
	for i := range u.shards {
		u.shards[i].counts = map[usageKey]int64{}
	}
	u.backlog = map[usageRow]usageSum{}
}

// Count adds one request of a tenant's key to the statistics. outcome is one of a few constants.
func (d *Directory) Count(tenant id.Tenant, key id.Key, outcome string) {
	shard := &d.usage.shards[key[0]%usageShards]
	shard.mu.Lock()
	shard.counts[usageKey{tenant, key, outcome}]++
	shard.mu.Unlock()
}

// collect moves all counts to the backlog.
func (u *usage) collect(now instant.Millis) {
	for i := range u.shards {
		shard := &u.shards[i]
		shard.mu.Lock()
		counts := shard.counts
		if len(counts) > 0 {
			shard.counts = make(map[usageKey]int64, len(counts))
		}
		shard.mu.Unlock()
		for k, n := range counts {
			row := usageRow{k, now.Truncate(time.Hour)}
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
			Tenant: row.tenant, Key: row.key, Outcome: row.outcome, Hour: row.hour, Requests: sum.requests, LastAt: sum.lastAt,
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

package directory

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/sharded"
)

const (
	flushEvery   = 3 * time.Second
	usageRowsMax = 5000 // in one batch, so that transactions are short

	// The largest number of rows that wait for the database, about 50 MB. Further rows are dropped.
	usageBacklogMax = 200_000
	// The largest number of tenants and hours whose minutes wait for the database, about 15 MB. Further minutes are dropped.
	minutesBacklogMax = 50_000

	// usageSlack is how much later than planned a request may be counted: because of clocks that differ, and because minutes are
	// written once a minute. What is even later is a correction of its hour.
	usageSlack = time.Minute
)

// Usage is one request, as the statistics count it.
type Usage struct {
	Tenant    id.Tenant
	Key       id.Key
	Operation string // one of a few constants; empty: refused before the operation was known
	Outcome   string // one of a few constants
	Charged   bool   // taken from the quota
	Metered   bool   // the quota was asked, whatever it answered
	// At is when the request was made. For a charged request, it is taken from the clock that decided on the quota, so the
	// usage of a day equals what the quota has charged on that day.
	At instant.Millis
}

// usage counts requests. A request takes a short lock on one of many shards.
type usage struct {
	counts *sharded.Map[Usage, int64] // At is the minute

	// All requests that were made before are in the database. Heartbeats publish it.
	through atomic.Int64

	mu             sync.Mutex // guards the fields below
	settles        time.Duration
	collectedAt    instant.Millis // the last time
	minutesAt      instant.Millis // the minute in which minutes were last sent
	backlog        map[usageSlot]usageSum
	minutes        map[minutesSlot]*[60]int64
	batch          int64       // the last batch's number
	sent           *usageBatch // the last batch, until the database has certainly stored it
	dropping       bool        // requests were dropped after the last batch was made
	dropped        prometheus.Counter
	droppedMinutes prometheus.Counter

	live live
}

// usageSlot is a row that waits for the database.
type usageSlot struct {
	tenant             id.Tenant
	key                id.Key
	operation, outcome string
	charged            bool
	hour               instant.Millis
}

type usageSum struct {
	requests int64
	lastAt   instant.Millis
}

type minutesSlot struct {
	tenant id.Tenant
	hour   instant.Millis
}

type usageBatch struct {
	rows    []keystore.UsageRow
	minutes []keystore.UsageMinutes
	dropped bool // requests were dropped since the batch before
}

// init prepares u. A request is counted at most longest after it was made.
func (u *usage) init(now instant.Millis, longest time.Duration) {
	u.counts = sharded.New[Usage, int64](0, func(request Usage) byte { return request.Key[0] })
	u.backlog, u.minutes = map[usageSlot]usageSum{}, map[minutesSlot]*[60]int64{}
	u.settles, u.collectedAt, u.minutesAt = longest+usageSlack, now, now.Truncate(time.Minute)
	u.through.Store(int64(now.Add(-u.settles)))
}

// Count adds one request of a tenant's key to the statistics.
func (d *Directory) Count(request Usage) {
	request.At = request.At.Truncate(time.Minute)
	shard := d.usage.counts.Lock(request)
	shard.Entries[request]++
	shard.Unlock()
}

// collect moves all counts to the backlog.
func (u *usage) collect(now instant.Millis) {
	u.live.mu.Lock()
	defer u.live.mu.Unlock()
	at := time.Now()
	u.live.forget(at)
	for request, n := range u.live.taken {
		u.add(request, n, now)
	}
	u.live.taken = nil
	u.take(at, func(request Usage, n int64) { u.add(request, n, now) })
}

// take moves all counts out of the shards, into live and to another place. Requests do not wait while it adds them up: it only swaps
// maps with the lock of a shard. The caller holds live.mu.
func (u *usage) take(at time.Time, to func(Usage, int64)) {
	for shard := range u.counts.Shards() {
		shard.Lock()
		size := len(shard.Entries)
		shard.Unlock()
		if size == 0 {
			continue
		}
		empty := make(map[Usage]int64, size) // not with the lock: a large map takes a while
		shard.Lock()
		counts := shard.Entries
		shard.Entries = empty
		shard.Unlock()
		for request, n := range counts {
			u.live.add(request, n, at)
			to(request, n)
		}
	}
}

func (u *usage) add(request Usage, n int64, now instant.Millis) {
	hour := request.At.Truncate(time.Hour)
	row := usageSlot{request.Tenant, request.Key, request.Operation, request.Outcome, request.Charged, hour}
	if sum, known := u.backlog[row]; known || len(u.backlog) < usageBacklogMax {
		u.backlog[row] = usageSum{sum.requests + n, now}
	} else {
		u.dropped.Add(float64(n))
		u.dropping = true
	}
	if !request.Metered {
		return
	}
	slot := minutesSlot{request.Tenant, hour}
	attempts := u.minutes[slot]
	if attempts == nil {
		if len(u.minutes) >= minutesBacklogMax {
			u.droppedMinutes.Add(float64(n))
			return
		}
		attempts = new([60]int64)
		u.minutes[slot] = attempts
	}
	attempts[request.At.Sub(hour)/time.Minute] += n
}

// next returns the batch to send, or nil. It is the last batch again if that may not have been stored.
func (u *usage) next(withMinutes bool) *usageBatch {
	if u.sent != nil || len(u.backlog) == 0 && (!withMinutes || len(u.minutes) == 0) {
		return u.sent
	}
	u.batch++
	u.sent, u.dropping = &usageBatch{dropped: u.dropping}, false
	for row, sum := range u.backlog {
		u.sent.rows = append(u.sent.rows, keystore.UsageRow{
			Tenant: row.tenant, Key: row.key, Operation: row.operation, Outcome: row.outcome, Charged: row.charged,
			Hour: row.hour, Requests: sum.requests, LastAt: sum.lastAt,
		})
		delete(u.backlog, row)
		if len(u.sent.rows) == usageRowsMax {
			break
		}
	}
	if !withMinutes {
		return u.sent
	}
	for slot, attempts := range u.minutes {
		u.sent.minutes = append(u.sent.minutes, keystore.UsageMinutes{Tenant: slot.tenant, Hour: slot.hour, Attempts: *attempts})
		delete(u.minutes, slot)
		if len(u.sent.minutes) == usageRowsMax {
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
		err := d.drainUsage(context.WithoutCancel(ctx), false)
		if err != nil && !failing {
			d.cfg.Log.Warn("directory: usage cannot be written; it is kept and written later", "error", err)
		}
		failing = err != nil
	}
}

// drainUsage writes all counts, and the minutes if a new minute has begun or this is the last time. It keeps what it cannot write.
func (d *Directory) drainUsage(ctx context.Context, last bool) error {
	u := &d.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	now := instant.Of(d.cfg.Clock())
	collectedBefore := u.collectedAt
	u.collect(now)
	u.collectedAt = now
	minute := now.Truncate(time.Minute)
	withMinutes := last || minute != u.minutesAt
	for batch := u.next(withMinutes); batch != nil; batch = u.next(withMinutes) {
		if batch.dropped {
			// Before AddUsage: once that time counts as stored, its gap must be known.
			if err := d.store.NoteDropped(ctx, *d.self.Load(), u.batch); err != nil {
				return err
			}
		}
		if err := d.store.AddUsage(ctx, *d.self.Load(), u.batch, batch.rows, batch.minutes); err != nil {
			return err
		}
		u.sent = nil
	}
	if withMinutes {
		u.minutesAt = minute
	}
	// Not now minus settles: if the whole process was paused, requests that began before the pause may not be counted yet.
	u.through.Store(int64(collectedBefore.Add(-u.settles)))
	return nil
}

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
	// The largest number of tenants and hours whose minutes wait for the database, about 15 MB.
	// Further minutes are dropped.
	minutesBacklogMax = 50_000

	// usageSlack is how much later than planned a request may be counted: because of clocks that
	// differ, and because minutes are written once a minute. What is even later is a correction of
	// its hour.
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
	Cost      uint16 // in units, at least 1 if Charged
	IsTest    bool   // the key is a test key
	// At is when the request was made. For a charged request, it is taken from the clock that
	// decided on the quota, so the usage of a day equals what the quota has charged on that day.
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
	unstored                      // this process's
	file           usageFile
	dropped        prometheus.Counter
	droppedMinutes prometheus.Counter

	live live
}

// unstored is what a process has counted and the database perhaps lacks. The file has it too, so
// its fields are exported.
type unstored struct {
	Rows     map[keystore.UsageRow]usageSum // the keys have no numbers
	Minutes  map[minutesSlot]*[60]int64
	Batch    int64       // the last batch's number
	Sent     *usageBatch // the last batch, until the database has certainly stored it
	Dropping bool        // requests were dropped after the last batch was made
}

// usageSum has the numbers of a row.
type usageSum struct {
	Requests  int64
	MoreUnits int64
	LastAt    instant.Millis
}

type minutesSlot struct {
	Tenant id.Tenant
	Hour   instant.Millis
	IsTest bool
}

type usageBatch struct {
	Rows    []keystore.UsageRow
	Minutes []keystore.UsageMinutes
	Dropped bool // requests were dropped since the batch before
}

// init prepares u. A request is counted at most longest after it was made.
func (u *usage) init(now instant.Millis, longest time.Duration) {
	u.counts = sharded.New[Usage, int64](0, func(request Usage) byte { return request.Key[0] })
	u.Rows, u.Minutes = map[keystore.UsageRow]usageSum{}, map[minutesSlot]*[60]int64{}
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

// collect moves all counts out of the shards, into live and the backlog. Requests do not wait while
// it adds them up: it only swaps maps with the lock of a shard. The caller holds the lock of the
// usage.
func (u *usage) collect(at time.Time, now instant.Millis) {
	u.live.forget(at)
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
			u.add(request, n, now)
		}
	}
}

func (u *usage) add(request Usage, n int64, now instant.Millis) {
	hour := request.At.Truncate(time.Hour)
	row := keystore.UsageRow{
		Tenant: request.Tenant, Key: request.Key, Operation: request.Operation, Outcome: request.Outcome, Charged: request.Charged,
		IsTest: request.IsTest, Hour: hour,
	}
	moreUnits := int64(0)
	if request.Charged {
		moreUnits = n * int64(max(1, request.Cost)-1)
	}
	if sum, known := u.Rows[row]; known || len(u.Rows) < usageBacklogMax {
		u.Rows[row] = usageSum{sum.Requests + n, sum.MoreUnits + moreUnits, now}
	} else {
		u.dropped.Add(float64(n))
		u.Dropping = true
	}
	if !request.Metered {
		return
	}
	slot := minutesSlot{request.Tenant, hour, request.IsTest}
	attempts := u.Minutes[slot]
	if attempts == nil {
		if len(u.Minutes) >= minutesBacklogMax {
			u.droppedMinutes.Add(float64(n))
			return
		}
		attempts = new([60]int64)
		u.Minutes[slot] = attempts
	}
	attempts[request.At.Sub(hour)/time.Minute] += n
}

// next returns the batch to send, or nil. It is the last batch again if that may not have been
// stored.
func (u *unstored) next(withMinutes bool) *usageBatch {
	if u.Sent != nil || len(u.Rows) == 0 && (!withMinutes || len(u.Minutes) == 0) {
		return u.Sent
	}
	u.Batch++
	u.Sent, u.Dropping = &usageBatch{Dropped: u.Dropping}, false
	u.Sent.Rows = take(u.Rows, func(row keystore.UsageRow, sum usageSum) keystore.UsageRow {
		row.Requests, row.MoreUnits, row.LastAt = sum.Requests, sum.MoreUnits, sum.LastAt
		return row
	})
	if withMinutes {
		u.Sent.Minutes = take(u.Minutes, func(slot minutesSlot, attempts *[60]int64) keystore.UsageMinutes {
			return keystore.UsageMinutes{Tenant: slot.Tenant, Hour: slot.Hour, IsTest: slot.IsTest, Attempts: *attempts}
		})
	}
	return u.Sent
}

// take moves up to usageRowsMax rows out of a backlog.
func take[S comparable, V, R any](from map[S]V, row func(S, V) R) (rows []R) {
	for slot, value := range from {
		if len(rows) == usageRowsMax {
			break
		}
		rows = append(rows, row(slot, value))
		delete(from, slot)
	}
	return rows
}

// Every few seconds, flushUsage writes what was counted. While the database does not take it, a
// file keeps it.
func (d *Directory) flushUsage(ctx context.Context) {
	failing := false
	for wait(ctx, flushEvery) {
		err := d.drainUsage(context.WithoutCancel(ctx), false)
		if err != nil && !failing {
			d.cfg.Log.Warn("directory: usage cannot be written; it is kept and written later", "error", err)
		}
		failing = err != nil
	}
}

// drainUsage writes all counts, and the minutes if a new minute has begun or this is the last time.
// It keeps what it cannot write. One goroutine calls it at a time.
func (d *Directory) drainUsage(ctx context.Context, last bool) error {
	u := &d.usage
	u.mu.Lock()
	now := instant.Of(d.cfg.Clock())
	collectedBefore := u.collectedAt
	u.collect(time.Now(), now)
	u.collectedAt = now
	minute := now.Truncate(time.Minute)
	withMinutes := last || minute != u.minutesAt
	u.mu.Unlock()
	if err := d.storeUsage(ctx, *d.self.Load(), &u.unstored, withMinutes); err != nil {
		_ = d.keepUsage(false) // it has complained
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if withMinutes {
		u.minutesAt = minute
	}
	// Not now minus settles: if the whole process was paused, requests that began before the pause
	// may not be counted yet.
	u.through.Store(int64(collectedBefore.Add(-u.settles)))
	return nil
}

// storeUsage stores what a process has counted, in batches.
func (d *Directory) storeUsage(
	ctx context.Context, process keystore.Registration, from *unstored, withMinutes bool,
) error {
	u := &d.usage
	for {
		u.mu.Lock()
		batch := from.next(withMinutes)
		// Even before the first: the file must not have other requests under a number that the
		// database knows, or they would count twice.
		err := u.file.renew(d, batch != nil)
		u.mu.Unlock()
		if err != nil || batch == nil {
			return err
		}
		kept := make(chan struct{})
		slow := time.AfterFunc(keepUsageAfter, func() {
			defer close(kept)
			_ = d.keepUsage(false)
		})
		if batch.Dropped {
			// Before AddUsage: once that time counts as stored, its gap must be known.
			err = d.store.NoteDropped(ctx, process, from.Batch)
		}
		if err == nil {
			err = d.store.AddUsage(ctx, process, from.Batch, batch.Rows, batch.Minutes)
		}
		if !slow.Stop() {
			<-kept // or it might overwrite what the end of this process, or the next process, writes
		}
		if err != nil {
			return err
		}
		u.mu.Lock()
		from.Sent = nil
		u.mu.Unlock()
	}
}

// Package usage counts the requests of tenants and writes the counts to the database.
//
// A request takes a short lock on one of many shards (Count). Every few seconds the counts leave
// the shards and join the backlog. The backlog goes to the database in numbered batches, so a batch
// whose answer was lost does not count twice.
//
// While the database does not take a batch, a file keeps the backlog. The next process of this
// gateway stores what the file has (StoreEarlier), under the registration of the process that
// counted it.
//
// While somebody watches, the same counts show what tenants do now (Activity).
//
// All methods are safe for concurrent use, but for those that say otherwise.
package usage

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/sharded"
)

// slack is how much later than planned a request may be counted: because of clocks that differ, and
// because minutes are written once a minute. What is even later is a correction of its hour.
const slack = time.Minute

// Request is one request, as the statistics count it.
type Request struct {
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

// Config is the configuration of a Counter.
type Config struct {
	Store *keystore.Store
	// Process returns this process's registration. Its ID never changes.
	Process func() keystore.Registration
	File    string // keeps what the database does not take; empty: nothing does
	// LongestRequest is the longest time from a request's quota decision to its count. The usage of
	// an hour is complete this time and a minute after its end.
	LongestRequest time.Duration
	Log            *slog.Logger
	Metrics        prometheus.Registerer // nil: none
	Clock          func() time.Time
}

// Counter counts requests.
type Counter struct {
	cfg     Config
	metrics metrics
	counts  *sharded.Map[Request, int64] // At is the minute
	settles time.Duration                // after this time a request has certainly been counted

	// All requests that were made before are in the database.
	through atomic.Int64

	mu          sync.Mutex     // guards the fields below
	collectedAt instant.Millis // the last time
	minutesAt   instant.Millis // the minute in which minutes were last sent
	backlog     backlog        // of this process
	file        *file
	live        live
}

// New returns a counter that has counted nothing. It reads what earlier processes have left in the
// file.
func New(cfg Config) *Counter {
	now := instant.Of(cfg.Clock())
	c := &Counter{
		cfg:         cfg,
		metrics:     newMetrics(cfg.Metrics),
		counts:      sharded.New[Request, int64](0, func(r Request) byte { return r.Key[0] }),
		settles:     cfg.LongestRequest + slack,
		collectedAt: now,
		minutesAt:   now.Truncate(time.Minute),
		backlog:     newBacklog(),
		file:        newFile(cfg.File, cfg.Log),
	}
	c.through.Store(int64(now.Add(-c.settles)))
	return c
}

// Through returns the instant up to which this process's usage is stored. Heartbeats publish it.
func (c *Counter) Through() instant.Millis { return instant.Millis(c.through.Load()) }

// Earlier returns the incarnations of the processes whose usage the file still has.
func (c *Counter) Earlier() (incarnations []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.file.earlier {
		incarnations = append(incarnations, c.file.earlier[i].Process.Incarnation)
	}
	return incarnations
}

// Count adds one request of a tenant's key to the statistics.
func (c *Counter) Count(request Request) {
	request.At = request.At.Truncate(time.Minute)
	shard := c.counts.Lock(request)
	shard.Entries[request]++
	shard.Unlock()
}

// collect moves all counts out of the shards, to those who watch and into the backlog. Requests do
// not wait while it adds them up: it only swaps maps with the lock of a shard. The caller holds mu.
func (c *Counter) collect(at time.Time, now instant.Millis) {
	c.live.forget(at)
	for shard := range c.counts.Shards() {
		shard.Lock()
		size := len(shard.Entries)
		shard.Unlock()
		if size == 0 {
			continue
		}
		empty := make(map[Request]int64, size) // not with the lock: a large map takes a while
		shard.Lock()
		counts := shard.Entries
		shard.Entries = empty
		shard.Unlock()
		for request, n := range counts {
			c.live.add(request, n, at)
			c.backlog.add(request, n, now, &c.metrics)
		}
	}
}

// Package redis decides quotas in the Redis that all gateways share.
//
// Requests go to Redis in batches. Each server has a batcher: requests that arrive while a batch is
// under way form the next one. All requests of one tenant in a batch become one demand, whose
// grants they get in the order of their arrival. One script call decides the whole batch; on Redis
// Cluster there is one call per tenant, in one pipeline.
//
// A server is down if it was silent for the whole budget, refused a call, or cannot be dialed. The
// caller then decides its requests without Redis, and also all later requests until a probe of the
// server succeeds. A slow gateway is not an outage: time in the queue here, and time in which this
// process got no CPU, do not count.
//
// A batch whose connection breaks is sent again. It carries a number, and a tenant's record has the
// last number of each gateway, so a batch is decided only once.
//
// All methods are safe for concurrent use.
package redis

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
)

// Config says how Redis is reached and used. All fields are required.
type Config struct {
	URL     string
	Prefix  string // begins every name in Redis
	Rule    quota.Rule
	Clock   func() time.Time // steps never
	Budget  time.Duration    // how long Redis may be silent before it is down, while this process has CPU time
	Metrics *Metrics
	// Changed is called with the cause when the first server goes down, and when no server is down
	// any longer.
	Changed func(down bool, cause error)
}

// slotPause is how long a request waits before it asks again whether its slot is served.
const slotPause = 5 * time.Millisecond

// Store decides batches.
type Store interface {
	// DecideBatch decides the demands in one trip. The numbers of a gateway's batches increase. A
	// demand that was decided before under this number gets the same answer, and is charged only
	// once, unless the store has forgotten it. Number 0 is no number.
	DecideBatch(ctx context.Context, number int64, demands []store.Demand, results []store.Result) error
}

// Ledger holds what this gateway knows about its tenants and Redis may not know.
type Ledger interface {
	// Refusal returns a remembered refusal that still holds for the request at now, if there is
	// one.
	Refusal(c *store.Call, now instant.Millis) (v quota.Verdict, ok bool)
	// Collect adds to a demand what Redis may not know: the last seen use, and the unreported
	// requests.
	Collect(d *store.Demand)
	// Settle ends each demand for which Collect was called. If it was decided, Redis has charged
	// d.Unreported, and the verdict is valid. Otherwise Redis has not charged d.Unreported. The
	// trip began and ended at these instants, by this gateway's clock.
	Settle(d *store.Demand, v *quota.Verdict, decided bool, beganAt, endedAt instant.Millis)
	// Records returns the records of which the ledger knows something in this scope.
	Records(s Scope) []store.Request
}

// Scope is what a server has to be told.
type Scope uint8

// The scopes.
const (
	Unreported Scope = iota // requests that were admitted without Redis
	Window                  // known use of the last minute
	Day                     // known use of the day or the month; Window has some of these records too
)

// Outcome is how a request ended.
type Outcome uint8

// The outcomes.
const (
	_          Outcome = iota
	Decided            // Redis has decided
	Remembered         // a remembered refusal answers it
	Undecided          // the caller has to decide; Redis may have charged it if its answer was lost
	again              // Take repeats it, for the budget at most: no server of the cluster serves its slot at the moment
)

// Redis holds the connections to all servers.
type Redis struct {
	cfg     Config
	ledger  Ledger
	store   Store
	client  redis.UniversalClient // nil if New was given another store
	servers servers
	downs   atomic.Int32
	cause   atomic.Pointer[error] // of the last failure; nil: no server is down
	numbers atomic.Int64          // of the last batch

	closing  context.Context // canceled by Close
	close    context.CancelFunc
	starting sync.Mutex // held to start something, and to begin closing
	running  sync.WaitGroup
}

// Open returns a Redis that is to be started. Only an invalid URL is an error: a Redis that does
// not answer is down.
func Open(cfg Config, ledger Ledger) (*Redis, error) {
	client, err := connect(cfg.URL, cfg.Budget)
	if err != nil {
		return nil, fmt.Errorf("redis: Redis URL: %w", err)
	}
	r := New(cfg, newScript(client, cfg.Prefix, cfg.Rule, takeScript), ledger)
	r.client = client
	r.servers.cluster, _ = client.(*redis.ClusterClient)
	return r, nil
}

// New is like Open, but uses the given store, for example one that fails.
func New(cfg Config, s Store, ledger Ledger) *Redis {
	r := &Redis{cfg: cfg, store: s, ledger: ledger}
	r.closing, r.close = context.WithCancel(context.Background())
	r.servers.first = newBatcher(r, id.Tenant{})
	return r
}

// Start connects, and reports what an earlier process of this gateway did not report. No other
// method may be called before it, but for those of clocks.
func (r *Redis) Start(ctx context.Context) {
	if s, ok := r.store.(*script); ok {
		// This also opens the connection, so that the first request does not wait for it.
		_ = r.servers.first.ask(func() error { return s.load(ctx) })
	}
	r.start(r.servers.first.watch)
	r.Resume()
}

// Take decides one request. The verdict is valid if the outcome is Decided or Remembered.
func (r *Redis) Take(q store.Call) (v quota.Verdict, o Outcome) {
	for began := time.Now(); ; time.Sleep(slotPause) {
		if o = r.batcher(q.Tenant).take(&q, &v); o != again {
			return v, o
		}
		if time.Since(began) >= r.cfg.Budget { // the server stays up for its other tenants
			return v, Undecided
		}
	}
}

// HasHeard reports whether the tenant's server has ever answered this gateway.
func (r *Redis) HasHeard(t id.Tenant) bool { return r.batcher(t).heard.Load() }

// Peek returns current figures of a record. It fails immediately while the tenant's server is down.
// Its call does not end if ctx is canceled: that would look as if Redis did not answer.
func (r *Redis) Peek(ctx context.Context, d store.Demand) (quota.Verdict, error) {
	results := make([]store.Result, 1)
	d.Want = 0
	err := r.batcher(d.Tenant).ask(func() error {
		return r.store.DecideBatch(context.WithoutCancel(ctx), 0, []store.Demand{d}, results)
	})
	if err == nil {
		err = results[0].Err
	}
	return results[0].Verdict, err
}

// Resume reports what an earlier process of this gateway, or a gateway that has left, did not
// report. What cannot be sent now is sent before its server decides again.
func (r *Redis) Resume() {
	servers := map[*batcher]bool{}
	for _, q := range r.ledger.Records(Unreported) {
		servers[r.batcher(q.Tenant)] = true
	}
	for b := range servers {
		_ = b.tell(Unreported, b.askAlone)
	}
}

// Allow takes one from the bucket with this name, by redis_rate. It fails immediately while the
// name's server is down.
func (r *Redis) Allow(ctx context.Context, name string, limit redis_rate.Limit) (result *redis_rate.Result, err error) {
	name = r.cfg.Prefix + name
	err = r.batcherOf("rate:" + name).ask(func() error { // redis_rate adds this prefix
		result, err = redis_rate.NewLimiter(r.client).Allow(context.WithoutCancel(ctx), name, limit)
		return err
	})
	return result, err
}

// IsDown reports whether any server is down.
func (r *Redis) IsDown() bool { return r.downs.Load() > 0 }

// IsDownFor reports whether the tenant's server is down.
func (r *Redis) IsDownFor(t id.Tenant) bool { return r.batcher(t).down.Load() }

// changed counts servers as they go down and come back.
func (r *Redis) changed(down bool, cause error) {
	if down {
		r.cause.Store(&cause)
		r.cfg.Metrics.serversDown.Inc()
		if r.downs.Add(1) == 1 {
			r.cfg.Changed(true, cause)
		}
		return
	}
	r.cfg.Metrics.serversDown.Dec()
	if r.downs.Add(-1) == 0 {
		r.cause.Store(nil)
		r.cfg.Changed(false, nil)
	}
}

// start runs f in a goroutine, which Close waits for. After Close it does nothing.
func (r *Redis) start(f func()) {
	r.starting.Lock()
	defer r.starting.Unlock()
	if r.closing.Err() == nil {
		r.running.Go(f)
	}
}

// Close waits for probes and closes the connections. Batches under way end.
func (r *Redis) Close() error {
	r.starting.Lock()
	r.close()
	r.starting.Unlock()
	r.running.Wait()
	for _, b := range r.servers.all() {
		b.rest()
	}
	if r.client == nil {
		return nil
	}
	return r.client.Close()
}

func (r *Redis) now() instant.Millis { return instant.Of(r.cfg.Clock()) }

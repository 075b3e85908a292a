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
// A batch whose connection breaks is sent again. It carries a number, and a record remembers the
// last batch that charged it, so a batch is decided only once.
//
// # Map
//
// A request goes from the Decider (redis.go) to the batcher of its server (servers.go, batcher.go),
// which fills a batch (batch.go) and sends it by the script (script.go, take.lua). Ledger
// (ledger.go) is asked before each trip and told after it. A trip that fails begins an outage of
// its server (outage.go); then the batcher probes, and tells the server what it has missed
// (recovery.go, unanswered.go). While a server answers, watch.go looks for lost counts. connect.go
// and patience.go make the connections, cause.go explains errors, and server.go asks servers about
// themselves.
//
// All methods are safe for concurrent use.
package redis

import (
	"context"
	"fmt"
	"slices"
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

// Decider decides in Redis. It holds the connections to all servers.
type Decider struct {
	cfg     Config
	env     *env
	client  redis.UniversalClient // nil if New was given another store
	servers *servers
}

// Open returns a Decider that is to be started. Only an invalid URL is an error: a Redis that does
// not answer is down.
func Open(cfg Config, ledger Ledger) (*Decider, error) {
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
func New(cfg Config, s Store, ledger Ledger) *Decider {
	e := &env{
		store:     s,
		ledger:    ledger,
		rule:      cfg.Rule,
		metrics:   cfg.Metrics,
		hostClock: func() instant.Millis { return instant.Of(cfg.Clock()) },
		outage:    &outage{gauge: cfg.Metrics.serversDown, changed: cfg.Changed},
	}
	e.closing = e.tasks.Context()
	return &Decider{cfg: cfg, env: e, servers: newServers(e)}
}

// Start connects, and reports what an earlier process of this gateway did not report. No other
// method may be called before it, but for those of clocks.
func (r *Decider) Start(ctx context.Context) {
	if s, ok := r.env.store.(*script); ok {
		// This also opens the connection, so that the first request does not wait for it.
		_ = r.servers.first.ask(func() error { return s.load(ctx) })
	}
	r.env.tasks.Go(r.servers.first.watch)
	r.Resume()
}

// Take decides one request. The verdict is valid if the outcome is Decided or Remembered.
func (r *Decider) Take(q store.Call) (v quota.Verdict, o Outcome) {
	for began := time.Now(); ; time.Sleep(slotPause) {
		o = r.servers.of(q.Tenant).take(&q, &v)
		if o != again {
			return v, o
		}
		if time.Since(began) >= r.cfg.Budget { // the server stays up for its other tenants
			return v, Undecided
		}
	}
}

// HasHeard reports whether the tenant's server has ever answered this gateway.
func (r *Decider) HasHeard(t id.Tenant) bool { return r.servers.of(t).heard.Load() }

// Peek returns current figures of a record. It fails immediately while the tenant's server is down.
// Its call does not end if ctx is canceled: that would look as if Redis did not answer.
func (r *Decider) Peek(ctx context.Context, d store.Demand) (quota.Verdict, error) {
	results := make([]store.Result, 1)
	d.Want = 0
	err := r.servers.of(d.Tenant).ask(func() error {
		return r.env.store.DecideBatch(context.WithoutCancel(ctx), 0, []store.Demand{d}, results)
	})
	if err == nil {
		err = results[0].Err
	}
	return results[0].Verdict, err
}

// Resume reports what an earlier process of this gateway, or a gateway that has left, did not
// report. What cannot be sent now is sent before its server decides again.
func (r *Decider) Resume() {
	servers := map[*batcher]bool{}
	for _, q := range r.env.ledger.Records(Unreported) {
		servers[r.servers.of(q.Tenant)] = true
	}
	for b := range servers {
		_ = b.tell(Unreported, b.askAlone)
	}
}

// Allow takes one from the bucket with this name, by redis_rate. It fails immediately while the
// name's server is down.
func (r *Decider) Allow(
	ctx context.Context, name string, limit redis_rate.Limit,
) (result *redis_rate.Result, err error) {
	name = r.cfg.Prefix + name
	err = r.servers.ofKey("rate:" + name).ask(func() error { // redis_rate adds this prefix
		result, err = redis_rate.NewLimiter(r.client).Allow(context.WithoutCancel(ctx), name, limit)
		return err
	})
	return result, err
}

// IsDown reports whether any server is down.
func (r *Decider) IsDown() bool { return r.env.outage.down.Load() > 0 }

// IsDownFor reports whether the tenant's server is down.
func (r *Decider) IsDownFor(t id.Tenant) bool { return r.servers.of(t).down.Load() }

// Cause returns why the last call failed, while a server is down.
func (r *Decider) Cause() error { return r.env.outage.why() }

// HasAnswered reports whether any server has ever answered this gateway.
func (r *Decider) HasAnswered() bool {
	return slices.ContainsFunc(r.servers.all(), func(b *batcher) bool { return b.heard.Load() })
}

// Now is the time of the tenant's server. Masters of a cluster have clocks of their own.
func (r *Decider) Now(t id.Tenant) instant.Millis { return r.servers.of(t).now() }

// Continue sets the clocks of servers that have not answered yet. Until then, they are this
// gateway's.
func (r *Decider) Continue(ahead time.Duration) { r.servers.first.ahead.Store(ahead.Milliseconds()) }

// Skew is how far the clocks of servers are ahead of a clock that shows this time: the largest
// difference.
func (r *Decider) Skew(at time.Time) (skew time.Duration) {
	all := r.servers.all()
	for _, b := range all {
		counts := len(all) == 1 || b != r.servers.first && b.heard.Load()
		if d := b.now().Sub(instant.Of(at)); counts && d.Abs() > skew.Abs() {
			skew = d
		}
	}
	return skew
}

// Close waits for probes and closes the connections. Batches under way end.
func (r *Decider) Close() error {
	r.env.tasks.Stop()
	for _, b := range r.servers.all() {
		b.rest()
	}
	if r.client == nil {
		return nil
	}
	return r.client.Close()
}

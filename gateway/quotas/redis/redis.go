// Package redis decides quotas in the Redis that all gateways share.
//
// Redis is asked by batches, not by requests. Each server has a Batcher: while a batch is under way, the requests that
// arrive make up the next one. The requests of one tenant in a batch become one demand, whose grants go to them first
// come, first served. One script call decides the whole batch; on Redis Cluster it is one call a tenant, in one pipeline.
//
// A server is down if it was silent for the whole budget, refused a call, or cannot be dialed. Its requests are let go, for
// the caller to decide without Redis, and so are all that come until a probe of the server has succeeded. A gateway that is
// late is not an outage: neither a long queue here nor the time that this process was off its processors counts.
//
// A batch whose connection breaks is sent again. It carries a number, which the script remembers for each gateway: what was
// decided under it is not decided again.
//
// All methods are safe for concurrent use.
package redis

import (
	"context"
	"strings"
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

// Config is how Redis is reached and used. All of it is required.
type Config struct {
	URL     string
	Prefix  string // begins every name in Redis
	Rule    quota.Rule
	Clock   func() time.Time
	Budget  time.Duration // how long Redis may be silent, while this process runs, before it is down
	Metrics *Metrics
	// Changed is called when a server goes down, with the cause, and when it is back.
	Changed func(down bool, cause error)
}

// Store decides batches.
type Store interface {
	// DecideBatch decides the demands in one trip. The numbers of a gateway's batches grow. A number that was decided before
	// is answered as it was then, and charged once. 0 is no number.
	DecideBatch(ctx context.Context, number int64, demands []store.Demand, results []store.Result) error
	// Reset drops the tenant's record, once.
	Reset(ctx context.Context, r store.Reset) error
}

// Ledger is what this gateway knows of its tenants beside what Redis counts.
type Ledger interface {
	// Refusal returns a refusal that still holds for the request at now.
	Refusal(r store.Request, now instant.Millis) (v quota.Verdict, ok bool)
	// Collect adds to a demand what Redis may not know: the day's use that was last seen, and what outages owe.
	Collect(d *store.Demand)
	// Settle says what became of a demand. The verdict is valid if it was Decided. The instants are those at which its
	// trip began and ended by this gateway's clock.
	Settle(d *store.Demand, v *quota.Verdict, o Outcome, beganAt, endedAt instant.Millis)
	// Resolve says what became of a demand that was Unsure: whether it was decided, and then what its requests were granted.
	Resolve(d *store.Demand, decided bool, granted int64)
	// Untold returns the tenants that owe something to Redis or, if everything is asked for, have known use in the window.
	Untold(everything bool) []store.Request
}

// Outcome is how a request or a demand ended.
type Outcome uint8

// The outcomes.
const (
	pending    Outcome = iota
	Decided            // Redis has decided
	Remembered         // a remembered refusal answers it
	Undecided          // Redis has certainly not charged it
	Unsure             // Redis may have charged it
)

// Redis is all servers.
type Redis struct {
	cfg     Config
	ledger  Ledger
	store   Store
	client  redis.UniversalClient // nil over another store
	servers servers
	downs   atomic.Int32

	closing context.Context // ends with Close
	close   context.CancelFunc
	running sync.WaitGroup
}

// Open connects. Only a URL that cannot be read is an error: a Redis that does not answer is down.
func Open(ctx context.Context, cfg Config, ledger Ledger) (*Redis, error) {
	client, err := connect(cfg.URL, cfg.Budget)
	if err != nil {
		return nil, err
	}
	script := newScript(client, cfg.Prefix, cfg.Rule, takeScript)
	r := New(cfg, script, ledger)
	r.client = client
	r.servers.cluster, _ = client.(*redis.ClusterClient)
	// It also opens the connection, so that the first request does not pay for it.
	_ = r.servers.first.ask(func() error { return script.preload(ctx) })
	return r, nil
}

// New is Open over any store, which may fail.
func New(cfg Config, s Store, ledger Ledger) *Redis {
	r := &Redis{cfg: cfg, store: s, ledger: ledger}
	r.closing, r.close = context.WithCancel(context.Background())
	r.servers.first = newBatcher(r, id.Tenant{})
	return r
}

// Take decides one request. The verdict is valid if the outcome is Decided or Remembered.
func (r *Redis) Take(q store.Request) (quota.Verdict, Outcome) { return r.batcher(q.Tenant).take(q) }

// HasHeard reports whether the tenant's server has ever answered this gateway.
func (r *Redis) HasHeard(t id.Tenant) bool { return r.batcher(t).heard.Load() }

// Peek asks how a tenant stands. It fails at once while the tenant's server is down.
func (r *Redis) Peek(ctx context.Context, d store.Demand) (quota.Verdict, error) {
	results := make([]store.Result, 1)
	d.Want, d.Spent = 0, quota.Spent{}
	err := r.ask(ctx, r.batcher(d.Tenant), func(ctx context.Context) error {
		return r.store.DecideBatch(ctx, 0, []store.Demand{d}, results)
	})
	if err == nil {
		err = results[0].Err
	}
	return results[0].Verdict, err
}

// Reset drops a tenant's record, once, or has it dropped before the server decides again.
func (r *Redis) Reset(ctx context.Context, reset store.Reset) {
	b := r.batcher(reset.Tenant)
	if r.ask(ctx, b, func(ctx context.Context) error { return r.store.Reset(ctx, reset) }) == nil {
		return
	}
	b.tripping.Lock()
	defer b.tripping.Unlock()
	b.resets = append(b.resets, reset) // the server is down, or it has just come back
	if !b.down.Load() {
		_ = b.ask(b.reset) // if it fails, the server is down, and its probe does it
	}
}

// Allow asks redis_rate for one of the limit under a name. It fails at once while the name's server is down.
func (r *Redis) Allow(ctx context.Context, name string, limit redis_rate.Limit) (result *redis_rate.Result, err error) {
	name = r.cfg.Prefix + name
	err = r.ask(ctx, r.batcherOf("rate:"+name), func(ctx context.Context) error { // as redis_rate names it
		result, err = redis_rate.NewLimiter(r.client).Allow(ctx, name, limit)
		return err
	})
	return result, err
}

// ask makes one call outside the batches. It does not end with its asker: that would look like a Redis that does not
// answer.
func (r *Redis) ask(ctx context.Context, b *batcher, call func(context.Context) error) error {
	return b.ask(func() error { return call(context.WithoutCancel(ctx)) })
}

// IsDown reports whether some server is down.
func (r *Redis) IsDown() bool { return r.downs.Load() > 0 }

// changed counts a server that goes down or comes back.
func (r *Redis) changed(down bool, cause error) {
	if down {
		r.cfg.Metrics.serversDown.Inc()
		if r.downs.Add(1) == 1 {
			r.cfg.Changed(true, cause)
		}
		return
	}
	r.cfg.Metrics.serversDown.Dec()
	if r.downs.Add(-1) == 0 {
		r.cfg.Changed(false, nil)
	}
}

// EvictionPolicies returns a line for each server that may drop records when its memory is full.
func (r *Redis) EvictionPolicies(ctx context.Context) (problems []string, err error) {
	var mu sync.Mutex
	look := func(ctx context.Context, node *redis.Client) error {
		info, err := node.Info(ctx, "memory").Result()
		for line := range strings.Lines(info) {
			if policy, ok := strings.CutPrefix(strings.TrimSpace(line), "maxmemory_policy:"); ok && policy != "noeviction" {
				mu.Lock()
				defer mu.Unlock()
				problems = append(problems, "Redis at "+node.Options().Addr+" has maxmemory-policy "+policy+
					": it may drop quotas; set noeviction")
			}
		}
		return err
	}
	switch client := r.client.(type) {
	case *redis.Client:
		err = look(ctx, client)
	case *redis.ClusterClient:
		err = client.ForEachMaster(ctx, look)
	}
	return problems, err
}

// Close waits for probes and closes the connections. No other method may be called after it.
func (r *Redis) Close() error {
	r.close()
	r.running.Wait()
	if r.client == nil {
		return nil
	}
	return r.client.Close()
}

func (r *Redis) now() instant.Millis { return instant.Of(r.cfg.Clock()) }

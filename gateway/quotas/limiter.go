// Package quotas decides whether a tenant's request may pass, over any number of gateways.
//
// A Limiter decides in this process, or by a Redis that all gateways share. Redis is asked by batches, not by
// requests: what arrives while a batch is under way makes up the next one. The requests of one tenant in a batch
// become one demand; its grants go to them first come, first served. A batch is decided by one call.
//
// A refusal is remembered for up to a second, as long as the tenant's limits and their version stay the same: however
// many refused requests arrive, a gateway asks about their tenant once a second.
//
// When Redis does not decide within the budget, a breaker opens at once and lets all waiting requests go. While it is
// open this gateway admits its share of each limit, so that nothing is refused for the outage's sake and nothing is
// unlimited; outage says what that can cost at most. What it admits is charged in the tenant's first decision after
// Redis is back, with one exception: requests whose batch was sent but not answered may have been charged by it. They
// are not charged again, so if that batch was lost, they go uncounted. A tenant whose record in Redis is unusable is
// treated likewise, for itself alone. With Refuse, all these requests are answered ErrUndecided instead.
//
// All methods are safe for concurrent use.
package quotas

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
)

// What Mode answers.
const (
	modeShared = "shared"
	modeOutage = "outage"
	modeMemory = "memory"
)

// ErrUndecided is returned when a decision could not be made: Refuse forbids to make it without Redis, or what was saved is
// not loaded yet.
var ErrUndecided = errors.New("quotas: quotas cannot be decided now")

// Limiter decides on quotas.
type Limiter struct {
	config  Config
	metrics *metrics
	memory  *memory     // decides in process; nil with Redis
	loaded  atomic.Bool // memory has what was saved
	saved   uint64      // the mark of memory's last dump that was saved

	// With Redis:
	client   redis.UniversalClient
	backend  backend
	rates    *redis_rate.Limiter
	known    *known
	outage   *outage
	lanes    atomic.Pointer[lanes]
	downs    atomic.Int32 // lanes that are down
	evicting atomic.Bool  // Redis was last found to evict records

	closing context.Context // ends with Close
	close   context.CancelFunc
	running sync.WaitGroup
}

// Open returns a Limiter for cfg, which Close ends. With Redis, only a URL that cannot be read is an error: a Redis
// that does not answer is an outage, which ends by itself. In process, nothing is decided until the saved quotas are
// loaded: see Ready.
func Open(ctx context.Context, cfg Config) (*Limiter, error) {
	cfg = cfg.withDefaults()
	if cfg.RedisURL == "" {
		return openMemory(ctx, cfg), nil
	}
	client, err := connect(cfg.RedisURL, cfg.Budget)
	if err != nil {
		return nil, err
	}
	script := newRedisScript(client, cfg.Prefix, cfg.Rule)
	l := newShared(cfg, script)
	l.client, l.rates = client, redis_rate.NewLimiter(client)
	if cluster, ok := client.(*redis.ClusterClient); ok {
		l.mapSlots(ctx, cluster)
		l.running.Go(func() { l.followSlots(cluster) })
	}
	// It also opens the connection, so that the first request does not pay for it.
	if err := l.lane(id.Tenant{}).ask(func() error { return l.warm(script) }); err == nil {
		l.Health(ctx)
	}
	return l, nil
}

func (l *Limiter) warm(script *redisScript) error {
	ctx, cancel := context.WithTimeout(l.closing, 4*l.config.Budget)
	defer cancel()
	return script.preload(ctx)
}

// newShared returns a Limiter on a backend that may fail.
func newShared(cfg Config, shared backend) *Limiter {
	l := newLimiter(cfg, modeShared)
	l.backend, l.known = shared, newKnown(cfg.Rule)
	l.outage = newOutage(newMemory(cfg.Rule, cfg.Clock))
	l.lanes.Store(&lanes{only: newLane(l, id.Tenant{})})
	return l
}

func newLimiter(cfg Config, mode string) *Limiter {
	l := &Limiter{config: cfg, metrics: newMetrics(cfg.Metrics)}
	l.closing, l.close = context.WithCancel(context.Background())
	l.metrics.setMode(mode)
	return l
}

// Take asks for one request: it passes if the verdict grants 1. An error means that it could not be decided; it wraps
// ErrUndecided. Take returns within the budget, or little more when Redis has just fallen silent.
func (l *Limiter) Take(a Ask) (v quota.Verdict, err error) {
	switch {
	case l.memory == nil:
		return l.takeShared(a)
	case !l.loaded.Load():
		l.metrics.undecided.Inc()
		return v, ErrUndecided
	}
	v = l.memory.take(l.nowMs(), &demand{Ask: a, Want: 1})
	l.metrics.count(v.Granted, l.metrics.admitted, l.metrics.refused)
	return v, nil
}

// takeShared takes where Redis decides.
func (l *Limiter) takeShared(a Ask) (quota.Verdict, error) {
	if v, ok := l.known.refusal(a, l.nowMs()); ok {
		l.metrics.remembered.Inc()
		return v, nil
	}
	v, fate := l.lane(a.Tenant).decide(a)
	switch fate {
	case decided:
		l.metrics.count(v.Granted, l.metrics.admitted, l.metrics.refused)
		return v, nil
	case remembered:
		l.metrics.remembered.Inc()
		return v, nil
	}
	if l.config.OnOutage == Refuse {
		l.metrics.undecided.Inc()
		return quota.Verdict{}, ErrUndecided
	}
	v = l.outage.take(a, l.known.verdict(a.Tenant, a.Limits, l.nowMs()), l.config.liveGateways(), fate == unsure)
	l.metrics.count(v.Granted, l.metrics.localAdmitted, l.metrics.localRefused)
	return v, nil
}

// Known returns the tenant's last known figures under these limits, without I/O: all remains where nothing is known.
func (l *Limiter) Known(t id.Tenant, limits plan.Limits) quota.Verdict {
	if l.memory != nil {
		return l.memory.take(l.nowMs(), &demand{Ask: Ask{Tenant: t, Limits: limits}})
	}
	return l.known.verdict(t, limits, l.nowMs())
}

// Peek asks how a tenant stands and takes nothing. In an outage it tells what this gateway decides from.
func (l *Limiter) Peek(ctx context.Context, a Ask) (quota.Verdict, error) {
	if l.memory != nil {
		return l.Known(a.Tenant, a.Limits), nil
	}
	last := l.known.get(a.Tenant)
	demands, results := []demand{{Ask: a, Known: last.dayUse()}}, make([]result, 1)
	err := l.ask(ctx, a.Tenant, func(ctx context.Context) error { return l.backend.decide(ctx, demands, results) })
	if err == nil {
		err = results[0].Err
	}
	switch {
	case err == nil:
		return results[0].Verdict, nil
	case l.config.OnOutage == Refuse:
		return quota.Verdict{}, fmt.Errorf("%w: %w", ErrUndecided, err)
	}
	if v, ok := l.known.refusal(a, l.nowMs()); ok {
		return v, nil
	}
	return l.outage.peek(a, l.known.verdict(a.Tenant, a.Limits, l.nowMs()), l.config.liveGateways()), nil
}

// Reset lets a tenant's quotas start anew, here and in Redis. What other gateways remember they must Forget.
func (l *Limiter) Reset(ctx context.Context, t id.Tenant) error {
	l.Forget(t)
	if l.memory != nil {
		return nil
	}
	defer l.Forget(t) // what a decision under way has brought back
	if err := l.ask(ctx, t, func(ctx context.Context) error { return l.backend.forget(ctx, t) }); err != nil {
		return fmt.Errorf("quotas: reset the quotas of %s: %w", t, err)
	}
	return nil
}

// Forget drops what this process holds of a tenant's use, with Redis its last known figures, without I/O.
func (l *Limiter) Forget(t id.Tenant) {
	if l.memory != nil {
		_ = l.memory.forget(l.closing, t) // cannot fail
		return
	}
	l.known.forget(t, l.nowMs())
	l.outage.forget(t)
}

// ask makes one call about a tenant outside the batches: operators' questions. It does not end with its asker: that would
// look like a Redis that does not answer.
func (l *Limiter) ask(ctx context.Context, t id.Tenant, call func(context.Context) error) error {
	n := l.lane(t)
	if n.down.Load() {
		return errDown
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.config.Budget)
	defer cancel()
	return n.ask(func() error { return call(ctx) })
}

// Mode says how quotas are decided now: "shared" by Redis, "memory" in process, "outage" in process because some or
// all of Redis does not answer.
func (l *Limiter) Mode() string {
	switch {
	case l.memory != nil:
		return modeMemory
	case l.downs.Load() > 0:
		return modeOutage
	default:
		return modeShared
	}
}

// laneChanged counts a lane that goes down or comes back, and tells of it if that changes the mode.
func (l *Limiter) laneChanged(down bool, cause error) {
	if down {
		if l.metrics.breakersOpen.Inc(); l.downs.Add(1) == 1 {
			l.metrics.setMode(modeOutage)
			l.outage.sweep(int64(l.nowMs()) / l.config.Rule.Day.Milliseconds())
			l.config.Log.Warn("quotas are decided without Redis", "how", l.config.OnOutage.String(), "error", cause)
		}
		return
	}
	if l.metrics.breakersOpen.Dec(); l.downs.Add(-1) == 0 {
		l.metrics.setMode(modeShared)
		l.config.Log.Info("quotas are decided by Redis again")
	}
}

// Health says what an operator has to mend, for the readiness report: nothing keeps requests from being decided. It
// asks Redis how it frees memory, as a Redis that evicts records admits more than the limits.
func (l *Limiter) Health(ctx context.Context) []string {
	switch {
	case l.memory != nil:
		return nil
	case l.downs.Load() > 0:
		return []string{"Redis does not answer: quotas are decided without it (" + l.config.OnOutage.String() + ")"}
	}
	var policies []string
	var mu sync.Mutex
	look := func(ctx context.Context, node *redis.Client) error {
		info, err := node.Info(ctx, "memory").Result()
		for line := range strings.Lines(info) {
			if policy, ok := strings.CutPrefix(strings.TrimSpace(line), "maxmemory_policy:"); ok && policy != "noeviction" {
				mu.Lock()
				defer mu.Unlock()
				policies = append(policies, "Redis at "+node.Options().Addr+" has maxmemory-policy "+policy+
					": it may drop quotas; set noeviction")
			}
		}
		return err
	}
	var err error
	switch client := l.client.(type) {
	case *redis.Client:
		err = look(ctx, client)
	case *redis.ClusterClient:
		err = client.ForEachMaster(ctx, look)
	}
	if evicting := len(policies) > 0; l.evicting.Swap(evicting) != evicting && evicting {
		l.config.Log.Error("Redis may drop quotas", "problems", policies)
	}
	if err != nil {
		return append(policies, "Redis cannot be asked for its memory policy: "+err.Error())
	}
	return policies
}

// Close lets go of Redis, or saves in-process quotas a last time. No other method may be called after it.
func (l *Limiter) Close(ctx context.Context) error {
	l.close()
	l.running.Wait()
	if l.memory != nil {
		return l.saveLast(ctx)
	}
	if l.client == nil {
		return nil
	}
	return l.client.Close()
}

func (l *Limiter) nowMs() instant.Millis { return instant.Of(l.config.Clock()) }

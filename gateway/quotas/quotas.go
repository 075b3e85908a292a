// Package quotas decides whether a tenant's request may pass, over any number of gateways.
//
// Open returns one of two types. Local decides in this process. Shared decides in a Redis that all
// gateways share; package redis sends its requests there in batches.
//
// # Remembered refusals
//
// Shared remembers a refusal for up to a second, while the tenant's limits and their version stay
// the same. So a gateway asks Redis about a refused tenant at most once a second, no matter how
// many of its requests arrive.
//
// # Outages
//
// While Redis does not answer, Shared decides by this gateway's share of each limit (standIn). What
// it admits is unreported until Redis has charged it, which is before Redis decides again. A file
// keeps it over a restart of the gateway (outageRecord), and a gateway that leaves gives it to the
// others (fleet). So a window admits at most two limits; decision 5 states the conditions. If only
// one tenant's record in Redis is unusable, the share decides for that tenant alone. With Refuse,
// all these requests get ErrUndecided instead.
//
// There is one clock, that of Redis. While it is silent, each gateway continues it
// (redis.Decider.Now).
//
// # Map
//
// shared.go answers requests; ledger.go is what package redis asks and tells; lastseen.go has the
// last decisions of Redis; standin.go, record.go and fleet.go are for outages. local.go and
// saver.go are for one gateway without Redis.
//
// # Concurrency
//
// All methods are safe for concurrent use.
package quotas

import (
	"context"
	"errors"

	"petgate/gateway/quotas/authfailures"
	"petgate/gateway/quotas/redis"
	"petgate/gateway/quotas/store"
	"petgate/shared/core/quota"
)

// The modes that Mode returns.
const (
	modeShared = "shared"
	modeOutage = "outage"
	modeMemory = "memory"
)

// ErrUndecided is returned when no decision can be made: Redis does not answer and Refuse is set,
// or the saved records are not loaded yet.
var ErrUndecided = errors.New("quotas: quotas cannot be decided now")

// Undecided returns figures of a tenant whose requests get ErrUndecided: nothing is admitted, and a
// second later it may be.
func Undecided(known quota.Verdict) quota.Verdict {
	known.Degraded = true
	for p := range known.Usages {
		known.Usages[p].Remaining, known.Usages[p].RetryAt = 0, 0
	}
	known.Usages[quota.Minute].RetryAt = known.At.Add(retryAfter)
	return known
}

// Request is one question: may a request pass under these limits?
type Request = store.Call

// Quotas is Local or Shared.
type Quotas interface {
	// Take decides on one request: it passes if the verdict grants 1. An error means that no
	// decision could be made; it wraps ErrUndecided.
	Take(r Request) (quota.Verdict, error)
	// Known returns the last known figures without I/O.
	Known(r Request) quota.Verdict
	// Current returns a tenant's figures, at most a second old, and charges nothing. It asks Redis
	// if this gateway has no figures of the last second. An error means that nothing is known yet;
	// it wraps ErrUndecided. While Redis does not answer, the figures are Degraded.
	Current(r Request) (quota.Verdict, error)
	// Peek returns a tenant's current figures and charges nothing.
	Peek(ctx context.Context, r Request) (quota.Verdict, error)
	// Mode says how quotas are decided now: "shared" by Redis, "memory" in process, "outage" in
	// process because some or all of Redis does not answer.
	Mode() string
	// Ready returns an error while no request can be decided.
	Ready() error
	// Health returns the problems that an operator has to fix. They do not stop requests.
	Health(ctx context.Context) []error
	// AuthFailures limits failed authentications per address and minute; 0 = no limit. It is called
	// once.
	AuthFailures(perMinute int) *authfailures.Guard
	// Close closes the connections to Redis, or saves the records one last time. No other method
	// may be called after it.
	Close(ctx context.Context) error
}

// Open returns quotas for cfg. With Redis, only an invalid URL is an error: a Redis that does not
// answer is an outage, which ends by itself. Without Redis, nothing is decided until the saved
// records are loaded: see Ready.
func Open(ctx context.Context, cfg Config) (Quotas, error) {
	cfg = cfg.withDefaults()
	if cfg.RedisURL == "" {
		redis.NewMetrics(cfg.Metrics) // so that every mode has the same metric names
		return openLocal(ctx, cfg), nil
	}
	s := newShared(cfg)
	client, err := redis.Open(s.redisConfig(), s)
	if err != nil {
		return nil, err
	}
	s.start(ctx, client)
	if !client.IsDown() {
		s.Health(ctx)
	}
	return s, nil
}

// Package quotas decides whether a tenant's request may pass, over any number of gateways.
//
// Open returns one of two types. Local decides in this process. Shared decides by a Redis that all gateways share; package
// redis carries its requests there in batches.
//
// # Remembered refusals
//
// Shared remembers a refusal for up to a second, as long as the tenant's limits and their version stay the same: however
// many refused requests arrive, a gateway asks Redis about their tenant once a second.
//
// # Outages
//
// While Redis does not answer, Shared admits this gateway's share of each limit: localShare states what that can cost at
// most. What it admits is charged when Redis is back, before Redis decides again. A batch that was not answered is asked
// about then: each request is charged once. A tenant whose record in Redis is unusable is decided by the share as well, for
// itself alone. With Refuse, all these requests are answered ErrUndecided instead.
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
	"petgate/shared/core/id"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
)

// What Mode answers.
const (
	modeShared = "shared"
	modeOutage = "outage"
	modeMemory = "memory"
)

// ErrUndecided is returned when a decision could not be made: Refuse forbids to make it without Redis, or the saved records
// are not loaded yet.
var ErrUndecided = errors.New("quotas: quotas cannot be decided now")

// Request is one tenant's question: may a request pass under these limits?
type Request = store.Request

// Reset is an operator's word that a tenant's quotas start anew.
type Reset = store.Reset

// Quotas is Local or Shared.
type Quotas interface {
	// Take asks for one request: it passes if the verdict grants 1. An error means that it could not be decided; it wraps
	// ErrUndecided.
	Take(r Request) (quota.Verdict, error)
	// Known returns the last known figures without I/O.
	Known(t id.Tenant, limits plan.Limits) quota.Verdict
	// Peek asks how a tenant stands and takes nothing.
	Peek(ctx context.Context, r Request) (quota.Verdict, error)
	// Reset lets a tenant's quotas start anew. If Redis is down, that is done before it decides again.
	Reset(ctx context.Context, r Reset)
	// Mode says how quotas are decided now: "shared" by Redis, "memory" in process, "outage" in process because some or all
	// of Redis does not answer.
	Mode() string
	// Ready says why no request can be decided.
	Ready() error
	// Health says what an operator has to mend. Requests are decided all the same.
	Health(ctx context.Context) []string
	// AuthFailures limits failed authentications: so many an address a minute; 0 is no limit. It is called once.
	AuthFailures(perMinute int) *authfailures.Guard
	// Close lets go of Redis, or saves the records a last time. No other method may be called after it.
	Close(ctx context.Context) error
}

// Open returns quotas for cfg. With Redis, only a URL that cannot be read is an error: a Redis that does not answer is an
// outage, which ends by itself. In process, nothing is decided until the saved records are loaded: see Ready.
func Open(ctx context.Context, cfg Config) (Quotas, error) {
	cfg = cfg.withDefaults()
	if cfg.RedisURL == "" {
		redis.NewMetrics(cfg.Metrics) // so that the names are the same in every mode
		return openLocal(ctx, cfg), nil
	}
	s := newShared(cfg)
	client, err := redis.Open(ctx, s.redisConfig(), s)
	if err != nil {
		return nil, err
	}
	s.redis = client
	if !client.IsDown() {
		s.Health(ctx)
	}
	return s, nil
}

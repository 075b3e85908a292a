// Package authfailures limits failed authentications by client address.
package authfailures

import (
	"context"
	"hash/maphash"
	"net/netip"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"golang.org/x/time/rate"

	"petgate/shared/core/instant"
	"petgate/shared/sharded"
)

const (
	// addressesMax bounds the remembered addresses, at about 100 bytes each. When it is reached,
	// addresses whose bucket is full are forgotten first, then random ones: a flood from very many
	// addresses mostly evicts its own addresses.
	addressesMax = 1 << 16
	// Redis is asked about failures at most callBurst + callsPerSecond times in any second, which
	// is 200.
	callsPerSecond = 180
	callBurst      = 20
	// roundingOf makes up for the rounding of Redis, which calculates in float64: its answer may be
	// too late by this part of an interval. redis_rate's own Remaining is not used: because of that
	// rounding, it is one too low for some rates.
	roundingOf = 1000
)

// Guard limits failed authentications: how many well-formed but unknown tokens a client address may
// present in a minute. An IPv6 client is identified by its /64, the smallest prefix that a network
// gets.
//
// Each address has a bucket in this process. If that bucket is empty, it refuses the attempt, which
// is then charged nowhere. Otherwise Redis is asked: there, all gateways share one bucket for each
// address. Calls to Redis are limited per second, over all addresses, and are made only while it
// answers, so a flood from many addresses costs Redis no more calls than that. If fewer tokens are
// left in Redis, the bucket here is lowered to that. Buckets refill evenly; the limit is also the
// burst.
//
// A request with a valid key is never counted. All methods are safe for concurrent use.
type Guard struct {
	cfg     Config
	limit   int // per minute, and the burst; 0 = off
	calls   *rate.Limiter
	buckets *sharded.Buckets[netip.Prefix]
}

// State is what an address has left of the limit; instants are Unix milliseconds. It is zero when
// the guard is off.
type State struct {
	Limit, Remaining int
	ResetAt          instant.Millis // when the bucket is full again, if no further attempt fails
	ReleaseAt        instant.Millis // when Remaining next grows; ResetAt if nothing was used
}

// Config is the configuration of a Guard. Every field but Redis is required.
type Config struct {
	PerMinute int // failures allowed per address and minute, also as a burst; 0 = no limit
	Clock     func() time.Time
	Metrics   *Metrics
	// Redis holds the buckets that gateways share; nil if there is only one gateway.
	Redis Limiter
}

// Limiter takes one attempt from a bucket. It fails immediately while Redis does not answer.
type Limiter interface {
	Allow(ctx context.Context, name string, limit redis_rate.Limit) (*redis_rate.Result, error)
}

// New returns a guard that has counted no failure yet.
func New(cfg Config) *Guard {
	seed := maphash.MakeSeed()
	hash := func(p netip.Prefix) byte { return byte(maphash.Comparable(seed, p)) }
	interval := time.Minute / time.Duration(max(1, cfg.PerMinute))
	return &Guard{
		cfg:     cfg,
		limit:   cfg.PerMinute,
		calls:   rate.NewLimiter(callsPerSecond, callBurst),
		buckets: sharded.NewBuckets(cfg.PerMinute, interval, addressesMax, hash),
	}
}

// Fail counts a failed attempt. It returns the state of the address and whether the attempt was
// within the limit. If it was not, the caller must answer too_many_failed_attempts. Some calls ask
// Redis, within the budget.
func (g *Guard) Fail(addr netip.Addr) (state State, allowed bool) {
	if g.limit == 0 {
		return State{}, true
	}
	client, now := network(addr), g.cfg.Clock()
	fullAt, isAllowed := g.buckets.Take(client, now)
	g.cfg.Metrics.addresses.Set(float64(g.buckets.Len()))
	if !isAllowed {
		g.cfg.Metrics.local.Inc()
		return g.state(fullAt, now, false), false
	}
	answer := g.failThere(client, now)
	if answer == nil {
		return g.state(fullAt, now, true), true
	}
	isAllowed = answer.Allowed > 0
	if !isAllowed {
		g.cfg.Metrics.shared.Inc()
	}
	fullThere := now.Add(answer.ResetAfter - g.buckets.Interval/roundingOf)
	fullAt = g.buckets.Lower(client, fullThere, now)
	return g.state(fullAt, now, isAllowed), isAllowed
}

// Known returns the state of an address as this gateway knows it, without I/O.
func (g *Guard) Known(addr netip.Addr) State {
	if g.limit == 0 {
		return State{}
	}
	now := g.cfg.Clock()
	return g.state(g.buckets.FullAt(network(addr), now), now, true)
}

// failThere charges the bucket that all gateways share. It returns nil if Redis is not asked or
// does not answer.
func (g *Guard) failThere(client netip.Prefix, now time.Time) *redis_rate.Result {
	if g.cfg.Redis == nil || !g.calls.AllowN(now, 1) {
		return nil
	}
	answer, err := g.cfg.Redis.Allow(context.Background(), "failed:"+client.String(), redis_rate.PerMinute(g.limit))
	if err != nil {
		return nil
	}
	return answer
}

// state returns what an address has left whose bucket is full at fullAt. After an attempt that was
// not allowed, that is nothing, whatever the rounding.
func (g *Guard) state(fullAt, now time.Time, isAllowed bool) State {
	s := State{Limit: g.limit, ResetAt: roundUp(fullAt)}
	if isAllowed {
		s.Remaining = g.buckets.Tokens(fullAt, now)
	}
	s.ReleaseAt = min(s.ResetAt, roundUp(g.buckets.Since(fullAt, s.Remaining+1)))
	if !isAllowed {
		s.ReleaseAt = max(s.ReleaseAt, instant.Of(now)+1)
	}
	return s
}

// roundUp returns an instant in Unix milliseconds that is never too early.
func roundUp(at time.Time) instant.Millis { return instant.Of(at.Add(time.Millisecond - 1)) }

// network returns the client that an address belongs to.
func network(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap()
	bits := 64
	if addr.Is4() {
		bits = 32
	}
	// Without the zone. The zero Addr gives the zero Prefix, which is counted as one more client.
	client, _ := addr.Prefix(bits)
	return client
}

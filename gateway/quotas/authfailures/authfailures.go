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
	// addressesMax bounds the remembered addresses, at about 200 bytes each. When it is reached,
	// random addresses are forgotten: a flood from very many addresses mostly evicts its own
	// addresses.
	addressesMax = 1 << 16
	// Redis is asked about failures at most callBurst + callsPerSecond times in any second, which
	// is 200.
	callsPerSecond = 180
	callBurst      = 20
	// almost makes up for rounding: Redis and float64 lose a little of a whole attempt.
	// redis_rate's own Remaining is not used: because of that rounding, it is one too low for some
	// rates.
	almost = 1e-3
)

// Guard limits failed authentications: how many well-formed but unknown tokens a client address may
// present in a minute. An IPv6 client is identified by its /64, the smallest prefix that a network
// gets.
//
// Each address has a bucket in this process. If that bucket is empty, it refuses the attempt, which
// is then charged nowhere. Otherwise Redis is asked: there, all gateways share one bucket for each
// address. Calls to Redis are limited per second, over all addresses, and are made only while it
// answers, so a flood from many addresses costs Redis no more calls than that. Its answer is
// remembered, and decides until the address may try again. Buckets refill evenly; the limit is also
// the burst.
//
// A request with a valid key is never counted. All methods are safe for concurrent use.
type Guard struct {
	cfg       Config
	limit     int           // per minute, and the burst; 0 = off
	interval  time.Duration // between two refilled attempts
	calls     *rate.Limiter
	addresses *sharded.Map[netip.Prefix, *address]
}

// address is the state of one client.
type address struct {
	here  rate.Limiter
	there time.Time // when the bucket in Redis will be full again, by this gateway's clock
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
	g := &Guard{cfg: cfg, limit: cfg.PerMinute, calls: rate.NewLimiter(callsPerSecond, callBurst)}
	if g.limit > 0 {
		g.interval = time.Minute / time.Duration(g.limit)
	}
	seed := maphash.MakeSeed()
	g.addresses = sharded.New[netip.Prefix, *address](addressesMax, func(p netip.Prefix) byte {
		return byte(maphash.Comparable(seed, p))
	})
	return g
}

// Fail counts a failed attempt. It returns the state of the address and whether the attempt was
// within the limit. If it was not, the caller must answer too_many_failed_attempts. Some calls ask
// Redis, within the budget.
func (g *Guard) Fail(addr netip.Addr) (state State, allowed bool) {
	if g.limit == 0 {
		return State{}, true
	}
	client := network(addr)
	now := g.cfg.Clock()
	if state, allowed = g.failHere(client, now); !allowed {
		g.cfg.Metrics.local.Inc()
		return state, false
	}
	answer := g.failThere(client, now)
	if answer == nil {
		return state, true
	}
	if answer.Allowed == 0 {
		g.cfg.Metrics.shared.Inc()
	}
	return g.learn(client, now, answer), answer.Allowed > 0
}

// Known returns the state of an address as this gateway knows it, without I/O.
func (g *Guard) Known(addr netip.Addr) State {
	if g.limit == 0 {
		return State{}
	}
	client, now := network(addr), g.cfg.Clock()
	s := g.addresses.Lock(client)
	defer s.Unlock()
	return g.state(s.Entries[client], now, true)
}

// failHere charges the bucket of this gateway, unless Redis has already answered that the address
// must wait.
func (g *Guard) failHere(client netip.Prefix, now time.Time) (State, bool) {
	s := g.addresses.Lock(client)
	defer s.Unlock()
	a := s.Entries[client]
	if a == nil {
		a = &address{here: *rate.NewLimiter(rate.Every(g.interval), g.limit)}
		before := len(s.Entries)
		s.Put(client, a, nil)
		g.cfg.Metrics.addresses.Add(float64(len(s.Entries) - before))
	}
	allowed := g.tokens(a, now)+almost >= 1 && a.here.AllowN(now, 1)
	return g.state(a, now, allowed), allowed
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

// learn remembers what Redis answered.
func (g *Guard) learn(client netip.Prefix, now time.Time, answer *redis_rate.Result) State {
	s := g.addresses.Lock(client)
	defer s.Unlock()
	a := s.Entries[client]
	if a != nil { // otherwise it was forgotten meanwhile
		a.there = now.Add(answer.ResetAfter)
	}
	return g.state(a, now, answer.Allowed > 0)
}

// tokens returns how many attempts are left: the smaller value of the two buckets.
func (g *Guard) tokens(a *address, now time.Time) float64 {
	if a == nil {
		return float64(g.limit)
	}
	tokens := a.here.TokensAt(now)
	if wait := a.there.Sub(now); wait > 0 {
		tokens = min(tokens, float64(g.limit)-float64(wait)/float64(g.interval))
	}
	return tokens
}

// state returns what an address has left. After an attempt that was not allowed, that is nothing,
// whatever the rounding.
func (g *Guard) state(a *address, now time.Time, allowed bool) State {
	tokens := g.tokens(a, now)
	state := State{Limit: g.limit, ResetAt: after(now, (float64(g.limit)-tokens)*float64(g.interval))}
	if allowed {
		state.Remaining = max(0, int(tokens+almost))
	}
	state.ReleaseAt = min(state.ResetAt, after(now, max(0, float64(state.Remaining+1)-tokens)*float64(g.interval)))
	if !allowed {
		state.ReleaseAt = max(state.ReleaseAt, instant.Of(now)+1)
	}
	return state
}

// after returns when a wait ends, in Unix milliseconds, rounded up so that it is never too early.
func after(now time.Time, wait float64) instant.Millis {
	return instant.Of(now.Add(time.Duration(wait) + time.Millisecond - 1))
}

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

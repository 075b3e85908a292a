// Package authfailures limits failed authentications by client address.
package authfailures

import (
	"context"
	"hash/maphash"
	"net/netip"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"golang.org/x/time/rate"

	"petgate/shared/core/instant"
)

const (
	// addressesMax bounds the addresses that are remembered, at about 200 bytes each. When there are more, one is
	// forgotten at random: a flood from very many addresses mostly forgets its own.
	addressesMax = 1 << 16
	shards       = 64
	// Redis is asked about failures at most callBurst + callsPerSecond times in any second, which is 200.
	callsPerSecond = 180
	callBurst      = 20
	// almost makes up for the little of a whole attempt that Redis and float64 lose. Not redis_rate's own Remaining, which
	// is one low for some rates for that reason.
	almost = 1e-3
)

// Guard limits failed authentications: how many well-formed but unknown tokens a client address may present in a
// minute. An IPv6 client is known by its /64, the least that a network is given.
//
// Each address has a bucket here, which alone decides when it is empty. A failure that passes it asks Redis, where all
// gateways share one bucket for each address. Redis is asked only so often a second in all, and only while it answers, so a
// flood from any number of addresses costs it no more. Its answer is remembered and decides until the address may try again.
// An attempt that is refused here is charged nowhere. Buckets refill evenly; the limit is also how many may come at once.
//
// A request with a valid key is never counted. All methods are safe for concurrent use.
type Guard struct {
	cfg      Config
	limit    int           // a minute and at once; 0 = off
	interval time.Duration // in which one attempt comes back
	calls    *rate.Limiter
	seed     maphash.Seed
	shards   [shards]addresses
}

type addresses struct {
	sync.Mutex
	known map[netip.Prefix]*address
}

// address is what is known of one client.
type address struct {
	here  rate.Limiter
	there time.Time // when the bucket in Redis is full again, by this gateway's clock
}

// State is how an address stands; instants are Unix milliseconds. It is zero when the guard is off.
type State struct {
	Limit, Remaining int
	ResetAt          instant.Millis // when nothing is charged any more if nothing more fails
	RetryAt          instant.Millis // when the next failure is answered 401 again; 0 = at once
}

// Config is what a Guard works with. All but Redis is required.
type Config struct {
	PerMinute int // failures that an address may make a minute, and at once; 0 is no limit
	Clock     func() time.Time
	Metrics   *Metrics
	// Redis has the buckets that gateways share; nil for one gateway alone.
	Redis Limiter
}

// Limiter takes one from a bucket. It fails at once while Redis does not answer.
type Limiter interface {
	Allow(ctx context.Context, name string, limit redis_rate.Limit) (*redis_rate.Result, error)
}

// New returns a guard of addresses that have not failed yet.
func New(cfg Config) *Guard {
	g := &Guard{cfg: cfg, limit: cfg.PerMinute, seed: maphash.MakeSeed(), calls: rate.NewLimiter(callsPerSecond, callBurst)}
	if g.limit > 0 {
		g.interval = time.Minute / time.Duration(g.limit)
	}
	for i := range g.shards {
		g.shards[i].known = make(map[netip.Prefix]*address)
	}
	return g
}

// Fail counts a failed attempt, and says how the address stands and whether the attempt was within the limit. If it
// was not, it is to be answered too_many_failed_attempts and was not counted. It asks Redis, within the budget, now
// and then.
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

// Known returns what this gateway knows of an address, without I/O.
func (g *Guard) Known(addr netip.Addr) State {
	if g.limit == 0 {
		return State{}
	}
	client, now := network(addr), g.cfg.Clock()
	s := g.shard(client)
	s.Lock()
	defer s.Unlock()
	return g.state(s.known[client], now)
}

// failHere charges the bucket of this gateway, unless the address is known to have to wait.
func (g *Guard) failHere(client netip.Prefix, now time.Time) (State, bool) {
	s := g.shard(client)
	s.Lock()
	defer s.Unlock()
	a := s.known[client]
	if a == nil {
		if len(s.known) >= addressesMax/shards {
			for other := range s.known { // begins anywhere
				delete(s.known, other)
				g.cfg.Metrics.addresses.Dec()
				break
			}
		}
		a = &address{here: *rate.NewLimiter(rate.Every(g.interval), g.limit)}
		s.known[client] = a
		g.cfg.Metrics.addresses.Inc()
	}
	if g.tokens(a, now)+almost < 1 || !a.here.AllowN(now, 1) {
		state := g.state(a, now)
		state.Remaining, state.RetryAt = 0, max(state.RetryAt, instant.Of(now)+1)
		return state, false
	}
	return g.state(a, now), true
}

// failThere charges the bucket that gateways share; nil if Redis is not asked or does not answer.
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
	s := g.shard(client)
	s.Lock()
	defer s.Unlock()
	a := s.known[client]
	if a == nil { // forgotten meanwhile
		a = &address{here: *rate.NewLimiter(rate.Every(g.interval), g.limit)}
	}
	a.there = now.Add(answer.ResetAfter)
	return g.state(a, now)
}

// tokens is how many attempts the fuller of what is known allows.
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

func (g *Guard) state(a *address, now time.Time) State {
	tokens := g.tokens(a, now) + almost
	remaining := max(0, int(tokens))
	state := State{
		Limit: g.limit, Remaining: remaining,
		ResetAt: after(now, (float64(g.limit)-tokens+almost)*float64(g.interval)),
	}
	if remaining == 0 {
		state.RetryAt = after(now, (1-tokens+almost)*float64(g.interval))
	}
	return state
}

// after is a wait's end in Unix milliseconds, rounded up: never early.
func after(now time.Time, wait float64) instant.Millis {
	return instant.Of(now.Add(time.Duration(wait) + time.Millisecond - 1))
}

func (g *Guard) shard(client netip.Prefix) *addresses {
	return &g.shards[maphash.Comparable(g.seed, client)%shards]
}

// network is the client that an address stands for.
func network(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	bits := 64
	if addr.Is4() {
		bits = 32
	}
	client, _ := addr.Prefix(bits) // the zero Addr has the zero Prefix, like any other client
	return client
}

package quotas

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
	guardShards  = 64
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
// Each address has a bucket here, which alone decides when it is empty. What passes it asks Redis, where all gateways
// share a bucket an address, but only so often a second in all, and only while Redis answers: a flood from however
// many addresses costs Redis no more. What Redis answered is remembered, and decides without it until the address may
// try again. An attempt that is refused here is charged nowhere. Buckets refill evenly; the limit is also what may
// come at once.
//
// A valid key never meets it. All methods are safe for concurrent use.
type Guard struct {
	limiter  *Limiter
	limit    int           // a minute and at once; 0 = off
	interval time.Duration // in which one attempt comes back
	calls    *rate.Limiter
	seed     maphash.Seed
	shards   [guardShards]addresses
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

// GuardState is how an address stands; instants are Unix milliseconds. It is zero when the guard is off.
type GuardState struct {
	Limit, Remaining int
	ResetAt          instant.Millis // when nothing is charged any more if nothing more fails
	RetryAt          instant.Millis // when the next failure is answered 401 again; 0 = at once
}

// Guard returns a guard that allows so many failures an address a minute, beside l's quotas and behind their breaker;
// 0 is no limit. It is called once.
func (l *Limiter) Guard(perMinute int) *Guard {
	g := &Guard{limiter: l, limit: perMinute, seed: maphash.MakeSeed(), calls: rate.NewLimiter(callsPerSecond, callBurst)}
	if perMinute > 0 {
		g.interval = time.Minute / time.Duration(perMinute)
	}
	for i := range g.shards {
		g.shards[i].known = make(map[netip.Prefix]*address)
	}
	return g
}

// Fail counts a failed attempt, and says how the address stands and whether the attempt was within the limit. If it
// was not, it is to be answered too_many_failed_attempts and was not counted. It asks Redis, within the budget, now
// and then.
func (g *Guard) Fail(addr netip.Addr) (state GuardState, allowed bool) {
	if g.limit == 0 {
		return GuardState{}, true
	}
	client := network(addr)
	now := g.limiter.config.Clock()
	if state, allowed = g.failHere(client, now); !allowed {
		g.limiter.metrics.guardLocal.Inc()
		return state, false
	}
	answer := g.failThere(client, now)
	if answer == nil {
		return state, true
	}
	if answer.Allowed == 0 {
		g.limiter.metrics.guardShared.Inc()
	}
	return g.learn(client, now, answer), answer.Allowed > 0
}

// Known tells how an address stands as far as this gateway knows, without I/O.
func (g *Guard) Known(addr netip.Addr) GuardState {
	if g.limit == 0 {
		return GuardState{}
	}
	client, now := network(addr), g.limiter.config.Clock()
	s := g.shard(client)
	s.Lock()
	defer s.Unlock()
	return g.state(s.known[client], now)
}

// failHere charges the bucket of this gateway, unless the address is known to have to wait.
func (g *Guard) failHere(client netip.Prefix, now time.Time) (GuardState, bool) {
	s := g.shard(client)
	s.Lock()
	defer s.Unlock()
	a := s.known[client]
	if a == nil {
		if len(s.known) >= addressesMax/guardShards {
			for other := range s.known { // begins anywhere
				delete(s.known, other)
				g.limiter.metrics.guardAddresses.Dec()
				break
			}
		}
		a = &address{here: *rate.NewLimiter(rate.Every(g.interval), g.limit)}
		s.known[client] = a
		g.limiter.metrics.guardAddresses.Inc()
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
	l := g.limiter
	if l.rates == nil || !g.calls.AllowN(now, 1) {
		return nil
	}
	key := l.config.Prefix + "failed:" + client.String()
	n := l.laneOf("rate:" + key) // as redis_rate names it
	if n.down.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(l.closing, l.config.Budget)
	defer cancel()
	var answer *redis_rate.Result
	err := n.ask(func() (err error) {
		answer, err = l.rates.Allow(ctx, key, redis_rate.PerMinute(g.limit))
		return err
	})
	if err != nil {
		return nil
	}
	return answer
}

// learn remembers what Redis answered.
func (g *Guard) learn(client netip.Prefix, now time.Time, answer *redis_rate.Result) GuardState {
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

func (g *Guard) state(a *address, now time.Time) GuardState {
	tokens := g.tokens(a, now) + almost
	remaining := max(0, int(tokens))
	state := GuardState{
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
	return &g.shards[maphash.Comparable(g.seed, client)%guardShards]
}

// network is whom an address stands for.
func network(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	bits := 64
	if addr.Is4() {
		bits = 32
	}
	client, _ := addr.Prefix(bits) // the zero Addr has the zero Prefix, like any other client
	return client
}

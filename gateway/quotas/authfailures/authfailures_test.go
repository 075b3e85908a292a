package authfailures

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	goredis "github.com/redis/go-redis/v9"

	"petgate/shared/core/instant"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

var client = netip.MustParseAddr("203.0.113.7")

func alone(perMinute int) *Guard { return beside(nil, perMinute) }

func beside(redis *shared, perMinute int) *Guard {
	cfg := Config{PerMinute: perMinute, Clock: time.Now, Metrics: NewMetrics(nil)}
	if redis != nil {
		cfg.Redis = redis
	}
	return New(cfg)
}

// shared is a real Redis that counts its calls and can be cut off.
type shared struct {
	rates  *redis_rate.Limiter
	prefix string
	calls  atomic.Int64
	down   atomic.Bool
}

func dial(t *testing.T) *shared {
	url, prefix := testkit.Redis(t)
	client := goredis.NewClient(must.Get[*goredis.Options](t)(goredis.ParseURL(url)))
	t.Cleanup(func() { _ = client.Close() })
	return &shared{rates: redis_rate.NewLimiter(client), prefix: prefix}
}

func (s *shared) Allow(ctx context.Context, name string, limit redis_rate.Limit) (*redis_rate.Result, error) {
	if s.down.Load() {
		return nil, errors.New("down")
	}
	s.calls.Add(1)
	return s.rates.Allow(ctx, s.prefix+name, limit)
}

func fail(g *Guard, addr netip.Addr, count int) (allowed int) {
	for range count {
		if _, ok := g.Fail(addr); ok {
			allowed++
		}
	}
	return allowed
}

func TestGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := alone(120)
		now := func() instant.Millis { return instant.Of(time.Now()) }
		if s := g.Known(client); s != (State{Limit: 120, Remaining: 120, ResetAt: now(), ReleaseAt: now()}) {
			t.Errorf("an unknown address: %+v", s)
		}
		s, ok := g.Fail(client)
		if want := (State{Limit: 120, Remaining: 119, ResetAt: now() + 500, ReleaseAt: now() + 500}); !ok || s != want {
			t.Errorf("after one failure: %+v, %t, want %+v", s, ok, want)
		}
		must.Equal(t, fail(g, client, 1000), 119, "how many more are allowed")
		s, ok = g.Fail(client)
		if want := (State{Limit: 120, ResetAt: now() + 60_000, ReleaseAt: now() + 500}); ok || s != want {
			t.Errorf("after too many: %+v, %t, want %+v", s, ok, want)
		}
		must.Equal(t, g.Known(client), s, "what is known")
		if _, ok := g.Fail(netip.MustParseAddr("203.0.113.8")); !ok {
			t.Error("another address has to wait too")
		}
		time.Sleep(time.Until(s.ReleaseAt.Time()))
		must.Equal(t, fail(g, client, 5), 1, "how many are allowed at ReleaseAt")
		time.Sleep(time.Minute)
		must.Equal(t, fail(g, client, 1000), 120, "how many are allowed a minute later")
	})
}

func TestGuardNetworks(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"203.0.113.7", "203.0.113.8", false},
		{"203.0.113.7", "::ffff:203.0.113.7", true},
		{"2001:db8:1:2::1", "2001:db8:1:2:ffff::9", true},
		{"2001:db8:1:2::1", "2001:db8:1:3::1", false},
		{"fe80::1%eth0", "fe80::2%eth1", true},
	} {
		must.Equal(t, network(netip.MustParseAddr(c.a)) == network(netip.MustParseAddr(c.b)), c.same,
			"whether %s and %s are one client", c.a, c.b)
	}
	if _, ok := alone(1).Fail(netip.Addr{}); !ok { // a unix socket's peer
		t.Error("a client without an address is refused at once")
	}
	if g := alone(0); fail(g, client, 1000) != 1000 || g.Known(client) != (State{}) {
		t.Errorf("without a limit: %+v", g.Known(client))
	}
}

// Gateways share an address's failures through Redis. Without it, each goes on alone.
func TestGuardIsShared(t *testing.T) {
	redis := dial(t)
	one, two, three := beside(redis, 10), beside(redis, 10), beside(redis, 10)
	must.Equal(t, fail(one, client, 6), 6, "how many are allowed at the first gateway")
	if s, ok := two.Fail(client); !ok || s.Remaining != 3 || two.Known(client).Remaining != 3 ||
		fail(two, client, 3) != 3 {
		t.Errorf("the first at the second gateway: %+v, %t", s, ok)
	}
	if s, ok := three.Fail(client); ok || s.Remaining != 0 || s.ReleaseAt <= instant.Of(time.Now()) {
		t.Errorf("the eleventh: %+v, %t", s, ok)
	}
	// A refusal of Redis holds here without further calls.
	before := redis.calls.Load()
	if n := fail(three, client, 100); n != 0 || redis.calls.Load() != before {
		t.Errorf("after Redis refused: %d allowed, %d calls", n, redis.calls.Load()-before)
	}
	redis.down.Store(true)
	must.Equal(t, fail(one, client, 100), 4, "how many more are allowed at the first gateway without Redis")
	redis.down.Store(false)
	fail(one, netip.MustParseAddr("203.0.113.8"), 1)
	for counter, want := range map[prometheus.Collector]float64{
		one.cfg.Metrics.local: 96, one.cfg.Metrics.addresses: 2,
		three.cfg.Metrics.local: 100, three.cfg.Metrics.shared: 1,
	} {
		if n := testutil.ToFloat64(counter); n != want || redis.calls.Load() != before+1 {
			t.Errorf("%g counted, want %g; %d calls after Redis is back", n, want, redis.calls.Load()-before)
		}
	}
}

// Remaining is also right for rates at which redis_rate's own Remaining is too low by one.
func TestGuardRates(t *testing.T) {
	redis := dial(t)
	for _, limit := range []int{1, 7, 11, 100, 120} {
		g := beside(redis, limit)
		addr := netip.AddrFrom4([4]byte{198, 51, 100, byte(limit)})
		for used := 1; used <= min(limit, 20); used++ {
			if s, ok := g.Fail(addr); !ok || s.Remaining != limit-used {
				t.Fatalf("limit %d: failure %d: %+v, %t", limit, used, s, ok)
			}
		}
	}
}

// A flood of unknown tokens from many addresses costs Redis 200 calls a second at most, and a
// bounded number of addresses is kept.
func TestGuardFlood(t *testing.T) {
	redis := dial(t)
	g := beside(redis, 120)
	count := testkit.Size(150_000, 3_000_000)
	began := time.Now()
	addr := netip.MustParseAddr("2001:db8::").As16()
	for i := range count {
		binary.BigEndian.PutUint32(addr[4:], uint32(i))
		if _, ok := g.Fail(netip.AddrFrom16(addr)); !ok {
			t.Fatal("an address's first failure is refused")
		}
	}
	took, calls, kept := time.Since(began), redis.calls.Load(), g.buckets.Len()
	t.Logf("%d failures of as many addresses in %v: %d Redis calls, %d addresses kept", count,
		took.Round(time.Millisecond), calls, kept)
	if most := int64(20 + 180*took.Seconds() + 1); calls > most {
		t.Errorf("%d calls in %v, want at most %d", calls, took, most)
	}
	must.Equal(t, kept <= addressesMax, true, "whether %d addresses may be kept", kept)
}

package quotas

import (
	"encoding/binary"
	"net/netip"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"petgate/shared/core/instant"
	"petgate/shared/testkit"
)

var client = netip.MustParseAddr("203.0.113.7")

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
		l := openLimiter(t, Config{})
		defer l.Close(background)
		g := l.Guard(120)
		now := time.Now().UnixMilli
		if s := g.Known(client); s != (GuardState{Limit: 120, Remaining: 120, ResetAt: instant.Millis(now())}) {
			t.Errorf("an unknown address: %+v", s)
		}
		s, ok := g.Fail(client)
		if want := (GuardState{Limit: 120, Remaining: 119, ResetAt: instant.Millis(now() + 500)}); !ok || s != want {
			t.Errorf("after one failure: %+v, %t, want %+v", s, ok, want)
		}
		if n := fail(g, client, 1000); n != 119 {
			t.Errorf("%d more allowed, want 119", n)
		}
		s, ok = g.Fail(client)
		if want := (GuardState{Limit: 120, ResetAt: instant.Millis(now() + 60_000), RetryAt: instant.Millis(now() + 500)}); ok || s != want {
			t.Errorf("after too many: %+v, %t, want %+v", s, ok, want)
		}
		if known := g.Known(client); known != s {
			t.Errorf("known: %+v, want %+v", known, s)
		}
		if _, ok := g.Fail(netip.MustParseAddr("203.0.113.8")); !ok {
			t.Error("another address has to wait too")
		}
		time.Sleep(time.Until(s.RetryAt.Time()))
		if n := fail(g, client, 5); n != 1 {
			t.Errorf("%d allowed at RetryAt, want 1", n)
		}
		time.Sleep(time.Minute)
		if n := fail(g, client, 1000); n != 120 {
			t.Errorf("%d allowed a minute later, want 120", n)
		}
	})
}

func TestGuardOff(t *testing.T) {
	l := openLimiter(t, Config{})
	g := l.Guard(0)
	if n := fail(g, client, 1000); n != 1000 || g.Known(client) != (GuardState{}) {
		t.Errorf("%d of 1,000 allowed without a limit, known %+v", n, g.Known(client))
	}
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
		if got := network(netip.MustParseAddr(c.a)) == network(netip.MustParseAddr(c.b)); got != c.same {
			t.Errorf("%s and %s are the same client: %t", c.a, c.b, got)
		}
	}
	l := openLimiter(t, Config{})
	if _, ok := l.Guard(1).Fail(netip.Addr{}); !ok { // a unix socket's peer
		t.Error("a client without an address is refused at once")
	}
}

// Gateways share an address's failures through Redis.
func TestGuardIsShared(t *testing.T) {
	first := openShared(t, Config{Budget: time.Second})
	second := openLimiter(t, Config{Budget: time.Second, RedisURL: first.config.RedisURL, Prefix: first.config.Prefix})
	one, two := first.Guard(10), second.Guard(10)
	if n := fail(one, client, 6); n != 6 {
		t.Fatalf("%d allowed at the first gateway, want 6", n)
	}
	allowed, calls := 0, 0
	for range 100 {
		s, ok := two.Fail(client)
		calls++
		if !ok {
			if s.Remaining != 0 || s.RetryAt <= instant.Of(time.Now()) {
				t.Errorf("refused with %+v", s)
			}
			break
		}
		allowed++
	}
	if allowed != 4 || calls != 5 {
		t.Errorf("%d allowed at the second gateway, want 4", allowed)
	}
	// What Redis said holds without it.
	before := commandCalls(t, first, "evalsha")
	if n := fail(two, client, 100); n != 0 {
		t.Errorf("%d allowed after Redis refused", n)
	}
	if n := commandCalls(t, first, "evalsha") - before; n != 0 {
		t.Errorf("%d calls while the refusal holds", n)
	}
}

// Remaining is right also with rates of which redis_rate's own is one low.
func TestGuardRates(t *testing.T) {
	l := openShared(t, Config{Budget: time.Second})
	for _, limit := range []int{1, 7, 11, 100, 120} {
		g := l.Guard(limit)
		addr := netip.AddrFrom4([4]byte{198, 51, 100, byte(limit)})
		for used := 1; used <= min(limit, 20); used++ {
			if s, ok := g.Fail(addr); !ok || s.Remaining != limit-used {
				t.Fatalf("limit %d: failure %d: %+v, %t", limit, used, s, ok)
			}
		}
	}
}

// A flood of unknown tokens from many addresses costs Redis 200 calls a second at most, and bounded memory.
func TestGuardFlood(t *testing.T) {
	l := openShared(t, Config{Budget: time.Second})
	g := l.Guard(120)
	count := 150_000
	if testkit.FullSize {
		count = 3_000_000
	}
	memory := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	memoryBefore := memory()
	callsBefore := commandCalls(t, l, "evalsha")
	began := time.Now()
	addr := netip.MustParseAddr("2001:db8::").As16()
	for i := range count {
		binary.BigEndian.PutUint32(addr[4:], uint32(i))
		if _, ok := g.Fail(netip.AddrFrom16(addr)); !ok {
			t.Fatal("an address's first failure is refused")
		}
	}
	took := time.Since(began)
	calls := commandCalls(t, l, "evalsha") - callsBefore
	kept := 0
	for i := range g.shards {
		kept += len(g.shards[i].known)
	}
	grown := int64(memory()) - int64(memoryBefore)
	t.Logf("%d failures of as many addresses in %v: %d Redis calls, %d addresses kept in %d kB",
		count, took.Round(time.Millisecond), calls, kept, grown/1024)
	if most := int(callBurst + callsPerSecond*took.Seconds() + 1); calls > most {
		t.Errorf("%d calls in %v, want at most %d", calls, took, most)
	}
	if kept > addressesMax || grown > 40<<20 {
		t.Errorf("%d addresses are kept in %d bytes", kept, grown)
	}
	runtime.KeepAlive(g)
}

// Without Redis the guard goes on alone.
func TestGuardWithoutRedis(t *testing.T) {
	server := testkit.StartRedis(t)
	l := openLimiter(t, Config{RedisURL: server.URL})
	g := l.Guard(10)
	if n := fail(g, client, 4); n != 4 {
		t.Fatalf("%d allowed, want 4", n)
	}
	server.Kill(t)
	if n := fail(g, client, 100); n != 6 {
		t.Errorf("%d allowed without Redis, want 6", n)
	}
	if l.Mode() != modeOutage {
		t.Errorf("mode %s", l.Mode())
	}
}

func BenchmarkGuard(b *testing.B) {
	l := openLimiter(b, Config{})
	g := l.Guard(120)
	b.Run("fail", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			g.Fail(client)
		}
	})
	b.Run("known", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			g.Known(client)
		}
	})
}

package edge_test

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"petgate/gateway/quotas"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
)

// newFleetRig returns a rig with a limit for a minute, and the time after now that its clock shows. Loopback may be a trusted proxy.
func newFleetRig(t *testing.T, limit int64, trusted ...netip.Prefix) (*rig, *atomic.Int64) {
	t.Helper()
	var passed atomic.Int64 // ms
	clock := func() time.Time { return (instant.Of(now) + instant.Millis(passed.Load())).Time() }
	limits := func(id.Key) plan.Limits { return plan.Limits{Minute: limit, Day: 1_000_000} }
	return newQuotaRig(t, quotas.Config{}, limits, clock, func(s *setup) { s.TrustedProxies = trusted }), &passed
}

var loopback = netip.MustParsePrefix("127.0.0.0/8")

// Sixty workers share a key for 20 requests a minute. Each waits for Retry-After. They start within 20 s, so most of them have not seen
// the first 429. None is struck: the gateway knows them by their connections, or by their addresses if they come through a proxy.
func TestFleetThatWaitsIsNotStruck(t *testing.T) {
	const workers, lasting = 60, 150_000
	f := func(trusted ...netip.Prefix) {
		t.Helper()
		r, passed := newFleetRig(t, 20, trusted...)
		proxy := r.dial(t)
		next, clients := make([]int64, workers), make([]*rawClient, workers)
		for i := range clients {
			next[i], clients[i] = int64(i)*20_000/workers, r.dial(t)
		}
		refused := 0
		for {
			at := slices.Min(next)
			if passed.Store(at); at > lasting {
				break
			}
			i := slices.Index(next, at)
			client, address := clients[i], "192.0.2."+strconv.Itoa(i)
			if trusted != nil {
				client = proxy
			}
			got := client.ask(t, rawKey("Authorization: Bearer "+token, "X-Forwarded-For: "+address))
			if next[i] += 100; got.Status != 429 {
				continue
			}
			refused++
			wait, err := strconv.ParseInt(got.field("retry-after"), 10, 64)
			if err != nil || !strings.Contains(got.Body, `"strikesUntilBan":30`) {
				t.Fatalf("after %d ms, refusal %d: %s", at, refused, got.Body)
			}
			next[i] += wait * 1000
		}
		if refused < 2*workers {
			t.Errorf("%d refusals of %d workers", refused, workers)
		}
	}
	f()
	f(loopback)
}

// A client that calls on after a 429 is banned within 60 s, with one connection or a new one for each request. It calls twice a second.
// The first two refusals may cross the 429. Then 30 strikes ban it on one connection, and 40, as many as the limit, if its connections
// say nothing about it.
func TestClientThatIgnoresIsBanned(t *testing.T) {
	f := func(name string, strikes int64, hangsUp bool, request string, trusted ...netip.Prefix) {
		t.Helper()
		r, passed := newFleetRig(t, 40, trusted...)
		client := r.dial(t)
		told := int64(0)
		for ; ; passed.Add(500) {
			got := client.ask(t, request)
			if got.Status == 429 && told == 0 {
				told = passed.Load()
			}
			if codeOf(got) == "key_banned" {
				break
			}
			if passed.Load() > 80_000 {
				t.Fatalf("%s: no ban: %d %s", name, got.Status, got.Body)
			}
			if hangsUp {
				client.close()
			}
		}
		// A connection that has just been closed may still be open for the gateway.
		if refused := (passed.Load() - told) / 500; refused < 2+strikes || refused > 2+strikes && !hangsUp || refused > 120 {
			t.Errorf("%s: banned after %d refusals, want 2 and %d", name, refused, strikes)
		}
	}
	f("one connection", 30, false, rawGet())
	f("a new connection for each request", 40, true, rawGet())
	f("Connection: close", 40, true, rawGet("Connection: close"))
	f("behind a proxy", 40, false, rawKey("Authorization: Bearer "+token, "X-Forwarded-For: 192.0.2.1"), loopback)
}

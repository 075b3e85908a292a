package edge_test

import (
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"petgate/gateway/quotas"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
)

var loopback = netip.MustParsePrefix("127.0.0.0/8")

// A client that calls on after a 429 is banned within 60 s, with one connection or a new one for each request. It calls twice a second.
// The first two refusals may cross the 429. Then 30 strikes ban it on one connection, and 40, as many as the limit, if its connections
// say nothing about it.
func TestClientThatIgnoresIsBanned(t *testing.T) {
	f := func(name string, strikes int64, hangsUp bool, request string, trusted ...netip.Prefix) {
		t.Helper()
		var passed atomic.Int64 // ms
		clock := func() time.Time { return (instant.Of(now) + instant.Millis(passed.Load())).Time() }
		limits := func(id.Key) plan.Limits { return plan.Limits{Minute: 40, Day: 1_000_000} }
		r := newQuotaRig(t, quotas.Config{}, limits, clock, func(s *setup) { s.TrustedProxies = trusted })
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

package edge_test

import (
	"net/netip"
	"strings"
	"testing"

	"petgate/gateway/http1"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// One tenant gets nine tenths of an upstream's slots while no other one needs them, and not the last tenth. A request that gets none is
// not charged.
func TestTenantHasAShare(t *testing.T) {
	const slots, share = 20, 18
	r := newRig(t, func(s *setup) { s.UpstreamTimeout, s.UpstreamConnsMax, s.TenantConnsMax = patience, slots, slots/4 })
	slow := r.hold(t)
	for range share {
		slow.send(t, r.dial(t))
	}
	got := r.dial(t).ask(t, rawGet())
	if err := got.refusal(); err != nil || got.Code != "upstream_overloaded" {
		t.Errorf("the tenant's next request got %d %s %v", got.Status, got.Code, err)
	}
	if got := r.admitted.Load(); got != share {
		t.Errorf("%d requests were charged, want %d", got, share)
	}
	other := r.dial(t).ask(t, fromReader)
	if other.Status != 200 {
		t.Errorf("another tenant's request got %d %s", other.Status, other.Body)
	}
	slow.end(t, share)
	if got := r.dial(t).ask(t, rawGet()); got.Status != 200 {
		t.Errorf("afterwards: %d", got.Status)
	}
}

// fromReader is a request of another tenant.
var fromReader = rawBare("GET /v1/pets HTTP/1.1", "Host: a", "Authorization: Bearer "+readerToken)

// One tenant gets nine tenths of the connections while no other one needs them. Those of a trusted proxy belong to no tenant.
func TestTenantHasAShareOfConnections(t *testing.T) {
	const most = 40
	for name, trusted := range map[string][]netip.Prefix{"direct": nil, "proxy": {netip.MustParsePrefix("127.0.0.0/8")}} {
		r := newRig(t, func(s *setup) { s.ConnectionsMax, s.ReadTimeout, s.TrustedProxies = most, patience, trusted })
		clients := make([]*rawClient, most-most/10+1)
		refused := 0
		for i := range clients {
			clients[i] = r.dial(t)
			if got := clients[i].ask(t, rawGet()); codeOf(got) == "overloaded" && strings.Contains(got.Body, "your account") {
				refused++
			} else if got.Status != 200 {
				t.Errorf("%s: connection %d got %d %s", name, i, got.Status, got.Body)
			}
		}
		if want := map[string]int{"direct": 1, "proxy": 0}[name]; refused != want {
			t.Errorf("%s: %d connections were refused, want %d", name, refused, want)
		}
		if got := r.dial(t).ask(t, fromReader); got.Status != 200 {
			t.Errorf("%s: another tenant got %d %s", name, got.Status, got.Body)
		}
		clients[0].close()
		clients[1].close() // the other tenant has one
		testkit.Eventually(t, patience, "a connection again", func() bool { return r.dial(t).ask(t, rawGet()).Status == 200 })
	}
}

// One tenant's large bodies get nine tenths of the memory for bodies while no other one needs it, also if none of them ever ends, and if
// they pass through in parts.
func TestTenantHasAShareOfBodies(t *testing.T) {
	for _, longest := range []int{bodyMax, 140_000} {
		t.Run(decimal(longest), func(t *testing.T) {
			const most = 20
			r := newRig(t, func(s *setup) {
				s.BodyBytesMax, s.BodiesBytesMax, s.ReadTimeout = longest, most*http1.PartBytesMax, patience
			})
			body := repeat("a", longest-5000)
			upload := rawPost("Content-Length: "+decimal(len(body)), "Expect: 100-continue")
			var sending []*rawClient
			for range most - most/10 {
				c := r.say(t, upload)
				must.Get[int](t)(c.in.Discard(len("HTTP/1.1 100 Continue\r\n\r\n")))
				sending = append(sending, c)
			}
			got := r.dial(t).ask(t, upload)
			if codeOf(got) != "overloaded" || !strings.Contains(got.Body, "your account") || !got.Closes {
				t.Errorf("one more body got %d %s", got.Status, got.Body)
			}
			if got := r.dial(t).ask(t, rawGet()); got.Status != 200 {
				t.Errorf("a request without a body got %d", got.Status)
			}
			other := r.say(t, strings.Replace(upload, token, otherToken, 1))
			if _, err := other.in.Discard(len("HTTP/1.1 100 Continue\r\n\r\n")); err != nil {
				t.Errorf("another tenant's body: %v", err)
			}
			for _, c := range append(sending, other) {
				if got := c.ask(t, body); got.Status != 201 {
					t.Errorf("a body got %d", got.Status)
				}
			}
			testkit.Eventually(t, patience, "room again", func() bool {
				return r.dial(t).ask(t, rawPost("Content-Length: "+decimal(len(body)))+body).Status == 201
			})
		})
	}
}

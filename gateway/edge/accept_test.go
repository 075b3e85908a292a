package edge

import (
	"net/netip"
	"strings"
	"testing"
)

func TestClientAddress(t *testing.T) {
	f := func(peer, forwardedFor, want string) {
		t.Helper()
		e := &Edge{cfg: Config{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}
		var c claims
		for line := range strings.SplitSeq(forwardedFor, "\n") {
			c.add([]byte("X-Forwarded-For"), []byte(line))
		}
		if got := e.clientAddress(netip.MustParseAddr(peer), c.forwardedFor); got != netip.MustParseAddr(want) {
			t.Errorf("%s with %q: %v, want %s", peer, forwardedFor, got, want)
		}
	}
	f("192.0.2.1", "", "192.0.2.1")
	f("192.0.2.1", "198.51.100.1", "192.0.2.1")
	f("10.0.0.1", "", "10.0.0.1")
	f("10.0.0.1", "198.51.100.1", "198.51.100.1")
	f("10.0.0.1", "203.0.113.9, 198.51.100.1 , 10.0.0.2", "198.51.100.1")
	f("10.0.0.1", "198.51.100.1, forged, 10.0.0.2", "10.0.0.2")
	f("10.0.0.1", "::ffff:198.51.100.1", "198.51.100.1")
	f("10.0.0.1", "10.0.0.3,10.0.0.2", "10.0.0.3")
	f("10.0.0.1", "203.0.113.9\n198.51.100.1", "198.51.100.1")
	f("10.0.0.1", "203.0.113.9\n198.51.100.1\n10.0.0.2", "198.51.100.1")
}

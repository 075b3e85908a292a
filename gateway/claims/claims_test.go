package claims

import (
	"net/netip"
	"strings"
	"testing"
)

func TestClientAddress(t *testing.T) {
	f := func(peer, lines, want string) {
		t.Helper()
		trusted := Proxies{netip.MustParsePrefix("10.0.0.0/8")}
		var c Claims
		var wanted netip.Addr // unknown
		if want != "" {
			wanted = netip.MustParseAddr(want)
		}
		for line := range strings.SplitSeq(lines, "\n") {
			c.add(forwardedFor, []byte(line))
		}
		if got := trusted.Client(netip.MustParseAddr(peer), &c); got != wanted {
			t.Errorf("%s with %q: %v, want %s", peer, lines, got, want)
		}
	}
	f("192.0.2.1", "", "192.0.2.1")
	f("192.0.2.1", "198.51.100.1", "192.0.2.1")
	f("10.0.0.1", "", "10.0.0.1")
	f("10.0.0.1", "198.51.100.1", "198.51.100.1")
	f("10.0.0.1", "203.0.113.9, 198.51.100.1 , 10.0.0.2", "198.51.100.1")
	f("10.0.0.1", "198.51.100.1, forged, 10.0.0.2", "")
	f("10.0.0.1", "unknown", "")
	f("10.0.0.1", "10.0.0.7x", "")
	f("10.0.0.1", "fe80::1%eth0", "")
	f("10.0.0.1", "203.0.113.7:4711", "203.0.113.7")
	f("10.0.0.1", "[2001:db8::1]:4711", "2001:db8::1")
	f("10.0.0.1", "203.0.113.7:4711, 10.0.0.2:80", "203.0.113.7")
	f("10.0.0.1", "::ffff:198.51.100.1", "198.51.100.1")
	f("10.0.0.1", "10.0.0.3,10.0.0.2", "10.0.0.3")
	f("10.0.0.1", "203.0.113.9\n198.51.100.1", "198.51.100.1")
	f("10.0.0.1", "203.0.113.9\n198.51.100.1\n10.0.0.2", "198.51.100.1")
}

package claims

import (
	"net/netip"
	"strings"
	"testing"

	"petgate/shared/testkit/must"
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
		must.Equal(t, trusted.Client(netip.MustParseAddr(peer), &c), wanted, "%s with %q", peer, lines)
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

// A request ID is kept if it has a good length and only harmless characters. Only a trusted proxy
// may say which protocol its client used.
func TestRequestIDAndProtocol(t *testing.T) {
	for id, isKept := range map[string]bool{
		"aZ09-_78": true, "1234567": false, "12345678.": false, "ptg_live_0123abcD": false,
		strings.Repeat("a", 64): true, strings.Repeat("a", 65): false,
	} {
		var c Claims
		c.add(requestID, []byte(id))
		must.Equal(t, string(c.RequestID()) == id, isKept, "%s is kept", id)
	}
	trusted := Proxies{netip.MustParsePrefix("10.0.0.0/8")}
	f := func(peer string, isTLS bool, said, want string) {
		t.Helper()
		var c Claims
		c.add(forwardedProto, []byte(said))
		must.Equal(t, trusted.Protocol(netip.MustParseAddr(peer), isTLS, &c), want, "%s, TLS %t, %s", peer, isTLS, said)
	}
	f("10.0.0.1", false, "HTTPS", "https")
	f("10.0.0.1", true, "http", "http")
	f("10.0.0.1", true, "ftp", "https")
	f("192.0.2.1", false, "https", "http")
}

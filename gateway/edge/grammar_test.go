package edge

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"petgate/shared/core/ban"
	"petgate/shared/core/id"

	"petgate/shared/core/instant"
)

func TestCheckPath(t *testing.T) {
	f := func(path, want string) {
		t.Helper()
		if got := checkPath([]byte(path)); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
	f("/", "")
	f("/v1/pets/7", "")
	f("/v1/pets/", "")
	f("/v1/%7ea/.a/...", "")
	f("//", pathHasEmpties)
	f("/a//b", pathHasEmpties)
	f("/a/..", pathHasDots)
	f("/a/./b", pathHasDots)
	f("/a/%2E%2e/b", pathHasDots)
	f("/a/.%2e;p=1/b", pathHasDots)
	f("/a%2Fb", pathHasBadEncoding)
	f("/a%5cb", pathHasBadEncoding)
	f("/a%00", pathHasBadEncoding)
	f("/a%2", pathHasBadEncoding)
	f("/a%zz", pathHasBadEncoding)
	f("/a b", pathHasStrayBytes)
	f(`/a\b`, pathHasStrayBytes)
	f("/é", pathHasStrayBytes)
}

func TestIsHost(t *testing.T) {
	f := func(host string, want bool) {
		t.Helper()
		if got := isHost([]byte(host)); got != want {
			t.Errorf("%q: %t, want %t", host, got, want)
		}
	}
	f("a", true)
	f("a_b.example:8080", true)
	f("[::1]:80", true)
	f("192.0.2.1:", true)
	f("", false)
	f(":80", false)
	f("user@a", false)
	f("a:65536", false)
	f("a:80:80", false)
	f("[::1", false)
	f("[::1]x", false)
	f("[192.0.2.1]", false)
	f("[fe80::1%eth0]", false)
	f(strings.Repeat("a", hostBytesMax+1), false)
}

func TestParseDigits(t *testing.T) {
	f := func(text string, want int64, ok bool) {
		t.Helper()
		if got, gotOK := parseDigits([]byte(text)); got != want && ok || gotOK != ok {
			t.Errorf("%q: %d %t, want %d %t", text, got, gotOK, want, ok)
		}
	}
	f("0", 0, true)
	f("007", 7, true)
	f("999999999999999999", 999999999999999999, true)
	f("1000000000000000000", 0, false)
	f("9223372036854775808", 0, false)
	f("18446744073709551621", 0, false)
	f("", 0, false)
	f("+5", 0, false)
}

func TestParseChunkSize(t *testing.T) {
	f := func(text string, want int64, ok bool) {
		t.Helper()
		if got, gotOK := parseChunkSize([]byte(text)); got != want && ok || gotOK != ok {
			t.Errorf("%q: %d %t, want %d %t", text, got, gotOK, want, ok)
		}
	}
	f("0", 0, true)
	f("aF;x=y", 0xaf, true)
	f("3fffffffffffffff", 1<<62-1, true)
	f("ffffffffffffffff", 0, false)
	f("10000000000000005", 0, false)
	f("", 0, false)
	f("5 ", 0, false)
	f("5;\x00", 0, false)
}

func TestClientAddress(t *testing.T) {
	f := func(peer, forwardedFor, want string) {
		t.Helper()
		e := &Edge{cfg: Config{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}
		x := &exchange{state: state{wire: &wire{peer: netip.MustParseAddr(peer)}}}
		for line := range strings.SplitSeq(forwardedFor, "\n") {
			x.head.readField([]byte("X-Forwarded-For"), []byte(line))
		}
		if got := e.clientAddress(x); got != netip.MustParseAddr(want) {
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

func TestAppendTrace(t *testing.T) {
	const trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	f := func(parent string, continued bool, flags string) {
		t.Helper()
		text, got := appendTrace(nil, []byte(parent))
		parts := strings.Split(string(text), "-")
		if got != continued || len(text) != 55 || len(parts) != 4 || parts[0] != "00" || parts[3] != flags ||
			(parts[1] == trace) != continued || parts[2] == span {
			t.Errorf("%q: %s %t, want continued: %t", parent, text, got, continued)
		}
	}
	f("00-"+trace+"-"+span+"-01", true, "01")
	f("00-"+trace+"-"+span+"-00", true, "00")
	f("00-"+trace+"-"+span+"-ff", true, "01")
	f("cc-"+trace+"-"+span+"-01-more", true, "01")
	f("", false, "00")
	f("ff-"+trace+"-"+span+"-01", false, "00")
	f("00-"+trace+"-"+span+"-01-more", false, "00")
	f("00-"+strings.ToUpper(trace)+"-"+span+"-01", false, "00")
	f("00-"+strings.Repeat("0", 32)+"-"+span+"-01", false, "00")
	f("00-"+trace+"-"+strings.Repeat("0", 16)+"-01", false, "00")
}

// A block is found wherever its bytes are split, and a bare LF is never a line end.
func TestBlock(t *testing.T) {
	f := func(text string, want found) {
		t.Helper()
		for cut := range len(text) {
			w := window{buf: make([]byte, 64)}
			scanned := 0
			var got found
			var block []byte
			for _, piece := range []string{text[:cut], text[cut:]} {
				w.end += copy(w.room(), piece)
				if block, got = w.block(&scanned); got != incomplete {
					break
				}
			}
			if got != want || got == complete && !bytes.HasSuffix(block, []byte("\r\n\r\n")) {
				t.Errorf("%q, cut at %d: %d %q, want %d", text, cut, got, block, want)
			}
		}
	}
	f("GET / HTTP/1.1\r\nHost: a\r\n\r\n", complete)
	f("GET / HTTP/1.1\r\nHost: a\r\n\r\nrest", complete)
	f("GET / HTTP/1.1\r\nHost: a\r\n", incomplete)
	f("GET / HTTP/1.1\nHost: a\r\n\r\n", broken)
	f("GET / HTTP/1.1\r\nHost: a\r\n\n", broken)
}

// However many keys are refused, their records are bounded.
func TestStrikesAreBounded(t *testing.T) {
	s := newStrikes(ban.Product)
	now := instant.Of(time.Now())
	for i := range 3 * strikeRecordsMax {
		k := id.Key{byte(i), byte(i >> 8)}
		s.refused(k, now, now+1000)
	}
	if n := len(s.shards[0].records); n != strikeRecordsMax {
		t.Errorf("%d records, want %d", n, strikeRecordsMax)
	}
}

// A ban that another gateway imposed makes the next one here longer.
func TestBansOfOthersCount(t *testing.T) {
	rule := ban.Product
	rule.After = 1
	f := func(left, want time.Duration) {
		t.Helper()
		s, k, now := newStrikes(rule), id.Key{1}, instant.Of(time.Now())
		for range 3 { // seen again, it is the same ban
			s.banned(k, now, now.Add(left))
		}
		now = now.Add(left)
		s.refused(k, now, now+600_000)
		now = now.Add(rule.Grace)
		if out := s.refused(k, now, now+600_000); out.BannedUntil != now.Add(want) {
			t.Errorf("%v left of the other one: banned for %d ms, want %v", left, out.BannedUntil-now, want)
		}
	}
	f(time.Minute, 2*time.Minute)
	f(30*time.Second, 2*time.Minute)
	f(90*time.Second, 4*time.Minute)
	f(time.Hour, time.Hour)
}

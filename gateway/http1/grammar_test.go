package http1

import (
	"bytes"
	"strings"
	"testing"
)

func TestCheckPath(t *testing.T) {
	f := func(path string, want error) {
		t.Helper()
		if got := checkPath([]byte(path)); got != want {
			t.Errorf("%q: %v, want %v", path, got, want)
		}
	}
	f("/", nil)
	f("/v1/pets/7", nil)
	f("/v1/pets/", nil)
	f("/v1/%7ea/.a/...", nil)
	f("//", errPathEmpty)
	f("/a//b", errPathEmpty)
	f("/a/..", errPathDots)
	f("/a/./b", errPathDots)
	f("/a/%2E%2e/b", errPathDots)
	f("/a/.%2e;p=1/b", errPathDots)
	f("/a%2Fb", errPathEncoding)
	f("/a%5cb", errPathEncoding)
	f("/a%00", errPathEncoding)
	f("/a%2", errPathEncoding)
	f("/a%zz", errPathEncoding)
	f("/a b", errPathBytes)
	f(`/a\b`, errPathBytes)
	f("/é", errPathBytes)
}

func TestIsHost(t *testing.T) {
	f := func(host string, want bool) {
		t.Helper()
		if got := IsHost([]byte(host)); got != want {
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
		if got, gotOK := ParseDigits([]byte(text)); got != want && ok || gotOK != ok {
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
	f("5;a", 5, true)
	f("5;a=b;c", 5, true)
	f(`5;a="b;\"c\\";d`, 5, true)
	f("5;", 0, false)
	f("5;bad[=x", 0, false)
	f("5;a=", 0, false)
	f("5;a;", 0, false)
	f(`5;a="b`, 0, false)
	f(`5;a="b\`, 0, false)
	f(`5;a="b"c`, 0, false)
	f("5;a = b", 0, false)
}

// A head is found wherever its bytes are split, and a bare LF is never a line end.
func TestHeadIsFound(t *testing.T) {
	f := func(text string, want found) {
		t.Helper()
		for cut := range len(text) {
			b := buffer{buf: make([]byte, 64)}
			scanned := 0
			var got found
			var head []byte
			for _, piece := range []string{text[:cut], text[cut:]} {
				b.end += copy(b.room(), piece)
				if head, got = b.head(&scanned); got != incomplete {
					break
				}
			}
			if got != want || got == complete && !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
				t.Errorf("%q, cut at %d: %d %q, want %d", text, cut, got, head, want)
			}
		}
	}
	f("GET / HTTP/1.1\r\nHost: a\r\n\r\n", complete)
	f("GET / HTTP/1.1\r\nHost: a\r\n\r\nrest", complete)
	f("GET / HTTP/1.1\r\nHost: a\r\n", incomplete)
	f("GET / HTTP/1.1\nHost: a\r\n\r\n", broken)
	f("GET / HTTP/1.1\r\nHost: a\r\n\n", broken)
}

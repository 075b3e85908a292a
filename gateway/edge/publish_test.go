package edge_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// pageAnswer is a response as net/http reads it. Pages lack the fields that readAnswer demands of every other response.
type pageAnswer struct {
	*http.Response
	body string
}

func (r *rig) fetch(t *testing.T, request string) pageAnswer {
	t.Helper()
	c, err := net.Dial("tcp", r.address)
	must.Do(t, err)
	defer c.Close()
	must.Do(t, c.SetDeadline(time.Now().Add(patience)))
	must.Get[int](t)(io.WriteString(c, request))
	method, _, _ := strings.Cut(request, " ")
	in := bufio.NewReader(c)
	got, err := http.ReadResponse(in, &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	body, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	if got.Close {
		return pageAnswer{got, string(body)}
	}
	// The connection serves the next request.
	must.Get[int](t)(io.WriteString(c, rawKey()))
	if next, err := http.ReadResponse(in, nil); err != nil || next.StatusCode != http.StatusUnauthorized {
		t.Errorf("after %q: %v, %v", request, next, err)
	}
	return pageAnswer{got, string(body)}
}

// keyless is a request without a key.
func keyless(line string, fields ...string) string {
	return rawBare(append([]string{line, "Host: a"}, fields...)...)
}

// Pages need no key, cost nothing and reach no upstream. Other methods of their paths need a key.
func TestPages(t *testing.T) {
	r := newRig(t, nil)
	f := func(request string, status int, body string, fields ...string) {
		t.Helper()
		got := r.fetch(t, request)
		if got.StatusCode != status || body != "*" && got.body != body || got.Header.Get("X-Request-Id") == "" || (got.Header.Get("RateLimit") != "") != (status == 401) {
			t.Errorf("%q: got %d %q %v, want %d %q", request, got.StatusCode, got.body, got.Header, status, body)
		}
		for i := 0; i < len(fields); i += 2 {
			if value := got.Header.Get(fields[i]); value != fields[i+1] {
				t.Errorf("%q: %s is %q, want %q", request, fields[i], value, fields[i+1])
			}
		}
	}
	const docs = "GET /docs HTTP/1.1"
	f(keyless(docs), 200, "a page", "Content-Type", "text/html", "ETag", `W/"abc"`, "Content-Length", "6", "Content-Encoding", "",
		"Cache-Control", "no-cache", "Vary", "Accept-Encoding", "X-Content-Type-Options", "nosniff", "Referrer-Policy", "no-referrer",
		"Cross-Origin-Opener-Policy", "same-origin", "Content-Security-Policy",
		"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; "+
			"form-action 'none'; frame-ancestors 'none'")
	f(keyless("HEAD /docs HTTP/1.1", "Accept-Encoding: gzip"), 200, "", "Content-Length", "10", "Content-Encoding", "gzip")
	f(keyless(docs, "Authorization: Bearer "+bannedToken), 200, "a page")
	f(keyless(docs, `If-None-Match: W/"abc"`), 304, "", "ETag", `W/"abc"`)
	f(keyless("GET / HTTP/1.1", "Accept: text/html"), 302, "", "Location", "docs", "Vary", "Accept")
	for _, line := range []string{"GET / HTTP/1.1", "POST /docs HTTP/1.1", "OPTIONS /docs HTTP/1.1", "GET /v1/pets HTTP/1.1", "OPTIONS /v1/pets HTTP/1.1"} {
		f(keyless(line), 401, "*")
	}
	if r.takes.Load() != 0 || r.counted.Load() != 0 || len(r.upstream.Seen()) != 0 {
		t.Errorf("pages took %d requests from quotas and counted %d, or the upstream saw some", r.takes.Load(), r.counted.Load())
	}
	testkit.Eventually(t, patience, "the access log", func() bool {
		return strings.Contains(r.accessLog.String(), `"path":"/docs","status":200,"outcome":"page","bytes":6`)
	})
	if got := r.dial(t).ask(t, rawStart("POST /docs HTTP/1.1")); got.Status != 405 || got.field("allow") != "GET, HEAD" || r.admitted.Load() != 1 {
		t.Errorf("with a key: got %d %v, charged %d", got.Status, got.Fields, r.admitted.Load())
	}
}

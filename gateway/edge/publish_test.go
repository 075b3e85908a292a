package edge_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// pageAnswer is a response as net/http reads it. Pages lack the fields that readAnswer demands of
// every other response.
type pageAnswer struct {
	*http.Response
	body string
}

func (r *rig) fetch(t *testing.T, request string) pageAnswer {
	t.Helper()
	c := r.say(t, request)
	defer c.close()
	method, _, _ := strings.Cut(request, " ")
	got := must.Get[*http.Response](t)(http.ReadResponse(c.in, &http.Request{Method: method}))
	body := must.Get[[]byte](t)(io.ReadAll(got.Body))
	if !got.Close { // the connection serves the next request
		c.ask(t, rawKey()).expect(t, "after "+request, "401 missing_api_key")
	}
	return pageAnswer{got, string(body)}
}

// Pages need no key, cost nothing and reach no upstream. Other methods of their paths need a key.
func TestPages(t *testing.T) {
	r := newRig(t)
	f := func(request string, status int, body string, fields ...string) {
		t.Helper()
		got := r.fetch(t, request)
		if got.StatusCode != status || body != "*" && got.body != body || got.Header.Get("X-Request-Id") == "" ||
			(got.Header.Get("RateLimit") != "") != (status == 401) {
			t.Errorf("%q: got %d %q %v, want %d %q", request, got.StatusCode, got.body, got.Header, status, body)
		}
		for i := 0; i < len(fields); i += 2 {
			must.Equal(t, got.Header.Get(fields[i]), fields[i+1], "%s of %q", fields[i], request)
		}
	}
	const docs = "GET /docs HTTP/1.1"
	f(keyless(docs), 200, "a page",
		"Content-Type", "text/html", "ETag", `W/"abc"`, "Content-Length", "6", "Content-Encoding", "",
		"Cache-Control", "no-cache", "Vary", "Accept-Encoding", "X-Content-Type-Options", "nosniff",
		"Referrer-Policy", "no-referrer", "Cross-Origin-Opener-Policy", "same-origin",
		"Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "+
			"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	f(keyless("HEAD /docs HTTP/1.1", "Accept-Encoding: gzip"), 200, "",
		"Content-Length", "10", "Content-Encoding", "gzip")
	f(keyless(docs, "Authorization: Bearer "+bannedToken), 200, "a page")
	f(keyless(docs, `If-None-Match: W/"abc"`), 304, "", "ETag", `W/"abc"`)
	f(keyless("GET / HTTP/1.1", "Accept: text/html"), 302, "", "Location", "docs", "Vary", "Accept")
	for _, line := range []string{"GET /", "POST /docs", "OPTIONS /docs", "GET /v1/pets", "OPTIONS /v1/pets"} {
		f(keyless(line+" HTTP/1.1"), 401, "*")
	}
	must.Equal(t, [3]int64{r.takes.Load(), r.counted.Load(), int64(len(r.upstream.Seen()))}, [3]int64{},
		"what pages took from quotas, counted, and sent upstream")
	testkit.Eventually(t, patience, "the access log", func() bool {
		return strings.Contains(r.accessLog.String(), `"path":"/docs","status":200,"outcome":"page","bytes":6`)
	})
	testkit.Eventually(t, patience, "pages are counted",
		func() bool { return r.metric(t, "petgate_gateway_requests_total", "page") == 5 })
	got := r.ask(t, rawStart("POST /docs HTTP/1.1"))
	got.expect(t, "with a key", "405 method_not_allowed")
	must.Equal(t, got.field("allow"), "GET, HEAD", "the methods")
}

// Scripts of an allowed origin can read every response, also a refusal, whatever is wrong with the
// request. Scripts of another origin can read none. The upstream's own answer about origins is not
// copied.
func TestOriginsReadResponses(t *testing.T) {
	requests := map[string]int{
		keyless("OPTIONS /v1/pets/7 HTTP/1.1", "Access-Control-Request-Method: GET"): 204,
		rawGet():                             200,
		rawKey():                             401,
		rawBearer(usedUpToken):               429,
		rawTarget("/v1/pets?status=a|b"):     400,
		rawTarget(longTarget(targetMax + 1)): 414,
		rawGet(authorization):                400,
		keyless("GET /docs HTTP/1.1"):        200,
	}
	const allowed, other, none = "Origin: https://app.example", "Origin: https://evil.example", "X: y"
	f := func(configured []string, field, origin string, varies bool) {
		t.Helper()
		r := newRig(t, func(s *setup) { s.CORSOrigins = configured })
		r.upstream.Answer(saying(rawBare("HTTP/1.1 200 OK",
			"Access-Control-Allow-Origin: *", "access-control-allow-credentials: true",
			"Access-Control-Expose-Headers: x", "Vary: Accept", "Content-Length: 0")))
		want := []string{origin}
		if origin == "" {
			want = nil
		}
		for request, status := range requests {
			if status == 204 && (origin == "" || field == none) { // only preflights of an allowed origin are answered
				status = 401
			}
			before, after, _ := strings.Cut(request, "Host: a\r\n")
			isFirst := before + field + "\r\nHost: a\r\n" + after
			isLast := strings.TrimSuffix(request, "\r\n") + field + "\r\n\r\n"
			for _, request := range []string{isFirst, isLast} {
				got := r.fetch(t, request)
				if status == 204 {
					must.Equal(t, got.Header.Get("Access-Control-Allow-Methods"), "GET, HEAD, POST", "the methods")
				}
				if got.StatusCode != status || !slices.Equal(got.Header.Values("Access-Control-Allow-Origin"), want) ||
					got.Header.Get("Access-Control-Allow-Credentials") != "" ||
					strings.Contains(got.Header.Get("Access-Control-Expose-Headers"), "Retry-After") != (want != nil) ||
					slices.Contains(got.Header.Values("Vary"), "Origin") != varies {
					t.Errorf("%q: got %d %v, want %d and the origin %q", request, got.StatusCode, got.Header, status,
						origin)
				}
			}
		}
	}
	list := []string{"https://app.example"}
	f(list, allowed, "https://app.example", true)
	f(list, other, "", true)
	f(list, none, "", true)
	f([]string{"*"}, none, "*", false)
	f(nil, allowed, "", false)
}

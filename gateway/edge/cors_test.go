package edge_test

import (
	"slices"
	"strings"
	"testing"
)

// Scripts of an allowed origin can read every response, also a refusal, whatever is wrong with the request. Scripts of another origin can
// read none. The upstream's own answer about origins is not copied.
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
		r.upstream.Answer(saying(rawBare("HTTP/1.1 200 OK", "Access-Control-Allow-Origin: *", "access-control-allow-credentials: true",
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
			for _, request := range []string{before + field + "\r\nHost: a\r\n" + after, strings.TrimSuffix(request, "\r\n") + field + "\r\n\r\n"} {
				got := r.fetch(t, request)
				if got.StatusCode != status || !slices.Equal(got.Header.Values("Access-Control-Allow-Origin"), want) ||
					got.Header.Get("Access-Control-Allow-Credentials") != "" ||
					strings.Contains(got.Header.Get("Access-Control-Expose-Headers"), "Retry-After") != (want != nil) ||
					slices.Contains(got.Header.Values("Vary"), "Origin") != varies {
					t.Errorf("%q: got %d %v, want %d and the origin %q", request, got.StatusCode, got.Header, status, origin)
				}
			}
		}
	}
	list := []string{"https://app.example"}
	f(list, allowed, "https://app.example", true)
	f(list, other, "", true)
	f(list, none, "", true)
	f([]string{"*"}, other, "*", false)
	f([]string{"*"}, none, "*", false)
	f(nil, allowed, "", false)
}

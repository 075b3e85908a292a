package edge_test

import (
	"slices"
	"strings"
	"testing"
)

const (
	allowedOrigin = "Origin: https://app.example"
	otherOrigin   = "Origin: https://evil.example"
)

func withOrigins(origins ...string) func(*setup) {
	return func(s *setup) { s.CORSOrigins = origins }
}

// Scripts of an allowed origin can read every response, also a refusal. Scripts of another origin can read none.
func TestOriginsReadResponses(t *testing.T) {
	requests := map[string]int{ // without the last line
		strings.TrimSuffix(keyless("OPTIONS /v1/pets/7 HTTP/1.1", "Access-Control-Request-Method: GET"), "\r\n"): 204,
		strings.TrimSuffix(rawGet(), "\r\n"):                                          200,
		strings.TrimSuffix(rawKey(), "\r\n"):                                          401,
		strings.TrimSuffix(rawKey("Authorization: Bearer "+usedUpToken), "\r\n"):      429,
		strings.TrimSuffix(rawTarget("/v1/cats"), "\r\n"):                             404,
		strings.TrimSuffix(rawPost("Content-Length: "+decimal(bodyMax+1)), "\r\n"):    413,
		strings.TrimSuffix(rawTarget("/v1/pets//7"), "\r\n"):                          400,
		strings.TrimSuffix(rawTarget("/v1/pets?status=a|b"), "\r\n"):                  400,
		strings.TrimSuffix(rawTarget(longTarget(targetMax+1)), "\r\n"):                414,
		strings.TrimSuffix(keyless("GET /docs HTTP/1.1"), "\r\n"):                     200,
		strings.TrimSuffix(keyless("GET /docs HTTP/1.1", `If-None-Match: *`), "\r\n"): 304,
	}
	f := func(configured []string, field, origin, vary string) {
		t.Helper()
		r := newRig(t, withOrigins(configured...))
		for request, status := range requests {
			got := r.fetch(t, request+field+"\r\n\r\n")
			if status == 204 && (origin == "" || field == "X: y") { // only preflights of an allowed origin are answered
				status = 401
			}
			if got.StatusCode != status || !slices.Equal(got.Header.Values("Access-Control-Allow-Origin"), nonEmpty(origin)) ||
				got.Header.Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("%q from %q: got %d %v, want %d and the origin %q", request, field, got.StatusCode, got.Header, status, origin)
			}
			if exposes := strings.Contains(got.Header.Get("Access-Control-Expose-Headers"), "Retry-After"); exposes != (origin != "") {
				t.Errorf("%q from %q: the fields are exposed: %t", request, field, exposes)
			}
			if varies := slices.Contains(got.Header.Values("Vary"), "Origin"); varies != (vary != "") {
				t.Errorf("%q from %q: Vary is %q", request, field, got.Header.Values("Vary"))
			}
		}
	}
	list := []string{"https://app.example"}
	f(list, allowedOrigin, "https://app.example", "Origin")
	f(list, otherOrigin, "", "Origin")
	f(list, "X: y", "", "Origin")
	f([]string{"*"}, otherOrigin, "*", "")
	f([]string{"*"}, "X: y", "*", "")
	f(nil, allowedOrigin, "", "")
}

// Fields before and after the one for which a request is refused are read correctly.
func TestOriginBeforeASecondKey(t *testing.T) {
	r := newRig(t, withOrigins("https://app.example"))
	for _, request := range []string{rawGet(allowedOrigin, authorization), rawGet(authorization, allowedOrigin)} {
		got := r.fetch(t, request)
		if got.StatusCode != 400 || got.Header.Get("Access-Control-Allow-Origin") != "https://app.example" {
			t.Errorf("%q: %d %v", request, got.StatusCode, got.Header)
		}
	}
}

func nonEmpty(value string) []string {
	if value == "" {
		return nil
	}
	return []string{value}
}

// The upstream's own answer about origins is not copied, whether the gateway has one or not.
func TestUpstreamDecidesNoOrigin(t *testing.T) {
	for _, configured := range [][]string{nil, {"https://app.example"}} {
		r := newRig(t, withOrigins(configured...))
		r.upstream.Answer(saying(rawBare("HTTP/1.1 200 OK", "Access-Control-Allow-Origin: *", "access-control-allow-credentials: true",
			"Access-Control-Expose-Headers: x", "Vary: Accept", "Content-Length: 0")))
		got := r.fetch(t, rawGet(allowedOrigin))
		if !slices.Equal(got.Header.Values("Access-Control-Allow-Origin"), configured) || got.Header.Get("Access-Control-Allow-Credentials") != "" ||
			!slices.Contains(got.Header.Values("Vary"), "Accept") {
			t.Errorf("with %q: %v", configured, got.Header)
		}
	}
}

package edge_test

import (
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"petgate/gateway/edge"
	"petgate/shared/api"
)

const (
	allowedOrigin = "Origin: https://app.example"
	otherOrigin   = "Origin: https://evil.example"
)

func withOrigins(origins ...string) func(*setup) {
	return func(s *setup) { s.CORSOrigins = origins }
}

func preflight(fields ...string) string {
	return keyless("OPTIONS /v1/pets/7 HTTP/1.1", append(fields, "Access-Control-Request-Method: GET", "Access-Control-Request-Headers: authorization")...)
}

func TestPreflight(t *testing.T) {
	f := func(r *rig, request string, status int, origin string) {
		t.Helper()
		got := r.fetch(t, request)
		if got.StatusCode != status || got.Header.Get("Access-Control-Allow-Origin") != origin || got.Header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%q: got %d %v, want %d and the origin %q", request, got.StatusCode, got.Header, status, origin)
		}
		if status != 204 {
			return
		}
		for name, want := range map[string]string{
			"Access-Control-Allow-Methods": "GET, HEAD, POST", "Access-Control-Max-Age": "600",
			"Access-Control-Allow-Headers": "Authorization, Content-Type, Idempotency-Key, X-Request-Id",
		} {
			if got.Header.Get(name) != want {
				t.Errorf("%q: %s is %q, want %q", request, name, got.Header.Get(name), want)
			}
		}
		if vary := strings.Join(got.Header.Values("Vary"), ", "); !strings.Contains(vary, "Access-Control-Request-Method") ||
			(origin != "*") != strings.Contains(vary, "Origin") {
			t.Errorf("%q: Vary is %q", request, vary)
		}
		if n := r.takes.Load() + r.counted.Load(); n != 0 || len(r.upstream.Seen()) != 0 {
			t.Errorf("%q: %d calls of quotas and usage, or one of the upstream", request, n)
		}
	}
	some := newRig(t, withOrigins("https://other.example", "https://app.example"))
	f(some, preflight(allowedOrigin), 204, "https://app.example")
	f(some, preflight(otherOrigin), 401, "")
	f(some, preflight("Origin: null"), 401, "")
	f(some, preflight("Origin: https://app.example.evil"), 401, "")
	f(some, preflight(allowedOrigin, otherOrigin), 401, "")
	f(some, preflight(), 401, "")
	f(some, keyless("OPTIONS /v1/pets HTTP/1.1", allowedOrigin), 401, "https://app.example") // not a preflight
	f(newRig(t, withOrigins("*")), preflight(otherOrigin), 204, "*")
	f(newRig(t, nil), preflight(allowedOrigin), 401, "")
}

// Scripts of an allowed origin can read every response, also a refusal. Scripts of another origin can read none.
func TestOriginsReadResponses(t *testing.T) {
	requests := map[string]int{ // without the last line
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
		r.upstream.Answer(func(c net.Conn, _ upstreamRequest) bool {
			_, err := io.WriteString(c, rawBare("HTTP/1.1 200 OK", "Access-Control-Allow-Origin: *", "access-control-allow-credentials: true",
				"Access-Control-Expose-Headers: x", "Vary: Accept", "Content-Length: 0"))
			return err == nil
		})
		got := r.fetch(t, rawGet(allowedOrigin))
		if !slices.Equal(got.Header.Values("Access-Control-Allow-Origin"), configured) || got.Header.Get("Access-Control-Allow-Credentials") != "" ||
			!slices.Contains(got.Header.Values("Vary"), "Accept") {
			t.Errorf("with %q: %v", configured, got.Header)
		}
	}
}

// Every field that the document promises can be read by scripts.
func TestExposedFieldsAreThoseOfTheDocument(t *testing.T) {
	doc, err := api.Load()
	if err != nil {
		t.Fatal(err)
	}
	got := newRig(t, withOrigins("*")).fetch(t, rawGet()).Header.Get("Access-Control-Expose-Headers")
	exposed := strings.Split(got, ", ")
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			for status, response := range operation.Responses.Map() {
				for name := range response.Value.Headers {
					if !slices.Contains(exposed, name) {
						t.Errorf("%s %s %s: %s is not exposed", method, path, status, name)
					}
				}
			}
		}
	}
}

func TestCheckOrigin(t *testing.T) {
	for _, good := range []string{
		"*", "https://app.example", "http://127.0.0.1:3000", "https://app.example:8443", "http://[::1]:3000", "http://localhost",
	} {
		if err := edge.CheckOrigin(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for bad, want := range map[string]string{
		"": "is not an origin", "null": "is not an origin", "app.example": "is not an origin", "https://": "is not an origin",
		"ftp://app.example": "is not an origin", "https://*.example": "is not an origin",
		"https://app.example/": "use https://app.example", "https://App.Example": "use https://app.example",
		"https://app.example:443": "use https://app.example", "http://app.example:80": "use http://app.example",
		"https://u:p@app.example": "use https://app.example", "https://app.example?a": "use https://app.example",
	} {
		if err := edge.CheckOrigin(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", bad, err, want)
		}
	}
}

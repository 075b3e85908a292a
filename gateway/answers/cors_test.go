package answers

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"petgate/shared/api"
)

const (
	allowedOrigin = "Origin: https://app.example"
	otherOrigin   = "Origin: https://evil.example"
	asksMethod    = "Access-Control-Request-Method: GET"
)

// A preflight of an allowed origin is answered, and no other one. Responses to allowed origins, and only to these, can be read by their
// scripts, and caches tell the origins apart.
func TestPreflight(t *testing.T) {
	some := []string{"https://other.example", "https://app.example"}
	answer := &Answer{Outcome: "preflight", Status: 204, Fields: fieldsOf("Access-Control-Allow-Methods", "GET, HEAD, POST",
		"Access-Control-Allow-Headers", "Authorization, Content-Type, Idempotency-Key, X-Request-Id",
		"Access-Control-Max-Age", "600", "Vary", "Access-Control-Request-Method, Access-Control-Request-Headers")}
	f := func(origins []string, want *Answer, readableBy, vary, line string, fields ...string) {
		t.Helper()
		c, q := NewCORS(origins, []string{"GET", "HEAD", "POST"}), request(t, line, fields...)
		of := c.Fields(q)
		if got := c.Preflight(q); !reflect.DeepEqual(got, want) || field(of, "Access-Control-Allow-Origin") != readableBy || field(of, "Vary") != vary {
			t.Errorf("%q: %s %q: got %+v, want %+v; the fields are %v", origins, line, fields, got, want, of)
		}
	}
	const app, asked = "https://app.example", "OPTIONS /v1/pets/7"
	f(some, answer, app, "Origin", asked, allowedOrigin, asksMethod)
	f(some, nil, "", "Origin", asked, otherOrigin, asksMethod)
	f(some, nil, "", "Origin", asked, "Origin: https://app.example.evil", asksMethod)
	f(some, nil, "", "Origin", asked, allowedOrigin, otherOrigin, asksMethod)
	f(some, nil, "", "Origin", asked, asksMethod)
	f(some, nil, app, "Origin", asked, allowedOrigin) // not a preflight
	f(some[1:], nil, app, "Origin", "GET /v1/pets/7", allowedOrigin, asksMethod)
	f([]string{"*"}, answer, "*", "", asked, otherOrigin, asksMethod)
	f([]string{"*"}, nil, "*", "", asked, asksMethod)
	f(nil, nil, "", "", asked, allowedOrigin, asksMethod)
}

// Every field that the document promises can be read by scripts.
func TestExposedFieldsAreThoseOfTheDocument(t *testing.T) {
	got := NewCORS([]string{"*"}, nil).Fields(request(t, "GET /"))
	exposed := strings.Split(field(got, "Access-Control-Expose-Headers"), ", ")
	for path, item := range api.Pets().Document.Paths.Map() {
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
		"*", "https://app.example", "http://127.0.0.1:3000", "https://app.example:8443", "http://[::1]:3000", "https://app.example:80", "http://app.example:443", "http://localhost",
	} {
		if err := CheckOrigin(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	const none, as = "is not an origin: use https://host, https://host:port or *", "is not as browsers send it: use "
	for bad, want := range map[string]string{
		"": none, "null": none, "app.example": none, "https://": none, "ftp://app.example": none, "https://*.example": none, "https://%": none,
		"https://app.example/": as + "https://app.example", "https://App.Example": as + "https://app.example",
		"https://app.example:443": as + "https://app.example", "http://app.example:80": as + "http://app.example",
		"https://u:p@app.example": as + "https://app.example", "https://app.example?a": as + "https://app.example",
	} {
		if err := CheckOrigin(bad); err == nil || err.Error() != strconv.Quote(bad)+" "+want {
			t.Errorf("%s: %v, want %q", bad, err, want)
		}
	}
}

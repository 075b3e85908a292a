package answers

import (
	"slices"
	"strings"
	"testing"

	"petgate/shared/api"
)

const (
	allowedOrigin = "Origin: https://app.example"
	otherOrigin   = "Origin: https://evil.example"
	asksMethod    = "Access-Control-Request-Method: GET"
)

// A preflight of an allowed origin is answered, and no other one.
func TestPreflight(t *testing.T) {
	some := []string{"https://other.example", "https://app.example"}
	f := func(origins []string, isAnswered bool, line string, fields ...string) {
		t.Helper()
		c := NewCORS(origins, []string{"GET", "HEAD", "POST"})
		got := c.Preflight(request(t, line, fields...))
		if (got != nil) != isAnswered {
			t.Errorf("%q: %s %q is answered: %t", origins, line, fields, got != nil)
		} else if got != nil && (got.Status != 204 || field(got.Fields, "Access-Control-Allow-Methods") != "GET, HEAD, POST") {
			t.Errorf("%q: %s %q: %v", origins, line, fields, got)
		}
	}
	f(some, true, "OPTIONS /v1/pets/7", allowedOrigin, asksMethod)
	f(some, false, "OPTIONS /v1/pets/7", otherOrigin, asksMethod)
	f(some, false, "OPTIONS /v1/pets/7", "Origin: https://app.example.evil", asksMethod)
	f(some, false, "OPTIONS /v1/pets/7", allowedOrigin, otherOrigin, asksMethod)
	f(some, false, "OPTIONS /v1/pets/7", asksMethod)
	f(some, false, "OPTIONS /v1/pets/7", allowedOrigin) // not a preflight
	f(some, false, "GET /v1/pets/7", allowedOrigin, asksMethod)
	f([]string{"*"}, true, "OPTIONS /v1/pets/7", otherOrigin, asksMethod)
	f([]string{"*"}, false, "OPTIONS /v1/pets/7", asksMethod)
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
		"*", "https://app.example", "http://127.0.0.1:3000", "https://app.example:8443", "http://[::1]:3000", "http://localhost",
	} {
		if err := CheckOrigin(good); err != nil {
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
		if err := CheckOrigin(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", bad, err, want)
		}
	}
}

package answers

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"petgate/gateway/http1"
	"petgate/gateway/portal"
	"petgate/shared/api"
	"petgate/shared/testkit/must"
)

// request returns the request with this first line and these fields.
func request(t *testing.T, line string, fields ...string) *http1.Request {
	t.Helper()
	q := &http1.Request{}
	head := line + " HTTP/1.1\r\nHost: a\r\n" + strings.Join(append(fields, "\r\n"), "\r\n")
	if len(fields) == 0 {
		head = line + " HTTP/1.1\r\nHost: a\r\n\r\n"
	}
	limits := http1.Limits{TargetBytesMax: 1000, FieldBytesMax: 1000, FieldsMax: 10}
	if err := q.Read([]byte(head), &limits); err != nil {
		t.Fatalf("%q: %v", head, err)
	}
	return q
}

// field returns the values of a field.
func field(fields []http1.Field, name string) string {
	var values []string
	for _, f := range fields {
		if string(f.Name) == name {
			values = append(values, string(f.Value))
		}
	}
	return strings.Join(values, " AND ")
}

const (
	allowedOrigin = "Origin: https://app.example"
	otherOrigin   = "Origin: https://evil.example"
	asksMethod    = "Access-Control-Request-Method: GET"
)

// A preflight of an allowed origin is answered, and no other one. Responses to allowed origins, and
// only to these, can be read by their scripts, and caches tell the origins apart.
func TestPreflight(t *testing.T) {
	some := []string{"https://other.example", "https://app.example"}
	answer := &Answer{
		Outcome: "preflight",
		Status:  204,
		Fields: fieldsOf("Access-Control-Allow-Methods", "GET, HEAD, POST",
			"Access-Control-Allow-Headers", "Authorization, Content-Type, Idempotency-Key, X-Request-Id",
			"Access-Control-Max-Age", "600", "Vary", "Access-Control-Request-Method, Access-Control-Request-Headers"),
	}
	f := func(origins []string, want *Answer, readableBy, vary, line string, fields ...string) {
		t.Helper()
		c, q := NewCORS(origins, []string{"GET", "HEAD", "POST"}), request(t, line, fields...)
		of := c.Fields(q)
		if got := c.Preflight(q); !reflect.DeepEqual(got, want) ||
			field(of, "Access-Control-Allow-Origin") != readableBy ||
			field(of, "Vary") != vary {
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
	must.Equal(t, slices.Contains(exposed, "X-Request-Cost"), true,
		"X-Request-Cost, of documents with costs, is exposed")
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
		"*", "https://app.example", "http://127.0.0.1:3000", "https://app.example:8443", "http://[::1]:3000",
		"https://app.example:80", "http://app.example:443", "http://localhost",
	} {
		if err := CheckOrigin(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	const none, as = "is not an origin: use https://host, https://host:port or *", "is not as browsers send it: use "
	for bad, want := range map[string]string{
		"": none, "null": none, "app.example": none, "https://": none, "ftp://app.example": none,
		"https://*.example": none, "https://%": none,
		"https://app.example/": as + "https://app.example", "https://App.Example": as + "https://app.example",
		"https://app.example:443": as + "https://app.example", "http://app.example:80": as + "http://app.example",
		"https://u:p@app.example": as + "https://app.example", "https://app.example?a": as + "https://app.example",
	} {
		if err := CheckOrigin(bad); err == nil || err.Error() != strconv.Quote(bad)+" "+want {
			t.Errorf("%s: %v, want %q", bad, err, want)
		}
	}
}

func TestPages(t *testing.T) {
	page := func(path, contentType string, content portal.Content) portal.Page {
		return portal.Page{Path: path, Type: contentType, Content: func() portal.Content { return content }}
	}
	var pages, none Pages
	pages.Set([]portal.Page{
		page("/docs", "text/html", portal.Content{ETag: `W/"abc"`, Body: []byte("a page"), Gzip: []byte("compressed")}),
		page("/openapi.yaml", "application/yaml", portal.Content{ETag: `W/"def"`, Body: []byte("a document")}),
	})
	f := func(line string, status int, body, encoding string, fields ...string) {
		t.Helper()
		got := pages.Find(request(t, line, fields...))
		if got == nil || got.Outcome != "page" || got.Status != status || string(got.Body) != body ||
			field(got.Fields, "Content-Encoding") != encoding {
			t.Errorf("%s %q: got %v, want %d %q", line, fields, got, status, body)
		}
	}
	const docs = "GET /docs"
	f(docs, 200, "a page", "")
	f("HEAD /docs", 200, "a page", "")
	f("GET /openapi.yaml?a=b", 200, "a document", "", "Accept-Encoding: gzip")
	for _, accepted := range []string{"gzip", "br, gzip;q=0.5", "GZIP", "br,\tgzip ; q=1"} {
		f(docs, 200, "compressed", "gzip", "Accept-Encoding: "+accepted)
	}
	for _, accepted := range []string{"", "br", "gzip;q=0", "gzip; q=0.000", "*", "gzipped"} {
		f(docs, 200, "a page", "", "Accept-Encoding: "+accepted)
	}
	for _, known := range []string{`W/"abc"`, `"abc"`, "*", `"x", W/"abc"`} {
		f(docs, 304, "", "", "If-None-Match: "+known, "Accept-Encoding: gzip")
	}
	for _, known := range []string{`W/"def"`, "abc", ""} {
		f(docs, 200, "a page", "", "If-None-Match: "+known)
	}
	f("GET /", 302, "", "", "Accept: text/html,application/xml;q=0.9,*/*;q=0.8")
	f("HEAD /", 302, "", "", "Accept: text/html")
	others := []string{"POST /", "GET /docs/", "GET /Docs", "GET /docs/petgate.js", "POST /docs", "OPTIONS /docs"}
	for _, line := range others {
		if got := pages.Find(request(t, line, "Accept: text/html")); got != nil {
			t.Errorf("%s: got %v", line, got)
		}
	}
	if pages.Find(request(t, "GET /", "Accept: */*")) != nil ||
		none.Find(request(t, "GET /", "Accept: text/html")) != nil || none.Has("/docs") || !pages.Has("/docs") {
		t.Error("a page is where none is, or the reverse")
	}
	pages.Set([]portal.Page{page("/own/docs", "text/html", portal.Content{Body: []byte("another page")})})
	f("GET /own/docs", 200, "another page", "")
	if got := pages.Find(request(t, "GET /", "Accept: text/html")); got == nil ||
		field(got.Fields, "Location") != "own/docs" {
		t.Errorf("/ leads to %v", got)
	}
	must.Equal(t, pages.Has("/docs"), false, "whether a page stays when pages are replaced")
}

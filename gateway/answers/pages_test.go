package answers

import (
	"testing"

	"petgate/gateway/portal"
)

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
		if got == nil || got.Outcome != "page" || got.Status != status || string(got.Body) != body || field(got.Fields, "Content-Encoding") != encoding {
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
	for _, line := range []string{"POST /", "GET /docs/", "GET /Docs", "GET /docs/petgate.js", "POST /docs", "OPTIONS /docs"} {
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
	if got := pages.Find(request(t, "GET /", "Accept: text/html")); got == nil || field(got.Fields, "Location") != "own/docs" {
		t.Errorf("/ leads to %v", got)
	}
	if pages.Has("/docs") {
		t.Error("a page stays when pages are replaced")
	}
}

package answers

import (
	"net/http"
	"strings"
	"sync/atomic"

	"petgate/gateway/http1"
	"petgate/gateway/portal"
)

// PageMethods are the methods of a page.
const PageMethods = "GET, HEAD"

// pageFields are the fields of all pages of the documentation. A page may load its own stylesheet
// and script and call the API where it came from, and nothing else. Nothing may frame it.
var pageFields = fieldsOf(
	"Cache-Control", "no-cache",
	"Content-Security-Policy", contentPolicy,
	"Cross-Origin-Opener-Policy", "same-origin",
	"Referrer-Policy", "no-referrer",
	"X-Content-Type-Options", "nosniff",
	"Vary", "Accept-Encoding",
)

const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Pages are the documentation. They need no key and cost no quota. The zero Pages have none. They
// may be replaced at any time.
type Pages struct{ now atomic.Pointer[pages] }

type pages struct {
	byPath map[string]portal.Page
	home   *Answer // the redirect from "/"
}

// Set replaces the pages. They are found by their exact path. The first one is the home page; there
// must be one.
func (p *Pages) Set(all []portal.Page) {
	next := &pages{byPath: map[string]portal.Page{}}
	for _, one := range all {
		next.byPath[one.Path] = one
	}
	// A relative reference also works behind a proxy that removes a prefix from paths.
	next.home = &Answer{
		Outcome: outcomePage, Status: http.StatusFound,
		Fields: fieldsOf(
			"Location", strings.TrimPrefix(all[0].Path, "/"),
			"Cache-Control", "no-cache",
			"Vary", "Accept",
		),
	}
	p.now.Store(next)
}

// Has reports whether there is a page with this path.
func (p *Pages) Has(path string) bool {
	now := p.now.Load()
	return now != nil && now.byPath[path].Content != nil
}

// Find returns the answer to a request for a page, or nil. It is 304 if the client has the page
// already (RFC 9110, section 13.1.2). The first request for a page waits until it is written.
func (p *Pages) Find(q *http1.Request) *Answer {
	now := p.now.Load()
	if m := string(q.Method); now == nil || m != http.MethodGet && m != http.MethodHead {
		return nil
	}
	one, found := now.byPath[string(q.Path)]
	switch {
	case !found && string(q.Path) == "/" && weight(q, "accept", "text/html") > 0:
		return now.home
	case !found:
		return nil
	}
	content := one.Content()
	a := &Answer{
		Outcome: outcomePage,
		Status:  http.StatusOK,
		Fields:  append(fieldsOf("Content-Type", one.Type, "ETag", content.ETag), pageFields...),
		Body:    content.Body,
	}
	switch {
	case hasETag(q, content.ETag):
		a.Status, a.Body = http.StatusNotModified, nil
	case len(content.Gzip) > 0 && weight(q, "accept-encoding", "gzip") > 0:
		a.Fields, a.Body = append(a.Fields, fieldsOf("Content-Encoding", "gzip")...), content.Gzip
	}
	return a
}

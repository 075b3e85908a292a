package answers

import (
	"net/http"
	"slices"
	"strings"

	"petgate/gateway/http1"
	"petgate/gateway/portal"
)

// PageMethods are the methods of a page.
const PageMethods = "GET, HEAD"

// pageFields are the fields of all pages of the documentation. A page may load its own stylesheet and script and call the API
// where it came from, and nothing else. Nothing may frame it.
var pageFields = fieldsOf(
	"Cache-Control", "no-cache",
	"Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "+
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	"Cross-Origin-Opener-Policy", "same-origin",
	"Referrer-Policy", "no-referrer",
	"X-Content-Type-Options", "nosniff",
	"Vary", "Accept-Encoding",
)

// Pages are the documentation. They need no key and cost no quota.
type Pages struct {
	byPath map[string]*page
	home   *Answer // the redirect from "/"; nil if there are no pages
}

// page has the answers to requests for one page.
type page struct {
	etag                     []byte // weak, because it names both bodies
	plain, zipped, unchanged *Answer
}

// NewPages returns pages that are found by their exact path.
func NewPages(all []portal.Page) *Pages {
	p := &Pages{byPath: make(map[string]*page)}
	for _, one := range all {
		fields := append(fieldsOf("Content-Type", one.Type, "ETag", one.ETag), pageFields...)
		made := &page{
			etag:      []byte(one.ETag),
			plain:     &Answer{outcomePage, http.StatusOK, fields, one.Body},
			unchanged: &Answer{outcomePage, http.StatusNotModified, fields, nil},
		}
		made.zipped = made.plain
		if len(one.Gzip) > 0 {
			made.zipped = &Answer{outcomePage, http.StatusOK, slices.Concat(fields, fieldsOf("Content-Encoding", "gzip")), one.Gzip}
		}
		p.byPath[one.Path] = made
	}
	if len(all) > 0 {
		// A relative reference also works behind a proxy that removes a prefix from paths.
		p.home = &Answer{
			Outcome: outcomePage, Status: http.StatusFound,
			Fields: fieldsOf("Location", strings.TrimPrefix(portal.Home, "/"), "Cache-Control", "no-cache", "Vary", "Accept"),
		}
	}
	return p
}

// Has reports whether there is a page with this path.
func (p *Pages) Has(path string) bool { return p.byPath[path] != nil }

// Find returns the answer to a request for a page, or nil. It is 304 if the client has the page already (RFC 9110, section 13.1.2).
func (p *Pages) Find(q *http1.Request) *Answer {
	if m := string(q.Method); m != http.MethodGet && m != http.MethodHead {
		return nil
	}
	switch one := p.byPath[string(q.Path)]; {
	case one != nil && hasETag(q, one.etag):
		return one.unchanged
	case one != nil && weight(q, "accept-encoding", "gzip") > 0:
		return one.zipped
	case one != nil:
		return one.plain
	case p.home != nil && string(q.Path) == "/" && weight(q, "accept", "text/html") > 0:
		return p.home
	}
	return nil
}

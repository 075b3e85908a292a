package edge

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/valyala/fasthttp"

	"petgate/gateway/http1"
	"petgate/gateway/portal"
)

// page is a response that exists before its request: a page of the documentation, the redirect to it, or the answer to a
// CORS preflight. It needs no key, costs no quota, and has no rate-limit headers.
type page struct {
	outcome string // in metrics and in the access log
	status  int
	fields  [][2][]byte
	etag    []byte // weak, so that it names both bodies; empty: none
	body    []byte
	gzip    []byte // body, compressed; empty: only body
}

// The outcomes of responses that the gateway makes itself and that are not refusals.
const (
	outcomePage      = "page"
	outcomePreflight = "preflight"
	outcomeReport    = "report"
)

var ownOutcomes = []string{outcomePage, outcomePreflight, outcomeReport}

// pageMethods are the methods of a page.
const pageMethods = "GET, HEAD"

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

// fieldsOf returns a list of names and values as fields.
func fieldsOf(list ...string) (fields [][2][]byte) {
	for i := 0; i < len(list); i += 2 {
		fields = append(fields, [2][]byte{[]byte(list[i]), []byte(list[i+1])})
	}
	return fields
}

// pages finds pages by their exact path. home is the redirect from "/"; it is nil if there are no pages.
type pages struct {
	byPath map[string]*page
	home   *page
}

func newPages(all []portal.Page) pages {
	p := pages{byPath: make(map[string]*page)}
	for _, one := range all {
		p.byPath[one.Path] = &page{
			outcome: outcomePage, status: http.StatusOK, etag: []byte(one.ETag), body: one.Body, gzip: one.Gzip,
			fields: append(fieldsOf("Content-Type", one.Type, "ETag", one.ETag), pageFields...),
		}
	}
	if len(all) > 0 {
		// A relative reference also works behind a proxy that removes a prefix from paths.
		p.home = &page{
			outcome: outcomePage, status: http.StatusFound,
			fields: fieldsOf("Location", strings.TrimPrefix(portal.Home, "/"), "Cache-Control", "no-cache", "Vary", "Accept"),
		}
	}
	return p
}

// publish returns the page that answers the request, or nil. A request with another method passes on: without a key, identify
// refuses it with 401; with a key, route refuses it with 405.
func (e *Edge) publish(x *exchange) *page {
	q := &x.request
	switch string(q.Method) {
	case http.MethodGet, http.MethodHead:
		if p := e.pages.byPath[string(q.Path)]; p != nil {
			return p
		}
		if e.pages.home != nil && string(q.Path) == "/" && weight(q, "accept", "text/html") > 0 {
			return e.pages.home
		}
	case http.MethodOptions:
		return e.cors.preflight(q)
	}
	return nil
}

// writePage writes the page, or 304 if the client has it already (RFC 9110, section 13.1.2).
func (x *exchange) writePage(h *fasthttp.ResponseHeader) {
	p := x.page
	for _, f := range p.fields {
		h.AddBytesKV(f[0], f[1])
	}
	if len(p.etag) > 0 && hasETag(&x.request, p.etag) {
		h.SetStatusCode(http.StatusNotModified)
		return
	}
	h.SetStatusCode(p.status)
	if len(p.gzip) > 0 && weight(&x.request, "accept-encoding", "gzip") > 0 {
		h.Set("Content-Encoding", "gzip")
		x.rc.Response.SetBodyRaw(p.gzip)
		return
	}
	x.rc.Response.SetBodyRaw(p.body)
}

// hasETag reports whether If-None-Match has this ETag, or "*". It compares weakly, as RFC 9110, section 13.1.2,
// demands.
func hasETag(q *http1.Request, etag []byte) bool {
	strong := bytes.TrimPrefix(etag, []byte("W/"))
	for _, f := range q.Fields {
		if !http1.EqualFold(f.Name, "if-none-match") {
			continue
		}
		for one := range bytes.SplitSeq(f.Value, []byte{','}) {
			one = http1.Trim(one)
			if string(one) == "*" || bytes.Equal(bytes.TrimPrefix(one, []byte("W/")), strong) {
				return true
			}
		}
	}
	return false
}

// weight returns the weight of a media type or a coding that a field lists by its name, in thousandths (RFC 9110, section 12.4.2). It
// is 0 without such a name. Wildcards do not count: they are in almost every request, and say little about what the client can use.
func weight(q *http1.Request, field, want string) int {
	for _, f := range q.Fields {
		if !http1.EqualFold(f.Name, field) {
			continue
		}
		for one := range bytes.SplitSeq(f.Value, []byte{','}) {
			name, parameters, _ := bytes.Cut(one, []byte{';'})
			if http1.EqualFold(http1.Trim(name), want) {
				return parseWeight(parameters)
			}
		}
	}
	return 0
}

// parseWeight returns the weight that parameters have, in thousandths.
func parseWeight(parameters []byte) (thousandths int) {
	const most, digits = 1000, 3
	for one := range bytes.SplitSeq(parameters, []byte{';'}) {
		name, value, _ := bytes.Cut(http1.Trim(one), []byte{'='})
		if !http1.EqualFold(name, "q") {
			continue
		}
		whole, fraction, _ := bytes.Cut(value, []byte{'.'})
		if len(bytes.Trim(whole, "0")) > 0 {
			return most
		}
		for n := range digits {
			thousandths *= 10
			if n < len(fraction) {
				thousandths += int(fraction[n] - '0')
			}
		}
		return thousandths
	}
	return most
}

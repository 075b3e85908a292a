// Package routing finds the operation of a request among those of a document. It gets a method and
// a path, and knows neither keys nor upstreams.
package routing

import (
	"bytes"
	"cmp"
	"errors"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/fasthttp/router"
	"github.com/valyala/fasthttp"

	"petgate/gateway/http1"
	"petgate/shared/api"
	"petgate/shared/core/instant"
)

// Route is an operation of a document.
type Route struct {
	api.Operation
	Index  int           // in Table.Routes: callers may keep by it what else they know of the operation
	Fields []http1.Field // of responses, if it is deprecated, will be removed or is not stable

	pattern api.Pattern
	sunset  instant.Millis // 0: never
}

// IsRemoved reports whether the operation was removed before now.
func (r *Route) IsRemoved(now instant.Millis) bool { return r.sunset != 0 && r.sunset <= now }

// Table finds the operations of one document. It is not changed after New.
type Table struct {
	Routes  []*Route // in the order of the operations
	Methods []string // of any operation

	byMethod map[string]*paths
}

// paths are the operations of one method.
type paths struct {
	fixed map[string]*Route // by path: the operations that have one path, which cannot be read in two ways
	// router has the other paths with whole segments for parameters, without the slash at their
	// end. A handler only stores the group of the path. The router's own responses (redirects,
	// OPTIONS, 405 in plain text) are not used.
	router *router.Router
	sorted []*Route // the others, in the order of api.Pattern.Compare: the first one that matches a path serves it
}

// group is what the router finds. It is only where the search begins: fasthttp's router knows no
// parameter that is a part of a segment, and in some trees it finds a wider path, or none: with
// /users/bob, /users/bill and /users/{id}, it does not find /users/b.
type group struct {
	pattern api.Pattern
	routes  []*Route // those that may have a path in common with it, or with it and a slash at its end, sorted
}

// New returns the table of operations. There must be one at least.
func New(operations []api.Operation) (*Table, error) {
	t := &Table{byMethod: map[string]*paths{}}
	if len(operations) == 0 {
		return nil, errors.New("no operations are given")
	}
	for i, o := range operations {
		one := newRoute(i, o)
		t.Routes = append(t.Routes, one)
		t.add(o.Method, one)
	}
	for _, one := range t.Routes { // HEAD is answered like GET, if it is no operation of its own
		if one.Method == http.MethodGet &&
			!slices.ContainsFunc(t.Routes,
				func(o *Route) bool { return o.Method == http.MethodHead && o.pattern == one.pattern }) {
			t.add(http.MethodHead, one)
		}
	}
	for method, p := range t.byMethod {
		p.build(method)
	}
	t.Methods = slices.Sorted(maps.Keys(t.byMethod))
	return t, nil
}

func newRoute(index int, o api.Operation) *Route {
	one := &Route{Operation: o, Index: index, pattern: o.Pattern()}
	add := func(name, value string) {
		one.Fields = append(one.Fields, http1.Field{Name: []byte(name), Value: []byte(value)})
	}
	if !o.DeprecatedAt.IsZero() {
		add("Deprecation", "@"+strconv.FormatInt(o.DeprecatedAt.Unix(), 10)) // RFC 9745
	}
	if !o.SunsetAt.IsZero() {
		one.sunset = instant.Of(o.SunsetAt)
		add("Sunset", o.SunsetAt.UTC().Format(http.TimeFormat)) // RFC 8594
	}
	if o.Successor != "" {
		add("Link", "<"+o.Successor+`>; rel="successor-version"`) // RFC 5829
	}
	if o.Stability != "" {
		add("X-Stability", o.Stability)
	}
	return one
}

// add makes an operation known for a method.
func (t *Table) add(method string, one *Route) {
	p := t.byMethod[method]
	if p == nil {
		p = &paths{fixed: map[string]*Route{}, router: router.New()}
		t.byMethod[method] = p
	}
	if path := []byte(one.pattern); bytes.IndexByte(path, api.Star) < 0 && !isAmbiguous(path) {
		p.fixed[string(path)] = one
	} else {
		p.sorted = append(p.sorted, one)
	}
}

// part matches a parameter and what is beside it in its segment.
var part = regexp.MustCompile(`[^/]*` + string(api.Star) + `[^/]*`)

// build prepares the search.
func (p *paths) build(method string) {
	slices.SortStableFunc(p.sorted, func(a, b *Route) int { return a.pattern.Compare(b.pattern) })
	known := map[string]bool{}
	for _, one := range p.sorted {
		whole := withoutSlash(part.ReplaceAllString(string(one.pattern), string(api.Star)))
		if known[whole] {
			continue
		}
		known[whole] = true
		found := &group{pattern: api.Pattern(whole)}
		for _, one := range p.sorted {
			if one.pattern.Meets(found.pattern) || one.pattern.Meets(found.pattern+"/") {
				found.routes = append(found.routes, one)
			}
		}
		p.router.Handle(method, strings.ReplaceAll(whole, string(api.Star), "{p}"),
			func(rc *fasthttp.RequestCtx) { rc.SetUserValue(foundGroup, found) })
	}
}

// withoutSlash removes the slash at the end of a path.
func withoutSlash(path string) string { return cmp.Or(strings.TrimSuffix(path, "/"), "/") }

// foundGroup is the user value in which a handler stores its group.
const foundGroup = "group"

// carriers take a group from a handler to the caller.
var carriers = sync.Pool{New: func() any { return new(fasthttp.RequestCtx) }}

// Find returns the operation of a request, or nil. The path is matched byte for byte as it was
// sent. If the decoded path belongs to another operation, Find returns nil: the upstream could
// carry out one that the key may not call.
func (t *Table) Find(method, path []byte) *Route {
	found := t.match(method, path)
	if isAmbiguous(path) {
		if other := t.match(method, decoded(path)); other != nil && other != found {
			return nil
		}
	}
	return found
}

// isAmbiguous reports whether an upstream may read a path in two ways: see decoded.
func isAmbiguous(path []byte) bool {
	return bytes.IndexByte(path, '%') >= 0 || bytes.IndexByte(path, ';') >= 0
}

// decoded returns a path as an upstream may read it: without percent-encoding and without
// parameters of segments, which some servers drop.
func decoded(path []byte) []byte {
	segments := strings.Split(string(path), "/")
	for i, s := range segments {
		s, _, _ = strings.Cut(s, ";")
		segments[i] = api.Canonical(s)
	}
	return []byte(strings.Join(segments, "/"))
}

// match returns the operation of a path that is read in one way, or nil.
func (t *Table) match(method, sent []byte) *Route {
	p := t.byMethod[string(method)]
	if p == nil {
		return nil
	}
	if one := p.fixed[string(sent)]; one != nil {
		return one
	}
	path := string(sent)
	short := withoutSlash(path)
	if handler, _ := p.router.Lookup(string(method), short, nil); handler != nil {
		rc := carriers.Get().(*fasthttp.RequestCtx)
		handler(rc)
		g := rc.UserValue(foundGroup).(*group)
		carriers.Put(rc)
		if one := first(g.routes, path); one != nil && (one.pattern == g.pattern || g.pattern.Matches(short)) {
			return one
		}
	}
	return first(p.sorted, path)
}

// first returns the first operation that has the path, or nil.
func first(sorted []*Route, path string) *Route {
	for _, one := range sorted {
		if one.pattern.Matches(path) {
			return one
		}
	}
	return nil
}

// Allowed lists the methods of a path. It is empty for an unknown path.
func (t *Table) Allowed(path string) string {
	var methods []string
	for _, method := range t.Methods {
		if t.Find([]byte(method), []byte(path)) != nil {
			methods = append(methods, method)
		}
	}
	return strings.Join(methods, ", ")
}

// Nearby says what is wrong with a path that differs little from one that is served. It is empty
// for other paths.
func (t *Table) Nearby(method []byte, path string) string {
	if t.match(method, []byte(path)) != nil {
		return "the path has two meanings, before and after decoding: send it without percent-encoding and without a semicolon"
	}
	if shorter, ok := strings.CutSuffix(path, "/"); ok && shorter != "" && t.Allowed(shorter) != "" {
		return "there is no such path: it must not end in a slash"
	}
	return ""
}

package edge

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

	"petgate/gateway/answers"
	"petgate/gateway/http1"
	"petgate/gateway/upstream"
	"petgate/shared/api"
	"petgate/shared/core/instant"
)

// route is an operation with the values that its responses need.
type route struct {
	api.Operation
	pattern api.Pattern
	sunset  instant.Millis // 0: never

	fields []http1.Field // of responses, if it is deprecated, will be removed or is not stable

	needsScope string // the message for a key without the scope

	pool    *upstream.Pool // nil: the gateway answers itself
	metrics *routeMetrics
}

// routes finds the operations of one document.
type routes struct {
	all      []*route
	methods  []string // of any operation
	byMethod map[string]*paths
	report   *route // the operation that the gateway answers itself; nil: none
	cors     *answers.CORS

	hasPublic bool // some operations need no key
}

// paths are the operations of one method.
type paths struct {
	fixed map[string]*route // by path: the operations that have one path, which cannot be read in two ways
	// router has the other paths with whole segments for parameters, without the slash at their end. A handler only stores the group of the
	// path. The router's own responses (redirects, OPTIONS, 405 in plain text) are not used.
	router *router.Router
	sorted []*route // the others, in the order of api.Pattern.Compare: the first one that matches a path serves it
}

// group is what the router finds. It is only where the search begins: fasthttp's router knows no parameter that is a part of a segment, and
// in some trees it finds a wider path, or none: with /users/bob, /users/bill and /users/{id}, it does not find /users/b.
type group struct {
	pattern api.Pattern
	routes  []*route // those that may have a path in common with it, or with it and a slash at its end, sorted
}

func newRoutes(operations []api.Operation, origins []string) (*routes, error) {
	r := &routes{byMethod: map[string]*paths{}}
	if len(operations) == 0 {
		return nil, errors.New("no operations are given")
	}
	for _, o := range operations {
		one := newRoute(o)
		r.all = append(r.all, one)
		r.hasPublic = r.hasPublic || o.IsPublic
		if o.IsReport() {
			r.report = one
		}
		r.add(o.Method, one)
	}
	for _, one := range r.all { // HEAD is answered like GET, if it is no operation of its own
		if one.Method == http.MethodGet && !slices.ContainsFunc(r.all, func(o *route) bool { return o.Method == http.MethodHead && o.pattern == one.pattern }) {
			r.add(http.MethodHead, one)
		}
	}
	for method, p := range r.byMethod {
		p.build(method)
	}
	r.methods = slices.Sorted(maps.Keys(r.byMethod))
	r.cors = answers.NewCORS(origins, r.methods)
	return r, nil
}

func newRoute(o api.Operation) *route {
	one := &route{
		Operation: o, pattern: o.Pattern(),
		needsScope: "the API key needs the scope " + o.Scope + " for this operation",
	}
	add := func(name, value string) {
		one.fields = append(one.fields, http1.Field{Name: []byte(name), Value: []byte(value)})
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
func (r *routes) add(method string, one *route) {
	p := r.byMethod[method]
	if p == nil {
		p = &paths{fixed: map[string]*route{}, router: router.New()}
		r.byMethod[method] = p
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
	slices.SortStableFunc(p.sorted, func(a, b *route) int { return a.pattern.Compare(b.pattern) })
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
		p.router.Handle(method, strings.ReplaceAll(whole, string(api.Star), "{p}"), func(rc *fasthttp.RequestCtx) { rc.SetUserValue(foundGroup, found) })
	}
}

// withoutSlash removes the slash at the end of a path.
func withoutSlash(path string) string { return cmp.Or(strings.TrimSuffix(path, "/"), "/") }

// foundGroup is the user value in which a handler stores its group.
const foundGroup = "group"

// carriers take a group from a handler to the caller.
var carriers = sync.Pool{New: func() any { return new(fasthttp.RequestCtx) }}

// find returns the route of a request, or nil. The path is matched byte for byte as it was sent. If the
// decoded path belongs to another operation, find returns nil: the upstream could carry out one that the key may not call.
func (r *routes) find(method, path []byte) *route {
	found := r.match(method, path)
	if isAmbiguous(path) {
		if other := r.match(method, decoded(path)); other != nil && other != found {
			return nil
		}
	}
	return found
}

// isAmbiguous reports whether an upstream may read a path in two ways: see decoded.
func isAmbiguous(path []byte) bool {
	return bytes.IndexByte(path, '%') >= 0 || bytes.IndexByte(path, ';') >= 0
}

// decoded returns a path as an upstream may read it: without percent-encoding and without parameters of segments, which some servers drop.
func decoded(path []byte) []byte {
	segments := strings.Split(string(path), "/")
	for i, s := range segments {
		s, _, _ = strings.Cut(s, ";")
		segments[i] = api.Canonical(s)
	}
	return []byte(strings.Join(segments, "/"))
}

// match returns the route of a path that is read in one way, or nil.
func (r *routes) match(method, sent []byte) *route {
	p := r.byMethod[string(method)]
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

// first returns the first route that has the path, or nil.
func first(sorted []*route, path string) *route {
	for _, one := range sorted {
		if one.pattern.Matches(path) {
			return one
		}
	}
	return nil
}

// allowed lists the methods of a path. It is empty for an unknown path.
func (r *routes) allowed(path string) string {
	var methods []string
	for _, method := range r.methods {
		if r.find([]byte(method), []byte(path)) != nil {
			methods = append(methods, method)
		}
	}
	return strings.Join(methods, ", ")
}

// nearby says what is wrong with a path that differs little from one that is served. It is empty for other paths.
func (r *routes) nearby(method []byte, path string) string {
	if r.match(method, []byte(path)) != nil {
		return "the path has two meanings, before and after decoding: send it without percent-encoding and without a semicolon"
	}
	if shorter, ok := strings.CutSuffix(path, "/"); ok && shorter != "" && r.allowed(shorter) != "" {
		return "there is no such path: it must not end in a slash"
	}
	return ""
}

func (e *Edge) find(x *exchange) *route {
	return e.routes.Load().find(x.Request.Method, x.Request.Path)
}

// mayCall reports whether there is such an operation, and the key may call it.
func (x *exchange) mayCall() bool {
	r := x.found
	return r != nil && (r.sunset == 0 || r.sunset > x.now) && x.entry.Scopes.Has(r.Scope)
}

// route refuses if there is no such operation, if it was removed, or if the key may not call it.
func (e *Edge) route(x *exchange) refusal {
	if x.route = x.found; x.route == nil {
		path, routes := string(x.Request.Path), e.routes.Load()
		if x.allow = routes.allowed(path); x.allow == "" && e.deps.Pages.Has(path) {
			x.allow = answers.PageMethods
		}
		if x.allow == "" {
			return refusal{reason: noSuchRoute, message: routes.nearby(x.Request.Method, path)}
		}
		return refusal{reason: methodNotAllowed, message: "the path does not have this method. Its methods are " + x.allow}
	}
	switch {
	case x.route.sunset != 0 && x.route.sunset <= x.now:
		return refusal{reason: operationRemoved}
	case x.isUnwanted, !x.entry.Scopes.Has(x.route.Scope):
		return refusal{reason: insufficientScope, message: x.route.needsScope}
	}
	return refusal{}
}

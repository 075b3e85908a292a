package routing

import (
	"bytes"
	"cmp"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/fasthttp/router"
	"github.com/valyala/fasthttp"

	"petgate/shared/api"
)

// paths are the operations of one method.
type paths struct {
	fixed map[string]*Route // by path: the operations that have one path, which cannot be read in two ways
	// router has the other paths with whole segments for parameters, without the slash at their end. A handler only stores the group of the
	// path. The router's own responses (redirects, OPTIONS, 405 in plain text) are not used.
	router *router.Router
	sorted []*Route // the others, in the order of api.Pattern.Compare: the first one that matches a path serves it
}

// group is what the router finds. It is only where the search begins: fasthttp's router knows no parameter that is a part of a segment, and
// in some trees it finds a wider path, or none: with /users/bob, /users/bill and /users/{id}, it does not find /users/b.
type group struct {
	pattern api.Pattern
	routes  []*Route // those that may have a path in common with it, or with it and a slash at its end, sorted
}

func newPaths() *paths { return &paths{fixed: map[string]*Route{}, router: router.New()} }

func (p *paths) add(one *Route) {
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
		p.router.Handle(method, strings.ReplaceAll(whole, string(api.Star), "{p}"), func(rc *fasthttp.RequestCtx) { rc.SetUserValue(foundGroup, found) })
	}
}

// withoutSlash removes the slash at the end of a path.
func withoutSlash(path string) string { return cmp.Or(strings.TrimSuffix(path, "/"), "/") }

// foundGroup is the user value in which a handler stores its group.
const foundGroup = "group"

// carriers take a group from a handler to the caller.
var carriers = sync.Pool{New: func() any { return new(fasthttp.RequestCtx) }}

// find returns the operation of a path that is read in one way, or nil.
func (p *paths) find(method, sent []byte) *Route {
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

// Package routing finds the operation of a request among those of a document. It gets a method and
// a path, and knows neither keys nor upstreams.
package routing

import (
	"bytes"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

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
	fixed map[string]*Route // by path: the operations without parameters, which are narrower than any other
	root  node              // the operations with parameters
}

// New returns the table of operations. There must be one at least.
func New(operations []api.Operation) (*Table, error) {
	t := &Table{byMethod: map[string]*paths{}}
	if len(operations) == 0 {
		return nil, errors.New("no operations are given")
	}
	hasHead := map[api.Pattern]bool{}
	for i, o := range operations {
		one := newRoute(i, o)
		t.Routes = append(t.Routes, one)
		t.add(o.Method, one)
		if o.Method == http.MethodHead {
			hasHead[one.pattern] = true
		}
	}
	for _, one := range t.Routes { // HEAD is answered like GET, if it is no operation of its own
		if one.Method == http.MethodGet && !hasHead[one.pattern] {
			t.add(http.MethodHead, one)
		}
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
		p = &paths{fixed: map[string]*Route{}}
		t.byMethod[method] = p
	}
	if strings.IndexByte(string(one.pattern), api.Star) < 0 {
		p.fixed[string(one.pattern)] = one
	} else {
		p.root.add(one)
	}
}

// find returns the operation of a path that is read in one way, or nil.
func (p *paths) find(path []byte) *Route {
	if one := p.fixed[string(path)]; one != nil {
		return one
	}
	return p.root.find(string(path), true)
}

// Find returns the operation of a request, or nil. The path is matched byte for byte as it was
// sent. If the decoded path belongs to another operation, Find returns nil: the upstream could
// carry out one that the key may not call.
func (t *Table) Find(method, path []byte) *Route {
	p := t.byMethod[string(method)]
	if p == nil {
		return nil
	}
	found := p.find(path)
	if bytes.IndexByte(path, '%') >= 0 || bytes.IndexByte(path, ';') >= 0 {
		if other := p.find(decoded(path)); other != nil && other != found {
			return nil
		}
	}
	return found
}

// decoded returns a path as an upstream may read it: without percent-encoding and without
// parameters of segments, which some servers drop. A parameter begins with a semicolon.
func decoded(path []byte) []byte {
	kept, isParameter := make([]byte, 0, len(path)), false
	for _, c := range path {
		isParameter = c == ';' || isParameter && c != '/'
		if !isParameter {
			kept = append(kept, c)
		}
	}
	return []byte(api.Canonical(string(kept)))
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
	if p := t.byMethod[string(method)]; p != nil && p.find([]byte(path)) != nil {
		return "the path has two meanings, before and after decoding: " +
			"send it without percent-encoding and without a semicolon"
	}
	if shorter, ok := strings.CutSuffix(path, "/"); ok && shorter != "" && t.Allowed(shorter) != "" {
		return "there is no such path: it must not end in a slash"
	}
	return ""
}

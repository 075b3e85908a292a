// Package routing finds the operation of a request among those of a document. It gets a method and a path, and knows neither keys nor
// upstreams.
package routing

import (
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
		isHead := func(o *Route) bool { return o.Method == http.MethodHead && o.pattern == one.pattern }
		if one.Method == http.MethodGet && !slices.ContainsFunc(t.Routes, isHead) {
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
		p = newPaths()
		t.byMethod[method] = p
	}
	p.add(one)
}

// Find returns the operation of a request, or nil. The path is matched byte for byte as it was sent. If the
// decoded path belongs to another operation, Find returns nil: the upstream could carry out one that the key may not call.
func (t *Table) Find(method, path []byte) *Route {
	found := t.match(method, path)
	if isAmbiguous(path) {
		if other := t.match(method, decoded(path)); other != nil && other != found {
			return nil
		}
	}
	return found
}

// match returns the operation of a path that is read in one way, or nil.
func (t *Table) match(method, path []byte) *Route {
	p := t.byMethod[string(method)]
	if p == nil {
		return nil
	}
	return p.find(method, path)
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

// Nearby says what is wrong with a path that differs little from one that is served. It is empty for other paths.
func (t *Table) Nearby(method []byte, path string) string {
	if t.match(method, []byte(path)) != nil {
		return "the path has two meanings, before and after decoding: send it without percent-encoding and without a semicolon"
	}
	if shorter, ok := strings.CutSuffix(path, "/"); ok && shorter != "" && t.Allowed(shorter) != "" {
		return "there is no such path: it must not end in a slash"
	}
	return ""
}

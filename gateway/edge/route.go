package edge

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/fasthttp/router"
	"github.com/valyala/fasthttp"

	"petgate/gateway/answers"
	"petgate/gateway/front"
	"petgate/shared/api"
	"petgate/shared/core/instant"
)

// route is an operation with the values that its responses need.
type route struct {
	api.Operation
	sunset instant.Millis // 0: never

	// Values of response headers. An empty value is not sent.
	deprecation, sunsetDate, link, stability []byte

	needsScope string // the message for a key without the scope

	metrics routeMetrics
}

// routes finds operations by method and path. Paths with parameters are found in the router's tree: a handler only stores its route. The
// router's own responses (redirects, OPTIONS, 405 in plain text) are not used.
type routes struct {
	fixed   map[string][]fixedRoute // by path: those without parameters, which need no search in the tree
	router  *router.Router
	all     []*route
	methods []string // of any operation
	report  *route   // the operation that the gateway answers itself; nil: none
}

func newRoutes(operations []api.Operation) (*routes, error) {
	r := &routes{router: router.New(), fixed: map[string][]fixedRoute{}}
	if len(operations) == 0 {
		return nil, errors.New("no operations are given")
	}
	for _, o := range operations {
		one := &route{Operation: o, stability: []byte(o.Stability), needsScope: "the API key needs the scope " + o.Scope + " for this operation"}
		if !o.DeprecatedAt.IsZero() {
			one.deprecation = strconv.AppendInt([]byte{'@'}, o.DeprecatedAt.Unix(), 10) // RFC 9745
		}
		if !o.SunsetAt.IsZero() {
			one.sunset = instant.Of(o.SunsetAt)
			one.sunsetDate = o.SunsetAt.UTC().AppendFormat(nil, http.TimeFormat) // RFC 8594
		}
		if o.Successor != "" {
			one.link = []byte("<" + o.Successor + `>; rel="successor-version"`) // RFC 5829
		}
		r.all = append(r.all, one)
		if o.IsReport() {
			r.report = one
		}
		methods := []string{o.Method}
		if o.Method == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
		for _, method := range methods {
			if !strings.Contains(o.Path, "{") {
				r.fixed[o.Path] = append(r.fixed[o.Path], fixedRoute{method, one})
			}
			r.router.Handle(method, o.Path, func(rc *fasthttp.RequestCtx) { rc.SetUserValue(foundRoute, one) })
			if !slices.Contains(r.methods, method) {
				r.methods = append(r.methods, method)
			}
		}
	}
	slices.Sort(r.methods)
	return r, nil
}

// fixedRoute is a method of a path without parameters.
type fixedRoute struct {
	method string
	route  *route
}

// foundRoute is the user value in which a handler stores its route.
const foundRoute = "route"

// find returns the route of a request, or nil. The path is matched byte for byte as it was sent.
func (r *routes) find(call *front.Call, method string, path []byte) *route {
	for _, one := range r.fixed[string(path)] {
		if one.method == method {
			return one.route
		}
	}
	handler, _ := r.router.Lookup(method, string(path), nil)
	if handler == nil {
		return nil
	}
	rc := call.Context()
	handler(rc)
	return rc.UserValue(foundRoute).(*route)
}

// allowed lists the methods of a path. It is empty for an unknown path.
func (r *routes) allowed(path string) string {
	var methods []string
	for _, method := range r.methods {
		if handler, _ := r.router.Lookup(method, path, nil); handler != nil {
			methods = append(methods, method)
		}
	}
	return strings.Join(methods, ", ")
}

// nearby says what is wrong with a path that differs from a known one by a slash at its end. It is empty for other paths.
func (r *routes) nearby(path string) string {
	if shorter, ok := strings.CutSuffix(path, "/"); ok && shorter != "" && r.allowed(shorter) != "" {
		return "there is no such path: it must not end in a slash"
	}
	return ""
}

func (e *Edge) find(x *exchange) *route {
	return e.routes.find(x.Call, methodName(x.Request.Method), x.Request.Path)
}

// mayCall reports whether there is such an operation, and the key may call it.
func (x *exchange) mayCall() bool {
	r := x.found
	return r != nil && (r.sunset == 0 || r.sunset > x.now) && x.entry.Scopes.Has(r.Scope)
}

// route refuses if there is no such operation, if it was removed, or if the key may not call it.
func (e *Edge) route(x *exchange) refusal {
	if x.route = x.found; x.route == nil {
		path := string(x.Request.Path)
		if x.allow = e.routes.allowed(path); x.allow == "" && e.pages.Has(path) {
			x.allow = answers.PageMethods
		}
		if x.allow == "" {
			return refusal{reason: noSuchRoute, message: e.routes.nearby(path)}
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

// methodName returns the method as a constant string, without an allocation. It is empty for methods that no operation has.
func methodName(method []byte) string {
	switch string(method) {
	case http.MethodGet:
		return http.MethodGet
	case http.MethodHead:
		return http.MethodHead
	case http.MethodPost:
		return http.MethodPost
	case http.MethodPut:
		return http.MethodPut
	case http.MethodPatch:
		return http.MethodPatch
	case http.MethodDelete:
		return http.MethodDelete
	}
	return ""
}

package edge

import (
	"petgate/gateway/answers"
	"petgate/gateway/routing"
	"petgate/gateway/upstream"
)

// route is an operation with what its requests need.
type route struct {
	*routing.Route
	needsScope string         // the message for a key without the scope
	pool       *upstream.Pool // nil: the gateway answers itself
	metrics    *routeMetrics
}

// routes are the operations of one document.
type routes struct {
	table     *routing.Table
	all       []*route // by routing.Route.Index
	report    *route   // the operation that the gateway answers itself; nil: none
	cors      *answers.CORS
	hasPublic bool // some operations need no key
}

// find returns the operation of the request, or nil.
func (x *exchange) find() *route {
	if x.found == nil {
		routes := x.edge.routes.Load()
		if found := routes.table.Find(x.Request.Method, x.Request.Path); found != nil {
			x.found = routes.all[found.Index]
		}
	}
	return x.found
}

// mayCall reports whether there is such an operation, and the key may call it.
func (x *exchange) mayCall() bool {
	r := x.find()
	return r != nil && !r.IsRemoved(x.now) && x.entry.Scopes.Has(r.Scope)
}

// route refuses if there is no such operation, if it was removed, or if the key may not call it.
func (e *Edge) route(x *exchange) refusal {
	x.route = x.found
	switch {
	case x.route == nil:
		return e.noRoute(x)
	case x.route.IsRemoved(x.now):
		return refusal{reason: operationRemoved}
	case x.isUnwanted, !x.entry.Scopes.Has(x.route.Scope):
		return refusal{reason: insufficientScope, message: x.route.needsScope}
	}
	return refusal{}
}

// noRoute refuses a request without an operation. It is 405 if the path has other methods, also if
// those are the methods of a page.
func (e *Edge) noRoute(x *exchange) refusal {
	path, table := string(x.Request.Path), e.routes.Load().table
	x.allow = table.Allowed(path)
	if x.allow == "" && e.deps.Pages.Has(path) {
		x.allow = answers.PageMethods
	}
	if x.allow == "" {
		return refusal{reason: noSuchRoute, message: table.Nearby(x.Request.Method, path)}
	}
	return refusal{
		reason:  methodNotAllowed,
		message: "the path does not have this method. Its methods are " + x.allow,
	}
}

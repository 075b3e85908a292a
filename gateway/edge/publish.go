package edge

// publish looks for requests that need no key. It answers those for a page of the documentation and
// CORS preflights, and reports whether it did. It marks those for a public operation, which go on.
//
// A request for a page with another method goes on like any other: identify refuses it with 401 if
// it has no key, and route with 405 if it has one.
func (e *Edge) publish(x *exchange) bool {
	routes := e.routes.Load()
	x.answer = e.deps.Pages.Find(&x.Request)
	if x.answer != nil && string(x.Request.Path) == "/" && routes.table.Allowed("/") != "" {
		x.answer = nil // the document has an operation with this path
	}
	if x.answer == nil {
		x.answer = routes.cors.Preflight(&x.Request)
	}
	if x.answer != nil {
		return true
	}
	x.isPublic = routes.hasPublic && x.find() != nil && x.found.IsPublic
	return false
}

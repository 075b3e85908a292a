package edge

import "petgate/gateway/answers"

// publish returns the answer to a request that needs no key: for a page of the documentation or a
// CORS preflight. It is nil for any other request. A request for a page with another method goes on
// to the next stages: identify refuses it with 401 if it has no key, and route with 405 if it has
// one.
func (e *Edge) publish(x *exchange) *answers.Answer {
	if page := e.deps.Pages.Find(&x.Request); page != nil &&
		(string(x.Request.Path) != "/" || e.routes.Load().table.Allowed("/") == "") {
		return page
	}
	return e.routes.Load().cors.Preflight(&x.Request)
}

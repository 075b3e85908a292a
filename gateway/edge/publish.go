package edge

import "petgate/gateway/answers"

// publish returns the answer to a request that needs no key: for a page of the documentation or a CORS preflight. It is nil for any
// other request. One for a page with another method passes on: without a key, identify refuses it with 401; with a key, route refuses
// it with 405.
func (e *Edge) publish(x *exchange) *answers.Answer {
	if page := e.pages.Find(&x.Request); page != nil {
		return page
	}
	return e.cors.Preflight(&x.Request)
}

package edge

import "petgate/gateway/upstream"

// isOpen reports whether the request is for an operation that needs no key. A document without such
// operations costs no search.
func (e *Edge) isOpen(x *exchange) bool {
	if !e.routes.Load().hasPublic {
		return false
	}
	x.found = e.find(x)
	return x.found != nil && x.found.IsPublic
}

// open serves an operation that needs no key. No quota is charged, and a key is not read. The
// client stays a stranger: its connection is one of those that make room first, all strangers
// together get the slots of one tenant, and an address that has tried too many unknown keys is
// refused.
func (e *Edge) open(x *exchange) refusal {
	x.isOpen = true
	if x.guard = e.deps.Guard.Known(x.client); x.guard.Limit > 0 && x.guard.Remaining == 0 {
		return refusal{reason: tooManyFailedAttempts}
	}
	if r := e.receive(x); r.isRefused() {
		return r
	}
	x.sending = upstream.Request{At: x.At}
	if x.found.pool.Enter(&x.sending) != nil {
		return refusal{reason: upstreamOverloaded}
	}
	if r := e.route(x); r.isRefused() {
		return r
	}
	return e.forward(x)
}

package edge

import (
	"errors"
	"fmt"

	"petgate/gateway/http1"
	"petgate/shared/trace"
)

// accept is the first stage, after http1 has read the request. It takes the fields that are for the
// gateway, gives the request an ID, decides whether it is traced, finds the client's address,
// refuses a request that could not be read, and takes a slot.
func (e *Edge) accept(x *exchange) refusal {
	isSingle := x.claims.MoveFrom(&x.Request)
	x.setID()
	parent := x.claims.TraceParent()
	x.trace = e.deps.Tracer.Begin(parent, len(parent) > 0 && e.proxies.Has(x.Conn.Peer))
	x.client = e.proxies.Client(x.Conn.Peer, &x.claims)
	if x.Err != nil {
		kind := http1.KindOf(x.Err)
		isWhole := kind != http1.Malformed && kind != http1.Ended // the head has arrived whole
		if isWhole && isSingle {
			e.recognize(x)
		}
		return e.unreadable(x.Err)
	}
	if !isSingle {
		return refusal{reason: badRequest, message: "there may be only one Authorization"}
	}
	return e.takeSlot(x)
}

// recognize looks for the key of a request that is refused for its size or its time. The refusal
// then counts for the tenant and shows its limits. A token that is not a valid key changes nothing,
// and is not counted as a failed attempt.
func (e *Edge) recognize(x *exchange) {
	if e.identify(x).isRefused() || x.env != e.cfg.Environment || !e.deps.Directory.Fresh(x.now) {
		return
	}
	x.entry, x.hasEntry = e.deps.Directory.Lookup(x.hash)
	if x.hasEntry {
		e.judge(x)
	}
}

// unreadable returns the refusal of a request that could not be read.
func (e *Edge) unreadable(err error) refusal {
	switch http1.KindOf(err) {
	case http1.TargetTooLong:
		return refusal{reason: uriTooLong}
	case http1.FieldsTooLarge:
		return refusal{reason: headersTooLarge}
	case http1.BodyTooLarge:
		return refusal{
			reason:  bodyTooLarge,
			message: fmt.Sprintf("the body is larger than %d bytes", e.cfg.BodyBytesMax),
		}
	case http1.UnmetExpectation:
		return refusal{reason: expectationFailed}
	case http1.TimedOut:
		return refusal{reason: requestTimeout}
	case http1.Malformed, http1.Ended:
		malformed, _ := errors.AsType[*http1.Error](err)
		return refusal{reason: badRequest, message: malformed.Reason}
	}
	return refusal{reason: overloaded} // http1.Busy, or too many connections
}

// takeSlot takes one of the slots, of which each request that is served needs one.
func (e *Edge) takeSlot(x *exchange) refusal {
	x.hasSlot = e.slots.Take(1)
	if !x.hasSlot {
		return refusal{reason: overloaded}
	}
	return refusal{}
}

// returnSlot gives back the slot, if the request holds one.
func (e *Edge) returnSlot(x *exchange) {
	if x.hasSlot {
		x.hasSlot = false
		e.slots.Give(1)
	}
}

// setID uses the client's request ID, or generates one. An ID only distinguishes requests, so a
// fast random generator is enough.
func (x *exchange) setID() {
	x.id = x.claims.RequestID()
	if x.id == nil {
		x.id = trace.NewTraceID().AppendTo(x.idBuffer[:0])
	}
}

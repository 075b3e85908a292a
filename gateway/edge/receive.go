package edge

import (
	"time"

	"petgate/gateway/http1"
)

// receive reads the rest of a large body, up to http1.PartBytesMax. It stands after authorize, so
// the body of a client without a valid key costs the gateway at most front.EarlyBytesMax.
//
// A client that waits for 100 (Continue) is not told to send a body that is refused anyway: for its
// path, its method or its scope. meter charges such a request, and route refuses it.
//
// While the body arrives, the request holds no slot, so a slow client does not block others. When
// the memory for bodies is scarce, a tenant gets only its share.
func (e *Edge) receive(x *exchange) refusal {
	if x.Body.IsComplete() {
		return refusal{}
	}
	if x.Request.AwaitsContinue && !x.mayCall() {
		x.isUnwanted = true
		return refusal{}
	}
	x.hasBody = e.bodies.Take(x.entry.Tenant)
	if !x.hasBody {
		return refusal{
			reason:  overloaded,
			message: "your account sends too many large bodies at the same time: try again",
		}
	}
	e.returnSlot(x)
	if err := x.Conn.ReadBody(&x.Request, &x.Body, http1.PartBytesMax); err != nil {
		return e.unreadable(err)
	}
	x.At = time.Now() // durations count from the last byte
	if r := e.takeSlot(x); r.isRefused() {
		return r
	}
	return e.authenticateAgain(x)
}

package edge

import (
	"time"

	"petgate/gateway/http1"
)

// receive reads the rest of a large body, up to http1.PartBytesMax, after the key was checked. So a
// body without a valid key costs the gateway at most front.EarlyBytesMax, and a client that waits
// for 100 (Continue) does not send a body that is refused anyway, also for its path, its method or
// its scope. While the body arrives, the request holds no slot, so a slow client does not block
// others. When the memory for bodies is scarce, a tenant gets only its share.
func (e *Edge) receive(x *exchange) refusal {
	if x.Body.IsComplete() {
		return refusal{}
	}
	if x.Request.AwaitsContinue {
		if x.found == nil {
			x.found = e.find(x)
		}
		if x.isUnwanted = !x.mayCall(); x.isUnwanted { // meter charges it, and route refuses it
			return refusal{}
		}
	}
	if x.hasBody = e.bodies.Take(x.entry.Tenant); !x.hasBody {
		return refusal{
			reason:  overloaded,
			message: "your account sends too many large bodies at the same time: try again",
		}
	}
	e.leave(x)
	if err := x.Conn.ReadBody(&x.Request, &x.Body, http1.PartBytesMax); err != nil {
		return e.unreadable(err)
	}
	x.At = time.Now() // durations count from the last byte
	if r := e.enter(x); r.isRefused() {
		return r
	}
	if x.isOpen {
		return refusal{}
	}
	return e.again(x)
}

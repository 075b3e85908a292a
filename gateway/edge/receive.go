package edge

import "time"

// earlyBytesMax is how much of a body is read before the key is checked. Most bodies are smaller.
const earlyBytesMax = 16 << 10

// receive reads the rest of a large body after the key was checked. So a body without a valid key costs the gateway at
// most earlyBytesMax, and a client that waits for 100 (Continue) does not send a body that is refused anyway. While the
// body arrives, the request holds no slot, so a slow client does not block others. The bodies of one tenant take at most half
// of the memory for bodies.
func (e *Edge) receive(x *exchange) refusal {
	if x.body.IsComplete() {
		return refusal{}
	}
	if x.hasBody = e.bodies.Take(x.entry.Tenant); !x.hasBody {
		return refusal{reason: overloaded, message: "your account sends too many large bodies at the same time: try again"}
	}
	e.leave(x)
	if err := x.conn.ReadBody(&x.request, &x.body, e.cfg.BodyBytesMax); err != nil {
		return e.unreadable(err)
	}
	x.startedAt = time.Now() // durations count from the last byte
	return e.enter(x)
}

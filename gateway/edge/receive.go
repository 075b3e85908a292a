package edge

import "time"

// earlyBytesMax is how much of a body is read before the key is looked at. Most bodies are smaller.
const earlyBytesMax = 16 << 10

// receive reads what is left of a large body, now that the client may send it. Until then a client without a key costs the gateway
// no more than earlyBytesMax, and a client that waits for 100 (Continue) sends nothing in vain. While the body arrives, the request
// holds no slot: a slow client takes none from the others.
func (e *Edge) receive(x *exchange) refusal {
	if x.body.IsComplete() {
		return refusal{}
	}
	e.leave(x)
	if err := x.conn.ReadBody(&x.request, &x.body, e.cfg.BodyBytesMax); err != nil {
		return unreadable(err)
	}
	x.startedAt = time.Now() // durations count from the last byte
	return e.enter(x)
}

// enter takes one of the slots for requests that are served at a time.
func (e *Edge) enter(x *exchange) refusal {
	if e.inFlight.Add(1) > int64(e.cfg.ConcurrencyMax) {
		e.inFlight.Add(-1)
		return refusal{reason: overloaded}
	}
	x.hasSlot = true
	return refusal{}
}

// leave gives the slot back, if the request holds one.
func (e *Edge) leave(x *exchange) {
	if x.hasSlot {
		x.hasSlot = false
		e.inFlight.Add(-1)
	}
}

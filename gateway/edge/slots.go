package edge

// enter takes a slot. There are ConcurrencyMax slots, one for each request that is served at a
// time.
func (e *Edge) enter(x *exchange) refusal {
	if e.inFlight.Add(1) > int64(e.cfg.ConcurrencyMax) {
		e.inFlight.Add(-1)
		return refusal{reason: overloaded}
	}
	x.hasSlot = true
	return refusal{}
}

// leave returns the slot, if the request holds one.
func (e *Edge) leave(x *exchange) {
	if x.hasSlot {
		x.hasSlot = false
		e.inFlight.Add(-1)
	}
}

package redis

import (
	"math"
	"time"
)

// pace decides how many batches may be under way to one server.
//
// If the server is near, a trip is mostly work: that of Redis, and that of both systems to send and to wake up. Then one batch
// at a time is best, because larger batches need less work. If the server is far away, a trip is mostly distance, and to wait
// for another trip to end saves no work. So further batches may leave: one more after each quick trip, and one less after each
// slow trip. A slow trip means that Redis, the network or this process is busy, and larger batches are the cure. (TCP Vegas
// adapts its window in the same way.)
//
// It is not safe for concurrent use.
type pace struct {
	fixed bool // lanes does not change
	lanes int  // how many batches may be under way

	shortest time.Duration // trip of this period
	before   time.Duration // shortest trip of the period before
	ends     time.Time     // of this period
}

const (
	// distance is the shortest trip to a server that is far away. Over loopback, a trip takes 50 to 100 µs.
	distance = 250 * time.Microsecond
	// period is how long the shortest trip is remembered, at least. In a short period, a queue at Redis would look like distance.
	period = 5 * time.Minute
	// tripCost is the least time of waiting that a further batch has to save, summed over its requests. It is several times the
	// processor time that one more call costs a gateway and Redis.
	tripCost = 200 * time.Microsecond
)

// newPace returns a pace with this number of lanes; 0: as many as pay.
func newPace(lanes int) pace {
	return pace{fixed: lanes > 0, lanes: max(1, lanes), shortest: math.MaxInt64, before: math.MaxInt64}
}

// note learns from a trip.
func (p *pace) note(began time.Time, took time.Duration) {
	if began.After(p.ends) {
		p.before, p.shortest, p.ends = p.shortest, math.MaxInt64, began.Add(period)
	}
	p.shortest = min(p.shortest, took)
	switch least := p.least(); {
	case p.fixed:
	case least < distance:
		p.lanes = 1
	case took > 2*least:
		p.lanes = max(1, p.lanes-1)
	default:
		p.lanes = min(lanesMax, p.lanes+1)
	}
}

// slow goes back to one batch at a time: a trip has failed.
func (p *pace) slow() {
	if !p.fixed {
		p.lanes = 1
	}
}

// least is the shortest trip lately.
func (p *pace) least() time.Duration { return min(p.shortest, p.before) }

// pays reports whether one more batch, with the requests that wait, pays. The requests would otherwise wait until one of the
// batches under way returns.
func (p *pace) pays(waiting, underWay int) bool {
	return waiting > 0 && underWay < p.lanes &&
		(p.fixed || time.Duration(waiting)*p.least()/time.Duration(underWay+1) >= tripCost)
}

package redis

import (
	"petgate/gateway/quotas/store"
	"petgate/shared/core/id"
	"petgate/shared/core/quota"
)

// tenantsMax bounds a batch, and so the time for which it blocks Redis: less than a millisecond.
const tenantsMax = 256

// Outcome is how a request ended.
type Outcome uint8

// The outcomes.
const (
	_          Outcome = iota
	Decided            // Redis has decided
	Remembered         // a remembered refusal answers it
	Undecided          // the caller has to decide; Redis may have charged it if its answer was lost
	again              // no server of the cluster serves its slot now: Take repeats it, for the budget at most
)

// waiter is one request's place in a batcher.
type waiter struct {
	call    store.Call
	place   int // index of its tenant's demand in the batch
	outcome Outcome
	verdict quota.Verdict
	leads   bool          // the next batch
	signal  chan struct{} // the request leads, or its outcome is set
}

// end wakes the request.
func (w *waiter) end(o Outcome) {
	w.outcome = o
	w.signal <- struct{}{}
}

// batch has the requests that one trip decides. Requests of one tenant that are alike share a
// demand. Only the leader of the batch uses it.
type batch struct {
	places   map[id.Tenant]int // of the tenants: index in demands
	requests []*waiter
	demands  []store.Demand
	calls    []store.Call // by demand: what its requests ask; of joined demands, the second one has it
	results  []store.Result
	granted  []int64 // by demand: how many of its grants were handed out
}

// reset empties the batch.
func (a *batch) reset() {
	clear(a.places)
	a.requests = a.requests[:0]
	a.demands, a.calls, a.granted = a.demands[:0], a.calls[:0], a.granted[:0]
}

// join adds a request to the batch and reports true, or reports false if it does not fit. A request
// does not fit if the batch is full, or already has a demand for its tenant that asks something
// else: other limits, another cost, or the own limits of another key. So all requests of a demand
// are alike, and its grants go to the first ones.
func (a *batch) join(w *waiter) bool {
	place, isThere := a.places[w.call.Tenant]
	if isThere && a.calls[place] != w.call || !isThere && len(a.demands) >= tenantsMax {
		return false
	}
	if !isThere {
		if w.call.IsCapped() {
			a.add(store.Demand{Request: w.call.Own(), Joined: true}, store.Call{})
		}
		place = a.add(store.Demand{Request: w.call.Request}, w.call)
		a.places[w.call.Tenant] = place
	}
	w.place = place
	a.demands[place].Want++
	if w.call.IsCapped() {
		a.demands[place-1].Want++
	}
	a.requests = append(a.requests, w)
	return true
}

// add adds a demand to the batch and returns its place.
func (a *batch) add(d store.Demand, c store.Call) int {
	a.demands, a.calls, a.granted = append(a.demands, d), append(a.calls, c), append(a.granted, 0)
	return len(a.demands) - 1
}

// end ends all requests with the same outcome.
func (a *batch) end(o Outcome) {
	for _, w := range a.requests {
		w.end(o)
	}
}

// distribute gives each request the verdict that it would have got if the requests had been sent
// one by one.
func (a *batch) distribute(m *Metrics) {
	for _, w := range a.requests {
		switch err := a.answer(w); {
		case err == nil:
			w.end(Decided)
		case isSlotTrouble(err):
			w.end(again)
		case isTimeout(err):
			m.timeouts.Inc()
			w.end(Undecided)
		default:
			m.recordErrors.Inc()
			w.end(Undecided)
		}
	}
}

// answer sets a request's verdict, or returns why there is none.
func (a *batch) answer(w *waiter) error {
	result := &a.results[w.place]
	if result.Err != nil {
		return result.Err
	}
	w.verdict = result.Verdict
	if w.call.IsCapped() {
		own := &a.results[w.place-1]
		if own.Err != nil {
			return own.Err
		}
		w.verdict.Join(&own.Verdict)
	}
	w.verdict.Granted = 0
	left := result.Verdict.Granted - a.granted[w.place]
	if left <= 0 {
		return nil
	}
	a.granted[w.place]++
	w.verdict.Granted = 1
	later := left - 1 // requests of this batch that are admitted after this one
	w.verdict.Before(later * max(1, w.call.Cost))
	return nil
}

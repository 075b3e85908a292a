package redis

import (
	"time"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
)

// tenantsMax bounds a batch, and so the time for which it blocks Redis: less than a millisecond.
const tenantsMax = 256

// batch is the batch under way. Only its leader uses it.
type batch struct {
	batcher *batcher
	stack   *stack // runs carry: go-redis needs a larger stack than the rest of a request

	places   map[id.Tenant]int // of the tenants: index in demands
	requests []*waiter
	demands  []store.Demand
	calls    []store.Call // by demand: what its requests ask; of joined demands, the second one has it
	results  []store.Result
	taken    []int64   // how many of each demand's grants have been handed out
	err      error     // of the trip
	began    time.Time // of the trip
}

// run gathers a batch and makes one trip with it. Then the next batch may depart. The leader calls
// it.
func (a *batch) run() {
	a.stack.run()
	b := a.batcher
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isResting {
		a.stack.close()
	}
	clear(a.places)
	b.isUnderWay = false
	b.idle.Broadcast()
	if a.err != nil || b.down.Load() {
		b.dismiss()
		return
	}
	if len(a.demands) > 0 {
		if use := b.redis.cfg.Rule.UseOf(&a.results[0].Verdict).Day; use.Used > 0 {
			b.known = known{a.demands[0].Request, use.Ends, a.began}
		}
	}
	b.depart()
}

// carry makes the trip and ends the requests of the batch.
func (a *batch) carry() {
	b := a.batcher
	b.mu.Lock()
	a.gather()
	b.mu.Unlock()
	a.err = guarded(a.trip)
	if a.err == nil {
		a.distribute()
		return
	}
	for _, w := range a.requests {
		w.end(Undecided)
	}
}

// gather makes a batch of the requests that wait, the leader's first. Those that do not fit into it
// stay in the queue. The caller must hold the batcher's mu.
func (a *batch) gather() {
	b, now := a.batcher, a.batcher.redis.now()
	a.requests, a.demands, a.calls, a.taken = a.requests[:0], a.demands[:0], a.calls[:0], a.taken[:0]
	kept := b.queue[:0]
	for _, w := range b.queue {
		if !a.join(w, now) {
			kept = append(kept, w)
		}
	}
	b.queue = kept
}

// join adds a request to the batch and reports true, or reports false if it does not fit. A request
// that a remembered refusal answers ends. A request does not fit if the batch is full, or already
// has a demand for its tenant that asks something else: other limits, another cost, or the own
// limits of another key. So all requests of a demand are alike, and its grants go to the first
// ones.
func (a *batch) join(w *waiter, now instant.Millis) bool {
	if v, ok := a.batcher.redis.ledger.Refusal(&w.call, now); ok {
		w.verdict = v
		w.end(Remembered)
		return true
	}
	place, ok := a.places[w.call.Tenant]
	switch {
	case !ok && len(a.demands) >= tenantsMax:
		return false
	case !ok:
		if w.call.IsCapped() {
			a.add(store.Demand{Request: w.call.Own(), Joined: true}, store.Call{})
		}
		place = a.add(store.Demand{Request: w.call.Request}, w.call)
		a.places[w.call.Tenant] = place
	case a.calls[place] != w.call:
		return false
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
	a.demands, a.calls, a.taken = append(a.demands, d), append(a.calls, c), append(a.taken, 0)
	return len(a.demands) - 1
}

// trip sends the batch to Redis. Redis gets the whole budget even if the requests have waited: a
// long queue is not an outage.
func (a *batch) trip() error {
	if len(a.demands) == 0 {
		return nil
	}
	b, r, m := a.batcher, a.batcher.redis, a.batcher.redis.cfg.Metrics
	a.results = append(a.results[:0], make([]store.Result, len(a.demands))...)
	for i := range a.demands {
		r.ledger.Collect(&a.demands[i])
	}
	number := r.numbers.Add(1)
	a.began = time.Now()
	beganAt := r.now()
	err := b.ask(func() error { return r.store.DecideBatch(r.closing, number, a.demands, a.results) })
	m.tripSeconds.Observe(time.Since(a.began).Seconds())
	m.batchRequests.Observe(float64(len(a.requests)))
	m.batchTenants.Observe(float64(len(a.demands)))
	unsure := b.settle(number, a.demands, a.results, err, beganAt)
	switch {
	case unsure != nil:
		m.tripUnsure.Inc()
		b.fail(unsure)
	case err != nil:
		m.tripFailed.Inc()
	default:
		m.tripOK.Inc()
	}
	if isTimeout(err) {
		m.timeouts.Add(float64(len(a.requests)))
	}
	return err
}

// distribute gives each request of the batch the verdict that it would have got if the requests had
// been sent one by one.
func (a *batch) distribute() {
	for _, w := range a.requests {
		r := &a.results[w.place]
		w.verdict = r.Verdict
		if w.call.IsCapped() {
			if own := &a.results[w.place-1]; r.Err == nil && own.Err != nil {
				r = own
			} else {
				w.verdict.Join(&own.Verdict)
			}
		}
		if r.Err != nil {
			if isSlotTrouble(r.Err) {
				w.end(again)
				continue
			}
			if m := a.batcher.redis.cfg.Metrics; isTimeout(r.Err) {
				m.timeouts.Inc()
			} else {
				m.recordErrors.Inc()
			}
			w.end(Undecided)
			continue
		}
		w.verdict.Granted = 0
		if left := r.Verdict.Granted - a.taken[w.place]; left > 0 {
			a.taken[w.place]++
			w.verdict.Granted = 1
			w.verdict.Before(
				(left - 1) * max(1, w.call.Cost),
			) // requests of this batch that were admitted after this one
		}
		w.end(Decided)
	}
}

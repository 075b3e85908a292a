package redis

import (
	"cmp"
	"slices"
	"time"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
)

const (
	// lanesMax bounds the batches under way from one gateway to one Redis server.
	lanesMax = 8
	// tenantsMax bounds a batch, and so the time for which it blocks Redis: less than a millisecond.
	tenantsMax = 256
)

// lane is the place of one batch under way. Batches of different lanes may overtake each other.
type lane struct {
	batcher *batcher
	stack   *stack // runs carry: go-redis needs a larger stack than the rest of a request

	// These fields are guarded by the batcher's mu.
	isUsed  bool
	leader  *waiter           // it is about to gather the batch; its own request comes first
	places  map[id.Tenant]int // of the tenants in the batch: index in demands
	waiting []*waiter         // requests of these tenants, for a later batch

	// Only the leader uses the following fields, and the caller of alone.
	requests []*waiter // in the batch
	demands  []store.Demand
	calls    []store.Call // by demand: what its requests ask; of joined demands, the second one has it
	results  []store.Result
	taken    []int64       // how many of each demand's grants have been handed out
	err      error         // of the last trip
	began    time.Time     // of the last trip
	took     time.Duration // of the last trip; 0: nothing had to be sent
}

// run gathers a batch and makes one trip with it. Then the next batch may depart. The leader calls it.
func (l *lane) run() {
	l.stack.run()
	b := l.batcher
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isResting {
		l.stack.close()
	}
	clear(l.places)
	l.isUsed = false
	b.underWay--
	b.idle.Broadcast()
	if l.err != nil || b.down.Load() {
		b.pace.slow()
		b.dismiss()
		return
	}
	if l.took > 0 {
		b.pace.note(l.began, l.took)
		if use := b.redis.cfg.Rule.UseOf(&l.results[0].Verdict).Day; use.Used > 0 {
			b.known = known{l.demands[0].Request, use.Ends, l.began}
		}
	}
	if len(l.waiting) > 0 {
		b.queue = append(b.queue, l.waiting...)
		slices.SortFunc(b.queue, func(a, b *waiter) int { return cmp.Compare(a.arrived, b.arrived) })
		l.waiting = l.waiting[:0]
	}
	b.depart()
}

// carry makes the trip and ends the requests of the batch.
func (l *lane) carry() {
	b := l.batcher
	b.mu.Lock()
	l.gather()
	b.mu.Unlock()
	l.err = guarded(l.trip)
	if l.err == nil {
		l.distribute()
		return
	}
	for _, w := range l.requests {
		w.end(Undecided)
	}
}

// gather makes a batch of the requests that wait. Requests of tenants that are under way in other lanes wait there. Requests
// that do not fit into the batch stay in the queue. The caller must hold the batcher's mu.
func (l *lane) gather() {
	b, now := l.batcher, l.batcher.redis.now()
	l.requests, l.demands, l.calls, l.taken = l.requests[:0], l.demands[:0], l.calls[:0], l.taken[:0]
	if b.underWay > 1 {
		b.sift()
	}
	l.join(l.leader, now)
	l.leader = nil
	kept := b.queue[:0]
	for _, w := range b.queue {
		if !l.join(w, now) {
			kept = append(kept, w)
		}
	}
	b.queue, b.departing = kept, false
	b.depart()
}

// join adds a request to the batch and reports true, or reports false if the batch is full. A request that a remembered refusal
// answers ends. A request waits if the batch already has a demand for its tenant that asks something else: other limits, another cost, or
// the own limits of another key. So all requests of a demand are alike, and its grants go to the first ones.
func (l *lane) join(w *waiter, now instant.Millis) bool {
	if v, ok := l.batcher.redis.ledger.Refusal(&w.call, now); ok {
		w.verdict = v
		w.end(Remembered)
		return true
	}
	place, ok := l.places[w.call.Tenant]
	switch {
	case !ok && len(l.demands) >= tenantsMax:
		return false
	case !ok:
		if w.call.IsCapped() {
			l.add(store.Demand{Request: w.call.Own(), Joined: true}, store.Call{})
		}
		place = l.add(store.Demand{Request: w.call.Request}, w.call)
		l.places[w.call.Tenant] = place
	case l.calls[place] != w.call:
		l.waiting = append(l.waiting, w)
		return true
	}
	w.place = place
	l.demands[place].Want++
	if w.call.IsCapped() {
		l.demands[place-1].Want++
	}
	l.requests = append(l.requests, w)
	return true
}

// add adds a demand to the batch and returns its place.
func (l *lane) add(d store.Demand, c store.Call) int {
	l.demands, l.calls, l.taken = append(l.demands, d), append(l.calls, c), append(l.taken, 0)
	return len(l.demands) - 1
}

// trip sends the batch to Redis. Redis gets the whole budget even if the requests have waited: a long queue is not an outage.
func (l *lane) trip() error {
	l.took = 0
	if len(l.demands) == 0 {
		return nil
	}
	b, r, m := l.batcher, l.batcher.redis, l.batcher.redis.cfg.Metrics
	l.results = append(l.results[:0], make([]store.Result, len(l.demands))...)
	for i := range l.demands {
		r.ledger.Collect(&l.demands[i])
	}
	number := r.numbers.Add(1)
	l.began = time.Now()
	beganAt := r.now()
	err := b.ask(func() error { return r.store.DecideBatch(r.closing, number, l.demands, l.results) })
	l.took = time.Since(l.began)
	m.tripSeconds.Observe(l.took.Seconds())
	m.batchRequests.Observe(float64(len(l.requests)))
	m.batchTenants.Observe(float64(len(l.demands)))
	unsure := b.settle(number, l.demands, l.results, err, beganAt)
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
		m.timeouts.Add(float64(len(l.requests)))
	}
	return err
}

// distribute gives each request of the batch the verdict that it would have got if the requests had been sent one by one.
func (l *lane) distribute() {
	for _, w := range l.requests {
		r := &l.results[w.place]
		w.verdict = r.Verdict
		if w.call.IsCapped() {
			if own := &l.results[w.place-1]; r.Err == nil && own.Err != nil {
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
			if m := l.batcher.redis.cfg.Metrics; isTimeout(r.Err) {
				m.timeouts.Inc()
			} else {
				m.recordErrors.Inc()
			}
			w.end(Undecided)
			continue
		}
		w.verdict.Granted = 0
		if left := r.Verdict.Granted - l.taken[w.place]; left > 0 {
			l.taken[w.place]++
			w.verdict.Granted = 1
			w.verdict.Before((left - 1) * max(1, w.call.Cost)) // requests of this batch that were admitted after this one
		}
		w.end(Decided)
	}
}

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
		if use := l.results[0].Verdict.DayUse; use.Used > 0 {
			b.known = known{l.demands[0].Request, use.Day, l.began}
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
	l.requests, l.demands, l.taken = l.requests[:0], l.demands[:0], l.taken[:0]
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
// answers ends. A request waits if the batch already has a demand for its tenant under other limits.
func (l *lane) join(w *waiter, now instant.Millis) bool {
	if v, ok := l.batcher.redis.ledger.Refusal(w.request, now); ok {
		w.verdict = v
		w.end(Remembered)
		return true
	}
	place, ok := l.places[w.request.Tenant]
	switch {
	case !ok && len(l.demands) == tenantsMax:
		return false
	case !ok:
		place = len(l.demands)
		l.places[w.request.Tenant] = place
		l.demands = append(l.demands, store.Demand{Request: w.request})
		l.taken = append(l.taken, 0)
	case l.demands[place].Request != w.request:
		l.waiting = append(l.waiting, w)
		return true
	}
	w.place = place
	l.demands[place].Want++
	l.requests = append(l.requests, w)
	return true
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
		w.verdict = r.Verdict
		w.verdict.Granted = 0
		if left := r.Verdict.Granted - l.taken[w.place]; left > 0 {
			l.taken[w.place]++
			w.verdict.Granted = 1
			if later := left - 1; later > 0 { // requests of this batch that were admitted after this one
				w.verdict.Minute.Used -= later
				w.verdict.Day.Used -= later
				w.verdict.DayUse.Used -= later
				w.verdict.Minute.RetryAt, w.verdict.Day.RetryAt = 0, 0
			}
		}
		w.end(Decided)
	}
}

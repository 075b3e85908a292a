package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/id"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
)

const (
	// tenantsMax bounds a batch, and so how long Redis serves nobody else: less than a millisecond.
	tenantsMax = 256
	// A server that is down is probed this often.
	probeInterval = 150 * time.Millisecond
)

// errDown says that a Redis server is not asked because it did not answer lately.
var errDown = errors.New("no answer from Redis lately")

// batcher carries decisions to one Redis server: a queue, and never more than one batch under way. There is no timer. The
// first request to find the batcher idle becomes its leader and sends a batch. Requests that arrive meanwhile form the next
// batch; its first request leads it.
//
// When a batch fails, the server is down: the requests of the batch and of the queue are let go, to be decided without
// Redis, and so are all that come until a probe has succeeded.
type batcher struct {
	redis *Redis
	down  atomic.Bool
	heard atomic.Bool // the server has answered at least once

	tripping sync.Mutex    // held during a trip of requests, and while the probe recovers
	number   int64         // of the last batch; needs tripping
	lost     lostBatch     // the one whose failure put the server down; needs tripping
	resets   []store.Reset // that wait for the server; needs tripping
	probing  id.Tenant     // has no other use; its record lies on this server
	waiters  sync.Pool     // of *waiter, not in use

	mu      sync.Mutex
	queue   []*waiter
	leading bool

	// What follows belongs to the leader.
	batch   []*waiter
	later   []*waiter // did not fit into the batch; go before the queue
	demands []store.Demand
	results []store.Result
	places  map[id.Tenant]int // in demands
	taken   []int64           // how many of each demand's grants have been handed out
}

// waiter is one request's place in a batcher.
type waiter struct {
	request store.Request
	place   int // of its tenant's demand in the batch
	outcome Outcome
	verdict quota.Verdict
	signal  chan bool // true: lead; false: the outcome is settled
}

func newBatcher(r *Redis, probing id.Tenant) *batcher {
	b := &batcher{redis: r, probing: probing, places: make(map[id.Tenant]int)}
	b.waiters.New = func() any { return &waiter{signal: make(chan bool, 1)} }
	return b
}

// take queues a request and waits for its outcome.
func (b *batcher) take(q store.Request) (quota.Verdict, Outcome) {
	if b.down.Load() {
		return quota.Verdict{}, Undecided
	}
	w := b.waiters.Get().(*waiter)
	w.request, w.outcome = q, pending
	b.mu.Lock()
	b.queue = append(b.queue, w)
	lead := !b.leading
	b.leading = true
	b.mu.Unlock()
	if lead || <-w.signal {
		b.lead(w)
	}
	verdict, outcome := w.verdict, w.outcome
	b.waiters.Put(w)
	return verdict, outcome
}

// lead makes one trip, in whose batch own is the first, and passes the lead on.
func (b *batcher) lead(own *waiter) {
	b.mu.Lock()
	b.batch = append(append(b.batch[:0], b.later...), b.queue...)
	b.queue = b.queue[:0]
	b.mu.Unlock()
	b.later = b.later[:0]

	b.gather(own)
	err := b.trip()
	if err == nil {
		b.distribute()
	} else {
		for _, w := range b.batch {
			w.outcome = outcomeOf(err)
		}
	}
	for _, w := range b.batch {
		b.release(w, own)
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		for _, w := range append(b.later, b.queue...) {
			w.outcome = Undecided
			b.release(w, own)
		}
		b.later, b.queue = b.later[:0], b.queue[:0]
	}
	switch {
	case len(b.later) > 0:
		b.later[0].signal <- true
	case len(b.queue) > 0:
		b.queue[0].signal <- true
	default:
		b.leading = false
	}
}

// gather makes demands of the batch. It drops from it the requests that a remembered refusal answers, and those that have to
// wait for the next batch: for lack of room, or because their tenant is asked for under other limits.
func (b *batcher) gather(own *waiter) {
	r := b.redis
	now := r.now()
	b.demands, b.taken = b.demands[:0], b.taken[:0]
	clear(b.places)
	kept := b.batch[:0]
	for _, w := range b.batch {
		if v, ok := r.ledger.Refusal(w.request, now); ok {
			w.verdict, w.outcome = v, Remembered
			b.release(w, own)
			continue
		}
		place, ok := b.places[w.request.Tenant]
		switch {
		case !ok && len(b.demands) == tenantsMax, ok && b.demands[place].Request != w.request:
			b.later = append(b.later, w)
			continue
		case !ok:
			place = len(b.demands)
			b.places[w.request.Tenant] = place
			b.demands = append(b.demands, store.Demand{Request: w.request})
			r.ledger.Collect(&b.demands[place])
			b.taken = append(b.taken, 0)
		}
		w.place = place
		b.demands[place].Want++
		kept = append(kept, w)
	}
	b.batch = kept
}

// trip asks Redis. However long its requests have waited, Redis is given the whole budget: a long queue is not an outage.
func (b *batcher) trip() error {
	if len(b.demands) == 0 {
		return nil
	}
	r, m := b.redis, b.redis.cfg.Metrics
	b.results = append(b.results[:0], make([]store.Result, len(b.demands))...)
	b.tripping.Lock()
	defer b.tripping.Unlock()
	b.number++
	number := b.number
	began, beganAt := time.Now(), r.now()
	err := b.ask(func() error { return r.store.DecideBatch(r.closing, number, b.demands, b.results) })
	m.tripSeconds.Observe(time.Since(began).Seconds())
	m.batchRequests.Observe(float64(len(b.batch)))
	m.batchTenants.Observe(float64(len(b.demands)))
	switch outcomeOf(err) {
	case Decided:
		m.tripOK.Inc()
	case Unsure:
		m.tripUnsure.Inc()
	default:
		m.tripFailed.Inc()
	}
	if isTimeout(err) {
		m.timeouts.Add(float64(len(b.batch)))
	}
	b.settle(number, b.demands, b.results, err, beganAt)
	return err
}

// distribute gives each request of the batch the verdict that it would have been given alone, in its turn.
func (b *batcher) distribute() {
	for _, w := range b.batch {
		r := &b.results[w.place]
		if r.Err != nil {
			b.redis.cfg.Metrics.recordErrors.Inc()
			w.outcome = outcomeOf(r.Err)
			continue
		}
		w.verdict, w.outcome = r.Verdict, Decided
		w.verdict.Granted = 0
		if left := r.Verdict.Granted - b.taken[w.place]; left > 0 {
			b.taken[w.place]++
			w.verdict.Granted = 1
			if later := left - 1; later > 0 { // others were admitted after it
				w.verdict.Minute.Used -= later
				w.verdict.Day.Used -= later
				w.verdict.DayUse.Used -= later
				w.verdict.Minute.RetryAt, w.verdict.Day.RetryAt = 0, 0
			}
		}
	}
}

// release lets a request go whose outcome is settled. The leader's own needs no signal.
func (b *batcher) release(w, own *waiter) {
	if w != own {
		w.signal <- false
	}
}

// ask makes a call to the server. If it fails, the server is down.
func (b *batcher) ask(call func() error) error {
	if b.down.Load() {
		return errDown
	}
	err := guarded(call)
	if err == nil {
		b.heard.Store(true)
	} else if b.redis.closing.Err() == nil && b.down.CompareAndSwap(false, true) {
		b.redis.changed(true, err)
		b.redis.running.Go(b.probe)
	}
	return err
}

// guarded makes a call. A panic in it is only its failure: a leader's requests wait for it.
func guarded(call func() error) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("redis: panic: %v\n%s", panicked, debug.Stack())
		}
	}()
	return call()
}

// probe asks the server until it decides again. A probe writes, as decisions do: a server that is out of memory or
// read-only is down.
func (b *batcher) probe() {
	r := b.redis
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	demands := []store.Demand{b.probeDemand()}
	for {
		select {
		case <-r.closing.Done():
			return
		case <-tick.C:
		}
		err := guarded(func() error {
			results := make([]store.Result, 1)
			if err := r.store.DecideBatch(r.closing, 0, demands, results); err != nil || errors.Is(results[0].Err, store.ErrRecord) {
				return err // the probe's own record does not matter
			}
			return results[0].Err
		})
		if err == nil {
			err = guarded(b.recover)
		}
		if err == nil {
			r.changed(false, nil)
			return
		}
	}
}

func (b *batcher) probeDemand() store.Demand {
	return store.Demand{
		Request: store.Request{Tenant: b.probing, Limits: plan.Limits{Minute: plan.LimitMax, Day: plan.LimitMax}}, Want: 1,
	}
}

// outcomeOf says whether a call with this error, or one tenant's part of a call, may have been executed: not if Redis refused
// it or if it was never sent.
func outcomeOf(err error) Outcome {
	if err == nil {
		return Decided // first, because what follows allocates
	}
	var reply redis.Error
	var dial *net.OpError
	switch {
	case errors.Is(err, errDown), errors.Is(err, store.ErrRecord), errors.As(err, &reply), errors.As(err, &dial) && dial.Op == "dial":
		return Undecided
	default:
		return Unsure
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

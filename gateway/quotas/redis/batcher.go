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
	// tenantsMax bounds a batch, and so the time for which it blocks Redis: less than a millisecond.
	tenantsMax = 256
	// probeInterval is how often a server that is down is probed.
	probeInterval = 150 * time.Millisecond
)

// errDown means that a Redis server is not asked, because it did not answer recently.
var errDown = errors.New("no answer from Redis lately")

// batcher sends requests to one Redis server. It has a queue, at most one batch under way, and no timer. The first request
// to find the batcher idle becomes its leader and sends a batch. Requests that arrive meanwhile form the next batch; its
// first request leads it.
//
// When a batch fails, the server is down. The requests of the batch and of the queue are then decided without Redis, and
// so are all later requests until a probe succeeds.
type batcher struct {
	redis *Redis
	down  atomic.Bool
	heard atomic.Bool // the server has answered at least once

	tripping   sync.Mutex    // held during a trip of requests, and while the probe runs recover
	number     int64         // of the last batch; guarded by tripping
	lost       lostBatch     // the unanswered batch after which the server was down; guarded by tripping
	recovering bool          // guarded by tripping, like the next field
	charged    []chargedDebt // by this recovery; the ledger does not know yet
	resets     []store.Reset // wait until the server is back; changed with tripping and mu, read with either
	probing    id.Tenant     // used by probes only; its record is on this server
	waiters    sync.Pool     // of *waiter

	mu      sync.Mutex
	queue   []*waiter
	leading bool

	// Only the leader uses the following fields.
	batch   []*waiter
	later   []*waiter // did not fit into the batch; they go before the queue
	demands []store.Demand
	results []store.Result
	places  map[id.Tenant]int // index in demands
	taken   []int64           // how many of each demand's grants have been handed out
}

// waiter is one request's place in a batcher.
type waiter struct {
	request store.Request
	place   int // index of its tenant's demand in the batch
	outcome Outcome
	verdict quota.Verdict
	signal  chan bool // true: become the leader; false: the outcome is set
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

// lead makes one trip with a batch whose first request is own, and then passes the lead on.
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

// gather turns the batch into demands. It removes requests that a remembered refusal answers. It also moves requests to
// the next batch if this one is full, or if it already has a demand for their tenant under other limits.
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

// trip sends the batch to Redis. Redis gets the whole budget even if the requests have waited: a long queue is not an
// outage.
func (b *batcher) trip() error {
	if len(b.demands) == 0 {
		return nil
	}
	r, m := b.redis, b.redis.cfg.Metrics
	b.results = append(b.results[:0], make([]store.Result, len(b.demands))...)
	b.tripping.Lock()
	defer b.tripping.Unlock()
	number := b.nextNumber()
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

// nextNumber returns the number of the next batch. The batchers share the numbers: when a cluster moves a tenant to another
// server, another batcher continues with this tenant.
func (b *batcher) nextNumber() int64 {
	b.number = b.redis.numbers.Add(1)
	return b.number
}

// distribute gives each request of the batch the verdict that it would have got if the requests had been sent one by one.
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
			if later := left - 1; later > 0 { // these requests were admitted after it
				w.verdict.Minute.Used -= later
				w.verdict.Day.Used -= later
				w.verdict.DayUse.Used -= later
				w.verdict.Minute.RetryAt, w.verdict.Day.RetryAt = 0, 0
			}
		}
	}
}

// release wakes a request whose outcome is set. The leader's own request needs no signal.
func (b *batcher) release(w, own *waiter) {
	if w != own {
		w.signal <- false
	}
}

// ask makes a call to the server. If the call fails, the server is down.
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

// guarded makes a call. It turns a panic into an error, because the requests of the batch wait for the call to end.
func guarded(call func() error) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("redis: panic: %v\n%s", panicked, debug.Stack())
		}
	}()
	return call()
}

// probe asks the server until it decides again. A probe writes, as decisions do: a server that is read-only or out of
// memory is down.
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
				return err // a corrupt record of the probe does not matter
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
		r.cause.Store(&err)
	}
}

func (b *batcher) probeDemand() store.Demand {
	return store.Demand{
		Request: store.Request{Tenant: b.probing, Limits: plan.Limits{Minute: plan.LimitMax, Day: plan.LimitMax}}, Want: 1,
	}
}

// outcomeOf tells whether Redis may have executed a call, or one tenant's part of a call, that returned this error.
// Redis has not executed a call that it refused, or a call that was never sent.
func outcomeOf(err error) Outcome {
	if err == nil {
		return Decided // first, because the code below allocates
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

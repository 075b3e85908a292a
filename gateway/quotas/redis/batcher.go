package redis

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"petgate/gateway/quotas/store"
	"petgate/shared/background"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
)

// env is what batchers need of their surroundings. All batchers of a Decider share one.
type env struct {
	store     Store
	ledger    Ledger
	rule      quota.Rule
	metrics   *Metrics
	hostClock func() instant.Millis // this gateway's clock
	outage    *outage
	numbers   atomic.Int64     // of the last batch
	tasks     background.Group // probes and watches
	closing   context.Context  // of tasks

	// What follows concerns a cluster, whose servers change.

	isServedBy func(t id.Tenant, b *batcher) bool // whether b's server has the tenant's record
	retire     func(b *batcher) bool              // removes b if its server has left; false: b stays
	reload     func()                             // learns which server has which record now
}

// batcher sends requests to one Redis server. It has a queue, one batch under way, and no timer. If
// no batch is under way, a request leads one at once. Requests that arrive meanwhile form the next
// batch, which the first of them leads when the batch has returned.
//
// A tenant's requests under the same limits are decided in the order of their arrival.
//
// When a batch fails, the server is down. The requests of the batch and all that wait are then
// decided without Redis, and so are all later requests until a probe succeeds. A part of a
// cluster's batch may get no answer: then the server is down too, and the other requests of that
// batch get their answers.
//
// Its parts: this file has the queue and the trips; batch.go what a trip carries; recovery.go what
// happens when the server answers again; watch.go what it is told while it answers.
type batcher struct {
	*env
	clock      // of the server
	unanswered unanswered
	down       atomic.Bool
	heard      atomic.Bool // the server has answered at least once

	probing id.Tenant // used by probes only; its record is on this server
	waiters sync.Pool // of *waiter

	// These fields are used by the caller of alone only.
	recovering bool
	reported   []reported // by this recovery; the ledger does not know yet

	losses chan struct{} // of use, which the server has lost and watch has not noticed yet

	// The leader uses these fields.
	batch   batch
	stack   *stack    // runs carry: go-redis needs a larger stack than the rest of a request
	began   time.Time // when the trip began
	tripErr error     // of the trip

	mu         sync.Mutex // guards the fields below
	witness    witness
	queue      []*waiter
	isUnderWay bool      // the batch has a leader
	isHeld     bool      // by the caller of alone: no batch departs
	isResting  bool      // the batch has no goroutine while it is not under way
	idle       sync.Cond // signaled when no batch is under way, or isHeld ends
}

func newBatcher(e *env, probing id.Tenant) *batcher {
	b := &batcher{env: e, clock: clock{host: e.hostClock}, probing: probing, losses: make(chan struct{}, 1)}
	b.batch.places = map[id.Tenant]int{}
	b.stack = newStack(b.carry)
	b.idle.L = &b.mu
	b.waiters.New = func() any { return &waiter{signal: make(chan struct{}, 1)} }
	return b
}

// take queues a request and waits for its outcome. It sets v if the outcome is Decided or
// Remembered. Arguments are pointers because copies would double the stacks of many connections:
// see TestIdleProcessConnections.
func (b *batcher) take(q *store.Call, v *quota.Verdict) Outcome {
	if b.down.Load() {
		return Undecided
	}
	w := b.waiters.Get().(*waiter)
	w.call = *q
	b.mu.Lock()
	// Checked with the lock too: while the server is down, nothing takes requests from the queue.
	if b.down.Load() {
		b.mu.Unlock()
		return Undecided
	}
	b.queue = append(b.queue, w)
	b.depart()
	b.mu.Unlock()
	<-w.signal
	if w.leads {
		w.leads = false
		b.lead()
		<-w.signal
	}
	outcome := w.outcome
	if outcome == Decided || outcome == Remembered {
		*v = w.verdict
	}
	b.waiters.Put(w)
	return outcome
}

// depart lets a batch leave if none is under way. The first request in the queue leads it. A
// goroutine for each batch would often begin on another thread, and a lone request would then wait
// longer. The caller must hold mu.
func (b *batcher) depart() {
	if b.isUnderWay || b.isHeld || len(b.queue) == 0 {
		return
	}
	leader := b.queue[0]
	leader.leads = true
	b.isUnderWay = true
	leader.signal <- struct{}{}
}

// lead makes one trip with the requests that wait. Then the next batch may depart. The leader calls
// it.
func (b *batcher) lead() {
	b.stack.run()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isResting {
		b.stack.close()
	}
	b.isUnderWay = false
	b.idle.Broadcast()
	if b.tripErr != nil || b.down.Load() {
		b.dismiss()
		return
	}
	if len(b.batch.demands) > 0 {
		b.witness.see(b.rule, &b.batch.demands[0], &b.batch.results[0], b.began)
	}
	b.depart()
}

// carry makes the trip and ends the requests of the batch.
func (b *batcher) carry() {
	b.gather()
	b.tripErr = guarded(b.trip)
	if b.tripErr != nil {
		b.batch.end(Undecided)
		return
	}
	b.batch.distribute(b.metrics)
}

// gather makes a batch of the requests that wait, the leader's first. A request that a remembered
// refusal answers ends. Those that do not fit into the batch stay in the queue.
func (b *batcher) gather() {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.host()
	b.batch.reset()
	kept := b.queue[:0]
	for _, w := range b.queue {
		if v, isRefused := b.ledger.Refusal(&w.call, now); isRefused {
			w.verdict = v
			w.end(Remembered)
		} else if !b.batch.join(w) {
			kept = append(kept, w)
		}
	}
	b.queue = kept
}

// trip sends the batch to Redis. Redis gets the whole budget even if the requests have waited: a
// long queue is not an outage.
func (b *batcher) trip() error {
	a, m := &b.batch, b.metrics
	if len(a.demands) == 0 {
		return nil
	}
	a.results = append(a.results[:0], make([]store.Result, len(a.demands))...)
	for i := range a.demands {
		b.ledger.Collect(&a.demands[i])
	}
	number := b.numbers.Add(1)
	b.began = time.Now()
	beganAt := b.host()
	err := b.ask(func() error { return b.store.DecideBatch(b.closing, number, a.demands, a.results) })
	m.tripSeconds.Observe(time.Since(b.began).Seconds())
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

// dismiss ends all waiting requests, because the server is down. The caller must hold mu.
func (b *batcher) dismiss() {
	for _, w := range b.queue {
		w.end(Undecided)
	}
	b.queue = b.queue[:0]
}

// alone calls f while no batch is under way. Requests wait meanwhile.
func (b *batcher) alone(f func() error) error {
	b.mu.Lock()
	for b.isHeld {
		b.idle.Wait()
	}
	b.isHeld = true
	for b.isUnderWay {
		b.idle.Wait()
	}
	b.mu.Unlock()
	err := guarded(f)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isHeld = false
	b.idle.Broadcast()
	if b.down.Load() {
		b.dismiss()
	} else {
		b.depart()
	}
	return err
}

// askAlone makes a call to the server while no batch is under way. The call may have nothing to
// send. If it fails, the server is down.
func (b *batcher) askAlone(call func() error) error {
	return b.alone(func() error { return b.try(call) })
}

// rest ends the goroutine of the batch, when it is not under way.
func (b *batcher) rest() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isResting = true
	if !b.isUnderWay {
		b.stack.close()
	}
}

// ask makes a call to the server, which answers if there is no error. If the call fails, the server
// is down.
func (b *batcher) ask(call func() error) error {
	err := b.try(call)
	if err == nil {
		b.heard.Store(true)
	}
	return err
}

// try is ask for a call that may have nothing to send.
func (b *batcher) try(call func() error) error {
	if b.down.Load() {
		return errDown
	}
	err := guarded(call)
	if err != nil {
		b.fail(err)
	}
	return err
}

// fail takes the server down.
func (b *batcher) fail(cause error) {
	if b.closing.Err() == nil && b.down.CompareAndSwap(false, true) {
		b.outage.begin(cause)
		b.tasks.Go(b.probe)
	}
}

// guarded makes a call. It turns a panic into an error, because the requests of the batch wait for
// the call to end.
func guarded(call func() error) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("redis: panic: %v\n%s", panicked, debug.Stack())
		}
	}()
	return call()
}

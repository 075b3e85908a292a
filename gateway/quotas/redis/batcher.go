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

// probeInterval is how often a server that is down is probed. A probe of a silent server takes the
// budget, which is as long.
const probeInterval = 50 * time.Millisecond

// errDown means that a Redis server is not asked, because it did not answer recently.
var errDown = errors.New("no answer from Redis lately")

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
type batcher struct {
	redis *Redis
	down  atomic.Bool
	heard atomic.Bool  // the server has answered at least once
	ahead atomic.Int64 // how far its clock is ahead of this gateway's, in ms

	probing id.Tenant // used by probes only; its record is on this server
	waiters sync.Pool // of *waiter

	// These fields are used by the caller of alone only.
	recovering bool
	reported   []reported // by this recovery; the ledger does not know yet

	losses chan struct{} // of use, which the server has lost and watch has not noticed yet

	mu         sync.Mutex
	known      known
	unanswered []unanswered
	queue      []*waiter
	batch      batch
	isUnderWay bool      // the batch has a leader
	isHeld     bool      // by the caller of alone: no batch departs
	isResting  bool      // the batch has no goroutine while it is not under way
	idle       sync.Cond // signaled when no batch is under way, or isHeld ends
}

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

func newBatcher(r *Redis, probing id.Tenant) *batcher {
	b := &batcher{redis: r, probing: probing}
	b.batch = batch{batcher: b, stack: newStack(b.batch.carry), places: make(map[id.Tenant]int)}
	b.idle.L = &b.mu
	b.losses = make(chan struct{}, 1)
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
	if b.down.Load() { // checked with the lock too: while the server is down, nothing takes requests from the queue
		b.mu.Unlock()
		return Undecided
	}
	b.queue = append(b.queue, w)
	b.depart()
	b.mu.Unlock()
	<-w.signal
	if w.leads {
		w.leads = false
		b.batch.run()
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
	b.isUnderWay, b.queue[0].leads = true, true
	b.queue[0].signal <- struct{}{}
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
		b.batch.stack.close()
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
	if b.redis.closing.Err() == nil && b.down.CompareAndSwap(false, true) {
		b.redis.changed(true, cause)
		b.redis.start(b.probe)
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

// probe asks the server until it decides again. A probe writes, as decisions do: a server that is
// read-only or out of memory is down.
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
			if err := r.store.DecideBatch(r.closing, 0, demands, results); err != nil ||
				errors.Is(results[0].Err, store.ErrRecord) {
				return err // a corrupt record of the probe does not matter
			}
			return results[0].Err
		})
		if err == nil {
			err = b.alone(b.recover)
		}
		if err == nil {
			r.changed(false, nil)
			return
		}
		r.cause.Store(&err)
		if r.servers.cluster != nil {
			r.servers.cluster.ReloadState(r.closing) // another server may have taken over
		}
	}
}

func (b *batcher) probeDemand() store.Demand {
	return store.Demand{
		Request: store.Request{
			Name:   store.Name{Tenant: b.probing},
			Limits: plan.Limits{Minute: plan.LimitMax, Day: plan.LimitMax},
		}, Want: 1,
	}
}

// isUnsure reports whether Redis may have executed a call, or one tenant's part of a call, that
// returned this error. Redis has not executed a call that it refused, or a call that was never
// sent.
func isUnsure(err error) bool {
	if err == nil {
		return false // first, because the code below allocates
	}
	var reply redis.Error
	var dial *net.OpError
	return !errors.Is(err, errDown) && !errors.Is(err, store.ErrRecord) && !errors.As(err, &reply) &&
		!(errors.As(err, &dial) && dial.Op == "dial")
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

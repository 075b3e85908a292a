package quotas

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
	"github.com/sony/gobreaker/v2"

	"petgate/shared/core/id"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
)

const (
	// tenantsMax bounds a batch, and so for how long Redis serves nobody else: less than a millisecond.
	tenantsMax = 256
	// A lane that is down asks again each probeEvery; the breaker lets it when restFor has passed, which is less.
	probeEvery = 150 * time.Millisecond
	restFor    = 100 * time.Millisecond
)

// errDown says that a Redis server is not asked because it did not answer lately.
var errDown = errors.New("no answer from Redis lately")

// lane carries decisions to one Redis server: a queue, a breaker, and never more than one batch under way. There is no
// timer: whoever finds nobody leading leads at once, and what gathers meanwhile is the next batch, led by its first.
//
// When a batch fails, its requests and all that have gathered are let go, to be decided without Redis; so are all that
// come until a probe, made by nobody's request, has succeeded.
type lane struct {
	limiter *Limiter
	breaker *gobreaker.CircuitBreaker[struct{}]
	down    atomic.Bool
	probe   id.Tenant // names nobody; its record lies on this lane's server
	waiters sync.Pool // of *waiter, not in use

	mu      sync.Mutex
	queue   []*waiter
	leading bool

	// What follows belongs to the leader.
	batch   []*waiter
	later   []*waiter // did not fit into the batch; go before the queue
	demands []demand
	results []result
	places  map[id.Tenant]int // in demands
	taken   []int64           // of each demand's grants, so many have been handed out
}

// waiter is one request's place in a lane.
type waiter struct {
	ask     Ask
	joined  time.Time
	place   int // of its tenant's demand in the batch
	fate    fate
	verdict quota.Verdict
	signal  chan bool // true: lead; false: fate is settled
}

// fate is how a lane leaves a request.
type fate uint8

const (
	pending fate = iota
	decided
	remembered
	undecided // Redis has certainly not charged it
	unsure    // Redis may have charged it
)

func newLane(l *Limiter, probe id.Tenant) *lane {
	n := &lane{limiter: l, probe: probe, places: make(map[id.Tenant]int)}
	n.waiters.New = func() any { return &waiter{signal: make(chan bool, 1)} }
	n.breaker = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Timeout:     restFor,
		ReadyToTrip: func(gobreaker.Counts) bool { return true }, // at the first failure
	})
	return n
}

// decide queues a request and waits for its fate.
func (n *lane) decide(a Ask) (quota.Verdict, fate) {
	if n.down.Load() {
		return quota.Verdict{}, undecided
	}
	w := n.waiters.Get().(*waiter)
	w.ask, w.joined, w.fate = a, time.Now(), pending
	n.mu.Lock()
	n.queue = append(n.queue, w)
	lead := !n.leading
	n.leading = true
	n.mu.Unlock()
	if lead || <-w.signal {
		n.lead(w)
	}
	verdict, fate := w.verdict, w.fate
	n.waiters.Put(w)
	return verdict, fate
}

// lead makes one trip, in whose batch own is the first, and passes the lead on.
func (n *lane) lead(own *waiter) {
	n.mu.Lock()
	n.batch = append(append(n.batch[:0], n.later...), n.queue...)
	n.queue = n.queue[:0]
	n.mu.Unlock()
	n.later = n.later[:0]

	n.gather(own)
	err := n.trip()
	if err == nil {
		n.share()
	} else {
		n.settle(fateOf(err))
	}
	for _, w := range n.batch {
		n.release(w, own)
	}

	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		for _, w := range append(n.later, n.queue...) {
			w.fate = undecided
			n.release(w, own)
		}
		n.later, n.queue = n.later[:0], n.queue[:0]
	}
	switch {
	case len(n.later) > 0:
		n.later[0].signal <- true
	case len(n.queue) > 0:
		n.queue[0].signal <- true
	default:
		n.leading = false
	}
}

// gather makes demands of the batch, and drops from it whom a remembered refusal answers, whose budget is over, and who
// has to wait for the next one: all for whom there is no room, or whose tenant is asked for under other limits.
func (n *lane) gather(own *waiter) {
	l := n.limiter
	now, nowMs := time.Now(), l.nowMs()
	n.demands, n.taken = n.demands[:0], n.taken[:0]
	clear(n.places)
	kept := n.batch[:0]
	for _, w := range n.batch {
		last := l.known.get(w.ask.Tenant)
		if v, ok := last.refusal(w.ask, nowMs); ok {
			w.verdict, w.fate = v, remembered
			n.release(w, own)
			continue
		}
		if now.Sub(w.joined) >= l.config.Budget {
			l.metrics.timeouts.Inc()
			w.fate = undecided
			n.release(w, own)
			continue
		}
		place, ok := n.places[w.ask.Tenant]
		switch {
		case !ok && len(n.demands) == tenantsMax, ok && n.demands[place].Ask != w.ask:
			n.later = append(n.later, w)
			continue
		case !ok:
			place = len(n.demands)
			n.places[w.ask.Tenant] = place
			n.demands = append(n.demands, demand{
				Ask: w.ask, Known: last.dayUse(), Spent: l.outage.collect(w.ask.Tenant),
			})
			n.taken = append(n.taken, 0)
		}
		w.place = place
		n.demands[place].Want++
		kept = append(kept, w)
	}
	n.batch = kept
}

// trip asks Redis, within the budget of the one who has waited longest.
func (n *lane) trip() error {
	if len(n.demands) == 0 {
		return nil
	}
	l := n.limiter
	n.results = append(n.results[:0], make([]result, len(n.demands))...)
	ctx, cancel := context.WithDeadline(l.closing, n.batch[0].joined.Add(l.config.Budget))
	defer cancel()
	began, beganMs := time.Now(), l.nowMs()
	err := n.ask(func() error { return l.backend.decide(ctx, n.demands, n.results) })
	endedMs := l.nowMs()
	l.metrics.tripSeconds.Observe(time.Since(began).Seconds())
	l.metrics.batchRequests.Observe(float64(len(n.batch)))
	l.metrics.batchTenants.Observe(float64(len(n.demands)))
	switch fateOf(err) {
	case decided:
		l.metrics.tripOK.Inc()
	case unsure:
		l.metrics.tripUnsure.Inc()
	default:
		l.metrics.tripFailed.Inc()
	}
	if isTimeout(err) {
		l.metrics.timeouts.Add(float64(len(n.batch)))
	}
	for i := range n.demands {
		d, r := &n.demands[i], &n.results[i]
		became := fateOf(err)
		if err == nil {
			became = fateOf(r.Err)
		}
		if became == decided {
			l.known.store(d.Ask, beganMs, endedMs, &r.Verdict, r.Verdict.Granted < d.Want)
		}
		l.outage.settle(d.Tenant, d.Spent, became)
	}
	return err
}

// share gives each request of the batch the verdict that it would have been given alone, in its turn.
func (n *lane) share() {
	l := n.limiter
	for _, w := range n.batch {
		r := &n.results[w.place]
		if r.Err != nil {
			l.metrics.recordErrors.Inc()
			w.fate = fateOf(r.Err)
			continue
		}
		w.verdict, w.fate = r.Verdict, decided
		w.verdict.Granted = 0
		if left := r.Verdict.Granted - n.taken[w.place]; left > 0 {
			n.taken[w.place]++
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

func (n *lane) settle(f fate) {
	for _, w := range n.batch {
		w.fate = f
	}
}

// release lets a request go whose fate is settled. The leader's own needs no telling.
func (n *lane) release(w, own *waiter) {
	if w != own {
		w.signal <- false
	}
}

// ask makes a call to the lane's server unless it is down, and finds it down when the call fails.
func (n *lane) ask(call func() error) error {
	err := n.guarded(call)
	if err != nil && n.limiter.closing.Err() == nil && n.down.CompareAndSwap(false, true) {
		n.limiter.laneChanged(true, err)
		n.limiter.running.Go(n.recover)
	}
	return err
}

// guarded makes a call through the breaker. A panic in it is its failure and no more: a leader's requests wait for it.
func (n *lane) guarded(call func() error) error {
	_, err := n.breaker.Execute(func() (_ struct{}, err error) {
		defer func() {
			if panicked := recover(); panicked != nil {
				err = fmt.Errorf("quotas: panic: %v\n%s", panicked, debug.Stack())
			}
		}()
		return struct{}{}, call()
	})
	return err
}

// recover probes the server until it decides again. A probe writes, as decisions do: a server that is out of memory or
// read-only is down.
func (n *lane) recover() {
	l := n.limiter
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	demands := []demand{{
		Ask: Ask{Tenant: n.probe, Limits: plan.Limits{Minute: plan.LimitMax, Day: plan.LimitMax}}, Want: 1,
	}}
	for {
		select {
		case <-l.closing.Done():
			return
		case <-tick.C:
		}
		err := n.guarded(func() error {
			ctx, cancel := context.WithTimeout(l.closing, l.config.Budget)
			defer cancel()
			results := make([]result, 1)
			if err := l.backend.decide(ctx, demands, results); err != nil || errors.Is(results[0].Err, errRecord) {
				return err // the probe's own record does not matter
			}
			return results[0].Err
		})
		if err == nil {
			n.down.Store(false)
			l.laneChanged(false, nil)
			return
		}
	}
}

// fateOf tells from the error of a call, or of one tenant's part in it, whether it may have been executed: not if Redis
// refused it, nor if it was never sent.
func fateOf(err error) fate {
	if err == nil {
		return decided // before what follows, which is allocated
	}
	var reply redis.Error
	var dial *net.OpError
	switch {
	case errors.Is(err, gobreaker.ErrOpenState), errors.Is(err, gobreaker.ErrTooManyRequests),
		errors.Is(err, errRecord), errors.As(err, &reply), errors.As(err, &dial) && dial.Op == "dial":
		return undecided
	default:
		return unsure
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

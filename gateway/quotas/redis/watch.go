package redis

import (
	"cmp"
	"context"
	"time"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/id"
	"petgate/shared/core/quota"
)

const (
	// lookEvery is how often a gateway without requests looks whether a server has lost its counts.
	// A flood of refused requests asks Redis about once a second, so such a gateway need not look.
	lookEvery = 1100 * time.Millisecond
	// remindEvery is how often a gateway tells a server everything, at most. If that takes long,
	// the pause is longer, because a server that evicts records needs it again and again.
	remindEvery = time.Second
)

// witness is a record whose use the server had after the last batch. If it has less later, the
// server has lost its counts.
type witness struct {
	request store.Request // no tenant: there is none
	dayEnds int64         // of the use: see quota.Period
	at      time.Time     // when the server was asked
}

// see takes the record of a demand as the witness, if it has use.
func (w *witness) see(rule quota.Rule, d *store.Demand, r *store.Result, at time.Time) {
	if use := rule.UseOf(&r.Verdict).Day; use.Used > 0 {
		*w = witness{d.Request, use.Ends, at}
	}
}

// watch tells the server what it does not know, until the Decider closes or the server has left:
// what this gateway has not reported yet, and everything if the server has lost use. Every demand
// carries the use that this gateway knows, so the script notices a loss. A recovery does the same
// after an outage.
func (b *batcher) watch(closing context.Context) {
	hasLost := false // and it has not been told everything since
	var remindAt time.Time
	for {
		losses := b.losses
		if time.Now().Before(remindAt) {
			losses = nil
		}
		select {
		case <-closing.Done():
			return
		case <-losses:
			hasLost = true
		case <-time.After(lookEvery / 2):
		}
		if b.down.Load() {
			continue
		}
		if b.retire(b) {
			return
		}
		if !b.unanswered.isEmpty() {
			_ = b.askAlone(b.sendAgain)
		}
		_ = b.tell(Unreported, b.askAlone)
		if !hasLost {
			b.look()
			continue
		}
		began := time.Now()
		hasLost = cmp.Or(b.tell(Window, b.askAlone), b.tell(Day, b.askAlone)) != nil
		remindAt = time.Now().Add(max(remindEvery, 19*time.Since(began)))
	}
}

// look asks the server about the witness, if it was not asked lately and has use of this day.
func (b *batcher) look() {
	b.mu.Lock()
	w := &b.witness
	today := int64(b.now()) / b.rule.Day.Milliseconds()
	isDue := w.request.Tenant != (id.Tenant{}) && w.dayEnds == today+1 && time.Since(w.at) >= lookEvery
	if isDue {
		w.at = time.Now()
	}
	request := w.request
	b.mu.Unlock()
	if isDue {
		_ = b.askAlone(func() error { return b.send([]store.Request{request}) })
	}
}

package redis

import (
	"cmp"
	"time"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/id"
)

const (
	// lookEvery is how often a gateway without requests looks whether a server has lost its counts.
	// A flood of refused requests asks Redis about once a second, so such a gateway need not look.
	lookEvery = 1100 * time.Millisecond
	// remindEvery is how often a gateway tells a server everything, at most. If that takes long,
	// the pause is longer, because a server that evicts records needs it again and again.
	remindEvery = time.Second
)

// known is a record whose use the server had after the last batch.
type known struct {
	request store.Request // no tenant: none
	day     int64         // the first one after that of the use
	at      time.Time     // when the server was asked
}

// watch tells the server what it does not know, until the Redis closes or the server has left: what
// this gateway has not reported yet, and everything if the server has lost use. Every demand
// carries the use that this gateway knows, so the script notices a loss. A recovery does the same
// after an outage.
func (b *batcher) watch() {
	hasLost := false // and it has not been told everything since
	var remindAt time.Time
	for {
		losses := b.losses
		if time.Now().Before(remindAt) {
			losses = nil
		}
		select {
		case <-b.redis.closing.Done():
			return
		case <-losses:
			hasLost = true
		case <-time.After(lookEvery / 2):
		}
		if b.down.Load() {
			continue
		}
		if b.redis.retire(b) {
			return
		}
		if b.hasUnanswered() {
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

func (b *batcher) hasUnanswered() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.unanswered) > 0
}

// look asks the server about a known tenant, if it was not asked lately and this gateway knows use
// of this day.
func (b *batcher) look() {
	b.mu.Lock()
	k, today := b.known, int64(b.now())/b.redis.cfg.Rule.Day.Milliseconds()
	isDue := k.request.Tenant != (id.Tenant{}) && k.day == today+1 && time.Since(k.at) >= lookEvery
	if isDue {
		b.known.at = time.Now()
	}
	b.mu.Unlock()
	if isDue {
		_ = b.askAlone(func() error { return b.send([]store.Request{k.request}) })
	}
}

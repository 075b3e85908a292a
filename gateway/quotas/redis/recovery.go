package redis

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
)

// settleFor is how long a gateway still decides without Redis after it has sent Redis its
// unreported requests and known use. All other gateways notice within probeInterval that Redis is
// back, and send theirs. Only then does Redis know what is really left.
const settleFor = probeInterval + 100*time.Millisecond

// unanswered is a batch that was sent and not answered: its demands with unreported requests. The
// script may have charged them.
type unanswered struct {
	number  int64
	demands []store.Demand
}

// reported is Redis's answer to a demand with unreported requests.
type reported struct {
	demand           store.Demand
	verdict          quota.Verdict
	beganAt, endedAt instant.Millis
}

// recover prepares a server that answers again, before that server decides. It sends what this
// gateway admitted without the server, and the use that the server had counted, because it may have
// lost it. The script takes the larger use, so telling what it knows changes nothing. An error
// means that the server has stopped answering again.
//
// The ledger learns what Redis has charged only when recover returns. Otherwise this gateway's
// share would grow during the recovery: its requests would count as reported, and it does not know
// those that other gateways will report. The ledger learns it after a failed recovery too. The
// share then grows, and the bound of two limits still holds (decision 5).
func (b *batcher) recover() error {
	b.recovering = true
	defer b.settleReported()
	now := func(call func() error) error { return call() }
	for _, step := range [...]func() error{
		b.sendAgain,
		func() error { return b.tell(Unreported, now) },
		func() error { return b.tell(Window, now) },
		b.settleDown,
		func() error { return b.tell(Unreported, now) }, // admitted since the first report
	} {
		if err := step(); err != nil {
			return err
		}
	}
	b.heard.Store(true)
	b.down.Store(false)
	return nil
}

// settleDown waits until the other gateways have told the server what they know.
func (b *batcher) settleDown() error {
	select {
	case <-b.redis.closing.Done():
		return b.redis.closing.Err()
	case <-time.After(settleFor):
		return nil
	}
}

// sendAgain sends unanswered batches again under their numbers, so that the script charges them
// once. It is called alone.
func (b *batcher) sendAgain() error {
	b.mu.Lock()
	left := b.unanswered
	b.unanswered = nil
	b.mu.Unlock()
	var failed error
	for _, u := range left {
		if failed != nil {
			b.keep(u)
			continue
		}
		beganAt, results := b.redis.now(), make([]store.Result, len(u.demands))
		err := b.redis.store.DecideBatch(b.redis.closing, u.number, u.demands, results)
		again := unanswered{number: u.number}
		for i := range results {
			cause := cmp.Or(results[i].Err, err)
			if cause == nil ||
				errors.Is(cause, store.ErrRecord) { // a record that is unusable has lost what was charged
				b.settle(u.number, u.demands[i:i+1], results[i:i+1], nil, beganAt)
				continue
			}
			again.demands = append(again.demands, u.demands[i])
			if !isSlotTrouble(cause) { // otherwise it is sent again later
				failed = cause
			}
		}
		b.keep(again)
	}
	return failed
}

// keep keeps an unanswered batch for sendAgain, if it has demands.
func (b *batcher) keep(u unanswered) {
	if u.demands == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unanswered = append(b.unanswered, u)
}

// tell sends the server what the ledger knows in this scope. It makes each trip by do.
func (b *batcher) tell(s Scope, do func(trip func() error) error) error {
	for chunk := range slices.Chunk(b.redis.ledger.Records(s), tenantsMax) {
		if err := do(func() error { return b.send(chunk) }); err != nil {
			return err
		}
	}
	return nil
}

// send makes one trip with what the ledger knows of these tenants, if they are on this server. It
// is called alone.
func (b *batcher) send(tenants []store.Request) error {
	r := b.redis
	demands := make([]store.Demand, 0, len(tenants))
	for _, q := range tenants {
		if r.batcher(q.Tenant) == b {
			demands = append(demands, store.Demand{Request: q})
			r.ledger.Collect(&demands[len(demands)-1])
		}
	}
	if len(demands) == 0 {
		return nil
	}
	number, results, beganAt := r.numbers.Add(1), make([]store.Result, len(demands)), r.now()
	err := r.store.DecideBatch(r.closing, number, demands, results)
	return cmp.Or(b.settle(number, demands, results, err, beganAt), err)
}

// settle reports the outcome of a batch's demands to the ledger. It returns the error of a demand
// that was not answered, and keeps those with unreported requests for sendAgain. If the server has
// lost use, watch learns it.
func (b *batcher) settle(
	number int64, demands []store.Demand, results []store.Result, err error, beganAt instant.Millis,
) (unsure error) {
	endedAt := b.redis.now()
	var lost []store.Demand
	for i := range demands {
		d, v, cause := &demands[i], &results[i].Verdict, cmp.Or(results[i].Err, err)
		if results[i].Lost {
			select {
			case b.losses <- struct{}{}:
			default: // watch knows already
			}
		}
		isUnsure, carries := isUnsure(cause), d.Unreported != (quota.Use{})
		if isUnsure {
			unsure = cause
		}
		if cause == nil {
			b.hear(v.At, beganAt, endedAt)
		}
		switch {
		case carries && isUnsure:
			lost = append(lost, *d)
			lost[len(lost)-1].Want, lost[len(lost)-1].Joined = 0, false // its requests have been decided without Redis
		case carries && b.recovering && cause == nil:
			b.reported = append(b.reported, reported{*d, *v, beganAt, endedAt})
		default:
			b.redis.ledger.Settle(d, v, cause == nil, beganAt, endedAt)
		}
	}
	b.keep(unanswered{number, lost})
	return unsure
}

// settleReported tells the ledger what Redis has charged. It is called at the end of a recovery.
func (b *batcher) settleReported() {
	for i := range b.reported {
		c := &b.reported[i]
		b.redis.ledger.Settle(&c.demand, &c.verdict, true, c.beganAt, c.endedAt)
	}
	b.reported, b.recovering = nil, false
}

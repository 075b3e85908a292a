package redis

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
)

// probeInterval is how often a server that is down is probed. A probe of a silent server takes the
// budget, which is as long.
const probeInterval = 50 * time.Millisecond

// settleFor is how long a gateway still decides without Redis after it has sent Redis its
// unreported requests and known use. All other gateways notice within probeInterval that Redis is
// back, and send theirs. Only then does Redis know what is really left.
const settleFor = probeInterval + 100*time.Millisecond

// probe asks the server until it decides again. A probe writes, as decisions do: a server that is
// read-only or out of memory is down.
func (b *batcher) probe(closing context.Context) {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	demands := []store.Demand{b.probeDemand()}
	for {
		select {
		case <-closing.Done():
			return
		case <-tick.C:
		}
		err := guarded(func() error {
			results := make([]store.Result, 1)
			err := b.store.DecideBatch(closing, 0, demands, results)
			isCorrupt := errors.Is(results[0].Err, store.ErrRecord) // which does not matter
			if err == nil && !isCorrupt {
				err = results[0].Err
			}
			return err
		})
		if err == nil {
			err = b.alone(b.recover)
		}
		if err == nil {
			b.outage.end()
			return
		}
		b.outage.goOn(err)
		b.reload() // another server may have taken over
	}
}

func (b *batcher) probeDemand() store.Demand {
	return store.Demand{
		Request: store.Request{
			Name:   store.Name{Tenant: b.probing},
			Limits: plan.Limits{Minute: plan.LimitMax, Day: plan.LimitMax},
		},
		Want: 1,
	}
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
	case <-b.closing.Done():
		return b.closing.Err()
	case <-time.After(settleFor):
		return nil
	}
}

// sendAgain sends unanswered batches again under their numbers, so that the script charges them
// once. It is called alone.
func (b *batcher) sendAgain() error {
	var failed error
	for _, s := range b.unanswered.all() {
		if failed != nil {
			b.unanswered.keep(s)
			continue
		}
		beganAt, results := b.host(), make([]store.Result, len(s.demands))
		err := b.store.DecideBatch(b.closing, s.number, s.demands, results)
		left := unansweredBatch{number: s.number}
		for i := range results {
			cause := cmp.Or(results[i].Err, err)
			// A record that is unusable has lost what was charged.
			if cause == nil || errors.Is(cause, store.ErrRecord) {
				b.settle(s.number, s.demands[i:i+1], results[i:i+1], nil, beganAt)
				continue
			}
			left.demands = append(left.demands, s.demands[i])
			if !isSlotTrouble(cause) { // otherwise it is sent again later
				failed = cause
			}
		}
		b.unanswered.keep(left)
	}
	return failed
}

// tell sends the server what the ledger knows in this scope. It makes each trip by do.
func (b *batcher) tell(s Scope, do func(trip func() error) error) error {
	for chunk := range slices.Chunk(b.ledger.Records(s), tenantsMax) {
		if err := do(func() error { return b.send(chunk) }); err != nil {
			return err
		}
	}
	return nil
}

// send makes one trip with what the ledger knows of these tenants, if they are on this server. It
// is called alone.
func (b *batcher) send(tenants []store.Request) error {
	demands := make([]store.Demand, 0, len(tenants))
	for _, q := range tenants {
		if b.isServedBy(q.Tenant, b) {
			demands = append(demands, store.Demand{Request: q})
			b.ledger.Collect(&demands[len(demands)-1])
		}
	}
	if len(demands) == 0 {
		return nil
	}
	number, results, beganAt := b.numbers.Add(1), make([]store.Result, len(demands)), b.host()
	err := b.store.DecideBatch(b.closing, number, demands, results)
	return cmp.Or(b.settle(number, demands, results, err, beganAt), err)
}

// settle reports the outcome of a batch's demands to the ledger. It returns the error of a demand
// that was not answered, and keeps those with unreported requests for sendAgain. If the server has
// lost use, watch learns it.
func (b *batcher) settle(
	number int64, demands []store.Demand, results []store.Result, err error, beganAt instant.Millis,
) (unsure error) {
	endedAt := b.host()
	lost := unansweredBatch{number: number}
	for i := range demands {
		d, v := &demands[i], &results[i].Verdict
		cause := cmp.Or(results[i].Err, err)
		if results[i].Lost {
			b.noteLoss()
		}
		isUnsure, isReport := isUnsure(cause), d.Unreported != (quota.Use{})
		if isUnsure {
			unsure = cause
		}
		if cause == nil {
			b.hear(v.At, beganAt, endedAt)
		}
		switch {
		case isReport && isUnsure:
			alone := *d // its requests have been decided without Redis
			alone.Want, alone.Joined = 0, false
			lost.demands = append(lost.demands, alone)
		case isReport && b.recovering && cause == nil:
			b.reported = append(b.reported, reported{*d, *v, beganAt, endedAt})
		default:
			b.ledger.Settle(d, v, cause == nil, beganAt, endedAt)
		}
	}
	b.unanswered.keep(lost)
	return unsure
}

// noteLoss tells watch that the server has lost use.
func (b *batcher) noteLoss() {
	select {
	case b.losses <- struct{}{}:
	default: // watch knows already
	}
}

// settleReported tells the ledger what Redis has charged. It is called at the end of a recovery.
func (b *batcher) settleReported() {
	for i := range b.reported {
		c := &b.reported[i]
		b.ledger.Settle(&c.demand, &c.verdict, true, c.beganAt, c.endedAt)
	}
	b.reported, b.recovering = nil, false
}

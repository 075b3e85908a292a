package redis

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
)

// settleFor is how long a gateway still decides without Redis after it has sent Redis its debts and known use. All other
// gateways notice within probeInterval that Redis is back, and send theirs. Only then does Redis know what is really left.
const settleFor = probeInterval + 100*time.Millisecond

// lostBatch is a batch that was sent and not answered, with the demands that are Unsure: all of them, or on a cluster a part.
type lostBatch struct {
	batch   Batch
	demands []store.Demand
}

// chargedDebt is Redis's answer to a demand that carried debts.
type chargedDebt struct {
	demand           store.Demand
	verdict          quota.Verdict // without figures if At is 0
	beganAt, endedAt instant.Millis
}

// recover prepares a server that answers again, before that server decides. recover sends what this gateway admitted
// without the server, and the use that the server had counted, because it may have lost it. The script takes the larger use, so
// telling what it knows changes nothing. An error means that the server has stopped answering again.
//
// The ledger learns what Redis has charged only when recover returns. Otherwise this gateway's share would grow during the recovery:
// its debts would count as charged, and it does not know the debts that other gateways will send. The ledger learns it after a failed
// recovery too. The share then grows, and the bound of two limits still holds (decision 5).
func (b *batcher) recover() error {
	b.tripping.Lock()
	defer b.tripping.Unlock()
	b.recovering = true
	defer b.settleCharged()
	for i := range b.lanes {
		if err := b.lanes[i].resolve(); err != nil {
			return err
		}
	}
	if err := b.tell(true); err != nil {
		return err
	}
	select {
	case <-b.redis.closing.Done():
		return b.redis.closing.Err()
	case <-time.After(settleFor):
	}
	if err := b.tell(false); err != nil { // debts since the first tell
		return err
	}
	b.heard.Store(true)
	b.down.Store(false)
	return nil
}

// resolve asks the server what became of the batch that it did not answer. A cluster answers for each tenant. If an answer is missing,
// resolve fails, and has told the ledger nothing.
func (l *lane) resolve() error {
	if l.lost.batch.Number == 0 {
		return nil
	}
	b, r := l.batcher, l.batcher.redis
	results, decided := make([]store.Result, len(l.lost.demands)), make([]bool, len(l.lost.demands))
	beganAt := r.now()
	failed := b.question(l.lost.batch, l.lost.demands, results)
	for i := range results {
		var err error
		if decided[i], err = wasDecided(cmp.Or(results[i].Err, failed)); err != nil {
			return err
		}
	}
	endedAt := r.now()
	for i := range l.lost.demands {
		d := l.lost.demands[i]
		r.ledger.Resolve(&d, decided[i], results[i].Verdict.Granted)
		b.charged = append(b.charged, chargedDebt{d, results[i].Verdict, beganAt, endedAt})
	}
	l.lost = lostBatch{}
	return nil
}

// settleCharged reports to the ledger which debts Redis has charged. It is called at the end of a recovery.
func (b *batcher) settleCharged() {
	for i := range b.charged {
		c := &b.charged[i]
		b.redis.ledger.Settle(&c.demand, &c.verdict, Decided, c.beganAt, c.endedAt)
	}
	b.charged, b.recovering = nil, false
}

// wasDecided reports whether a demand was decided, by the error of a question about it. If only a later batch is known, the answer is
// that this one was decided and granted nothing. A record that is unusable has lost what was decided. After any other error, it is unknown.
func wasDecided(answer error) (bool, error) {
	switch {
	case redis.HasErrorPrefix(answer, "NOTDECIDED"), errors.Is(answer, store.ErrRecord):
		return false, nil
	case redis.HasErrorPrefix(answer, "SUPERSEDED"):
		return true, nil
	}
	return answer == nil, answer
}

// question asks what became of a batch. If it was not decided, it can no longer be decided.
func (b *batcher) question(batch Batch, demands []store.Demand, results []store.Result) error {
	batch.Number = -batch.Number
	return b.redis.store.DecideBatch(b.redis.closing, batch, demands, results)
}

// tell sends debts to the server. If the argument everything is set, it also sends the known use of all tenants.
func (b *batcher) tell(everything bool) error {
	r := b.redis
	for chunk := range slices.Chunk(r.ledger.Unreported(everything), tenantsMax) {
		demands := make([]store.Demand, 0, len(chunk))
		for _, q := range chunk {
			if r.batcher(q.Tenant) == b {
				demands = append(demands, store.Demand{Request: q})
				r.ledger.Collect(&demands[len(demands)-1])
			}
		}
		if err := b.lanes[0].send(demands); err != nil {
			return err
		}
	}
	return nil
}

// send sends a batch of demands for which no request waits.
func (l *lane) send(demands []store.Demand) error {
	if len(demands) == 0 {
		return nil
	}
	r, batch, results := l.batcher.redis, l.nextBatch(), make([]store.Result, len(demands))
	beganAt := r.now()
	err := r.store.DecideBatch(r.closing, batch, demands, results)
	return cmp.Or(l.settle(batch, demands, results, err, beganAt), err)
}

// settle reports the outcome of a batch's demands to the ledger. It keeps those that are Unsure, so that resolve can ask about them,
// and returns the error of one of them.
func (l *lane) settle(batch Batch, demands []store.Demand, results []store.Result, err error, beganAt instant.Millis) (unsure error) {
	b := l.batcher
	endedAt := b.redis.now()
	var lost []store.Demand
	for i := range demands {
		cause := err
		if err == nil {
			cause = results[i].Err
		}
		outcome := outcomeOf(cause)
		if outcome == Unsure {
			lost, unsure = append(lost, demands[i]), cause
		}
		if b.recovering && outcome == Decided && demands[i].Spent != (quota.Spent{}) {
			b.charged = append(b.charged, chargedDebt{demands[i], results[i].Verdict, beganAt, endedAt})
			continue
		}
		b.redis.ledger.Settle(&demands[i], &results[i].Verdict, outcome, beganAt, endedAt)
	}
	if lost != nil {
		l.lost = lostBatch{batch, lost}
	}
	return unsure
}

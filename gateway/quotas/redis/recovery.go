package redis

import (
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/instant"
)

// settleFor is how long a gateway goes on without Redis after it has told Redis what it knows. Meanwhile all other gateways
// find Redis back, within probeInterval, and tell it what they know: only then does Redis grant what is really left.
const settleFor = probeInterval + 100*time.Millisecond

// lostBatch is a batch that was sent and not answered.
type lostBatch struct {
	number  int64
	demands []store.Demand
}

// recover tells a server that answers again what it has to know before it decides: what this gateway admitted without it,
// and, if the server has lost its counts, the use that it had counted before. An error means that it has fallen silent again.
func (b *batcher) recover() error {
	b.tripping.Lock()
	defer b.tripping.Unlock()
	kept, err := b.hasKept()
	if err != nil {
		return err
	}
	if err := b.resolve(); err != nil {
		return err
	}
	if err := b.reset(); err != nil {
		return err
	}
	if err := b.tell(!kept); err != nil {
		return err
	}
	select {
	case <-b.redis.closing.Done():
		return b.redis.closing.Err()
	case <-time.After(settleFor):
	}
	if err := b.tell(false); err != nil { // what was admitted meanwhile
		return err
	}
	b.down.Store(false)
	return nil
}

// reset carries out the resets that waited for the server.
func (b *batcher) reset() error {
	for len(b.resets) > 0 {
		if err := b.redis.store.Reset(b.redis.closing, b.resets[0]); err != nil {
			return err
		}
		b.resets = b.resets[1:]
	}
	return nil
}

// hasKept reports whether the server still knows the last batch that it has answered. Where it does not, because it lost its
// data, or because the last batch is a minute old, nothing proves that it has kept the counts.
func (b *batcher) hasKept() (bool, error) {
	answered := b.number
	if b.lost.number != 0 {
		answered = b.lost.number - 1
	}
	if answered == 0 {
		return true, nil
	}
	decided, err := b.wasDecided(answered, []store.Demand{b.probeDemand()}, make([]store.Result, 1))
	return decided, err
}

// resolve asks what became of the batch that was not answered.
func (b *batcher) resolve() error {
	if b.lost.number == 0 {
		return nil
	}
	results := make([]store.Result, len(b.lost.demands))
	decided, err := b.wasDecided(b.lost.number, b.lost.demands, results)
	if err != nil {
		return err
	}
	for i := range b.lost.demands {
		b.redis.ledger.Resolve(&b.lost.demands[i], decided && results[i].Err == nil, results[i].Verdict.Granted)
	}
	b.lost = lostBatch{}
	return nil
}

// wasDecided asks whether a batch was decided; if so, results say what it was granted. If not, it never will be.
func (b *batcher) wasDecided(number int64, demands []store.Demand, results []store.Result) (bool, error) {
	err := b.redis.store.DecideBatch(b.redis.closing, -number, demands, results)
	switch {
	case redis.HasErrorPrefix(err, "NOTDECIDED"):
		return false, nil
	case redis.HasErrorPrefix(err, "SUPERSEDED"):
		return true, nil
	}
	return err == nil, err
}

// tell carries debts to the server, and the known use of all tenants if that may be lost there.
func (b *batcher) tell(everything bool) error {
	r := b.redis
	for chunk := range slices.Chunk(r.ledger.Untold(everything), tenantsMax) {
		demands := make([]store.Demand, 0, len(chunk))
		for _, q := range chunk {
			if r.batcher(q.Tenant) == b {
				demands = append(demands, store.Demand{Request: q})
				r.ledger.Collect(&demands[len(demands)-1])
			}
		}
		if err := b.send(demands); err != nil {
			return err
		}
	}
	return nil
}

// send has demands decided that no request waits for.
func (b *batcher) send(demands []store.Demand) error {
	if len(demands) == 0 {
		return nil
	}
	b.number++
	r, number, results := b.redis, b.number, make([]store.Result, len(demands))
	beganAt := r.now()
	err := r.store.DecideBatch(r.closing, number, demands, results)
	b.settle(number, demands, results, err, beganAt)
	return err
}

// settle says what became of a batch's demands. It keeps a batch that was not answered, to ask about it later.
func (b *batcher) settle(number int64, demands []store.Demand, results []store.Result, err error, beganAt instant.Millis) {
	endedAt := b.redis.now()
	for i := range demands {
		outcome := outcomeOf(err)
		if err == nil {
			outcome = outcomeOf(results[i].Err)
		}
		b.redis.ledger.Settle(&demands[i], &results[i].Verdict, outcome, beganAt, endedAt)
	}
	if outcomeOf(err) == Unsure {
		b.lost = lostBatch{number, slices.Clone(demands)}
	}
}

package redis

import (
	"sync"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
)

// unansweredBatch is a batch that was sent and not answered: its demands with unreported requests.
// The script may have charged them.
type unansweredBatch struct {
	number  int64
	demands []store.Demand
}

// unanswered are the batches that are sent again, under their numbers.
type unanswered struct {
	mu      sync.Mutex
	batches []unansweredBatch
}

// keep keeps a batch, if it has demands.
func (u *unanswered) keep(s unansweredBatch) {
	if s.demands == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.batches = append(u.batches, s)
}

// all returns all batches and forgets them.
func (u *unanswered) all() (batches []unansweredBatch) {
	u.mu.Lock()
	defer u.mu.Unlock()
	batches, u.batches = u.batches, nil
	return batches
}

func (u *unanswered) isEmpty() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.batches) == 0
}

// reported is Redis's answer to a demand with unreported requests.
type reported struct {
	demand           store.Demand
	verdict          quota.Verdict
	beganAt, endedAt instant.Millis
}

package redis

import (
	"context"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
)

// Store decides batches.
type Store interface {
	// DecideBatch decides the demands in one trip. The numbers of a gateway's batches increase. A
	// demand that was decided before under this number gets the same answer, and is charged only
	// once, unless the store has forgotten it. Number 0 is no number.
	DecideBatch(ctx context.Context, number int64, demands []store.Demand, results []store.Result) error
}

// Ledger holds what this gateway knows about its tenants and Redis may not know.
type Ledger interface {
	// Refusal returns a remembered refusal that still holds for the request at now, if there is
	// one.
	Refusal(c *store.Call, now instant.Millis) (v quota.Verdict, ok bool)
	// Collect adds to a demand what Redis may not know: the last seen use, and the unreported
	// requests.
	Collect(d *store.Demand)
	// Settle ends each demand for which Collect was called. If it was decided, Redis has charged
	// d.Unreported, and the verdict is valid. Otherwise Redis has not charged d.Unreported. The
	// trip began and ended at these instants, by this gateway's clock.
	Settle(d *store.Demand, v *quota.Verdict, decided bool, beganAt, endedAt instant.Millis)
	// Records returns the records of which the ledger knows something in this scope.
	Records(s Scope) []store.Request
}

// Scope is what a server has to be told.
type Scope uint8

// The scopes.
const (
	Unreported Scope = iota // requests that were admitted without Redis
	Window                  // known use of the last minute
	Day                     // known use of the day or the month; Window has some of these records too
)

// Package store holds quota records and decides on them. Memory keeps them in this process; package redis keeps them in
// Redis. Both pass the tests of storetest.
package store

import (
	"context"
	"errors"

	"petgate/shared/core/id"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
)

// ErrRecord is wrapped by errors that concern one tenant's record and no other.
var ErrRecord = errors.New("not a quota record")

// Request is one tenant's question: may a request pass under these limits?
type Request struct {
	Tenant  id.Tenant
	Version uint64 // the directory's version of the tenant's limits
	Limits  plan.Limits
}

// Demand is what a store decides for one tenant: all its requests that wait for this decision.
type Demand struct {
	Request
	Want  int64        // how many requests wait; 0 only asks how the tenant stands
	Known quota.DayUse // the day's use that this gateway last saw; the rule takes the larger
	// KnownMinute is the window's use that this gateway last saw; the rule uses it if the record has lost use.
	KnownMinute int64
	// Resets is the last reset that this gateway had carried out when it learned what is Known. What it knows from before a
	// tenant's reset does not count.
	Resets int64
	Spent  quota.Spent // admitted while the store could not be asked: charged first and unconditionally
}

// Reset is an operator's word that a tenant's quota starts anew. Every gateway carries it out; the record is dropped once.
type Reset struct {
	Tenant id.Tenant
	Event  int64  // in the log of changes
	UUID   string // of the event: a restored database may use its ID again
}

// Quota is d as the rule takes it.
func (d *Demand) Quota() quota.Demand {
	return quota.Demand{Limits: d.Limits, Want: d.Want, Known: d.Known, KnownMinute: d.KnownMinute, Spent: d.Spent}
}

// Result is the answer to one demand. Err concerns that tenant alone and makes Verdict void. It wraps ErrRecord if the
// record is spoiled; otherwise the tenant's own node of a cluster could not be asked.
type Result struct {
	Verdict quota.Verdict
	Err     error
}

// Store decides. It is safe for concurrent use.
type Store interface {
	// Decide decides all demands in one trip, those of one tenant in their order; results has their length. After an
	// error it is unknown which of them were decided.
	Decide(ctx context.Context, demands []Demand, results []Result) error
	// Reset drops the tenant's record: its quota starts anew.
	Reset(ctx context.Context, r Reset) error
}

package quotas

import (
	"context"

	"petgate/shared/core/id"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
)

// Ask is one tenant's question: may a request pass under these limits?
type Ask struct {
	Tenant  id.Tenant
	Version uint64 // the directory's version of the tenant's limits
	Limits  plan.Limits
}

// demand is what a backend decides for one tenant.
type demand struct {
	Ask
	Want  int64        // requests that wait for this decision; 0 peeks
	Known quota.DayUse // the day's use that this gateway last saw; the rule takes the larger
	Spent quota.Spent  // admitted while the backend could not be asked: charged first and unconditionally
}

func (d *demand) quota() quota.Demand {
	return quota.Demand{Limits: d.Limits, Want: d.Want, Known: d.Known, Spent: d.Spent}
}

// result is a backend's answer to one demand. Err concerns that tenant alone, and makes Verdict void: it wraps errRecord
// where the record is spoiled, and is the trip's error where only the tenant's own node of a cluster could not be asked.
type result struct {
	Verdict quota.Verdict
	Err     error
}

// backend is where decisions are made. It is safe for concurrent use.
type backend interface {
	// decide decides all demands in one trip, those of one tenant in their order; results has their length. An error
	// means that nobody can tell which of them were decided.
	decide(ctx context.Context, demands []demand, results []result) error
	// forget drops the tenant's record: its quota starts anew.
	forget(ctx context.Context, tenant id.Tenant) error
}

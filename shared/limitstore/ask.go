package limitstore

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

// result is a backend's answer to one demand. Err is about that tenant's record only, and then Verdict is void.
type result struct {
	Verdict quota.Verdict
	Err     error
}

// backend decides all demands in one trip; results has their length. An error means that it cannot be told which of
// them were decided. No tenant may stand in demands twice.
type backend interface {
	decide(ctx context.Context, demands []demand, results []result) error
	// forget drops the tenant's record: its quota starts anew.
	forget(ctx context.Context, tenant id.Tenant) error
}

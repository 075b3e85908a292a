// Package store holds quota records and decides on them. Memory keeps them in this process; package redis keeps them in
// Redis. Both pass the tests of storetest.
package store

import (
	"errors"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
)

// ErrRecord is wrapped by errors that concern only one tenant's record.
var ErrRecord = errors.New("not a quota record")

// Name names a record. Each reset of a tenant's use begins another record; the earlier one expires by itself.
type Name struct {
	Tenant id.Tenant
	Since  instant.Millis // the tenant's last reset; 0: there was none
}

// Request is one tenant's question: may a request pass under these limits?
type Request struct {
	Tenant  id.Tenant
	Since   instant.Millis // the tenant's last reset; 0: there was none
	Version uint64         // the directory's version of the tenant's limits
	Limits  plan.Limits
}

// Name is the name of the record that decides.
func (r *Request) Name() Name { return Name{r.Tenant, r.Since} }

// Demand asks for one decision on all requests of a tenant that wait for it.
type Demand struct {
	Request
	Want  int64        // how many requests wait; 0 only reads the tenant's figures
	Known quota.DayUse // the day's use that this gateway last saw; if it is more than the record's, the rule uses it
	// KnownMinute is the window's use that this gateway last saw; the rule uses it if the record has lost use.
	KnownMinute int64
	Spent       quota.Spent // admitted while the store could not be asked; charged first, unconditionally
}

// Quota converts d for the rule.
func (d *Demand) Quota() quota.Demand {
	return quota.Demand{Limits: d.Limits, Want: d.Want, Known: d.Known, KnownMinute: d.KnownMinute, Spent: d.Spent}
}

// Result is the answer to one demand. If Err is set, Verdict is invalid, for that tenant only. Err wraps ErrRecord if the
// record is corrupt; otherwise the cluster node that serves the tenant could not be asked.
type Result struct {
	Verdict quota.Verdict
	Err     error
	Lost    bool // the record had less use of the day than the demand's Known: the store has lost use
}

// Package store holds quota records and decides on them. Memory keeps them in this process; package
// redis keeps them in Redis.
package store

import (
	"errors"

	"petgate/shared/core/id"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/keystore/usage"
)

// ErrRecord is wrapped by errors that concern only one tenant's record.
var ErrRecord = errors.New("not a quota record")

// Name names a record.
type Name = usage.QuotaName

// Request is a question to one record: may a request pass under these limits?
type Request struct {
	Name
	Version     uint64 // the directory's version of the limits
	Limits      plan.Limits
	MonthStarts uint8 // see quota.Demand
	Cost        int64 // of the request, in units; 0 is 1
}

// Call is a request as it asks the quotas: its tenant's record, and that of its key if the key has
// limits of its own.
type Call struct {
	Request
	Key id.Key
	Cap plan.Limits // the key's own limits; zero: none
}

// IsCapped reports whether the key has limits of its own.
func (c *Call) IsCapped() bool { return c.Cap != plan.Limits{} }

// Own is the question to the key's record.
func (c *Call) Own() Request {
	own := c.Request
	own.Name.Key, own.Limits = c.Key, c.Cap
	return own
}

// Demand asks one record for a decision on all requests that wait for it.
type Demand struct {
	Request
	Want       int64     // how many requests wait; 0 only reads the figures
	Known      quota.Use // what this gateway last saw: see quota.Demand
	Unreported quota.Use // admitted while the store could not be asked; charged first, unconditionally
	// Joined says that this record is a key's own, and that the next demand is its tenant's. The
	// two have the same Want, and are granted together.
	Joined bool
}

// Quota converts d for the rule.
func (d *Demand) Quota() quota.Demand {
	return quota.Demand{
		Limits:      d.Limits,
		MonthStarts: d.MonthStarts,
		Cost:        d.Cost,
		Want:        d.Want,
		Known:       d.Known,
		Unreported:  d.Unreported,
	}
}

// Result is the answer to one demand. If Err is set, Verdict is invalid, for that record only. Err
// wraps ErrRecord if the record is corrupt; otherwise the cluster node that serves the tenant could
// not be asked. If one of two joined demands has an error, the other one is granted nothing.
type Result struct {
	Verdict quota.Verdict
	Err     error
	Lost    bool // the record had less use of the day or month than the demand's Known: the store has lost use
}

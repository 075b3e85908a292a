// Package plan has the limits of plans, tenants and keys.
//
// A plan has up to three limits, one for each policy: per minute, per day and per month. A tenant
// may override each of them. These limits belong to the tenant, not to its keys: a second key does
// not add a second allowance. A key may have a limit of its own within them. All functions are pure
// and safe for concurrent use.
package plan

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"regexp"
)

// LimitMax is the largest limit. It is well below what quota records can hold: they have 32 bits
// for each count.
const LimitMax = 1_000_000_000

// CostMax is the largest cost of a request, in units.
const CostMax = 1000

// The names of the policies, the shortest period first.
const (
	Minute = "minute"
	Day    = "day"
	Month  = "month"
)

// Policies are the names of all policies, the shortest period first.
var Policies = [...]string{Minute, Day, Month}

// Limits are the numbers of requests that each policy admits. Zero means that the policy is not
// set.
type Limits struct {
	Minute int64 `json:"minute"`          // requests in any 60 seconds
	Day    int64 `json:"day"`             // requests in a UTC calendar day
	Month  int64 `json:"month,omitempty"` // requests in a month: see Tenant.MonthStarts in package keystore
}

// Of returns the limit of a policy by its name.
func (l Limits) Of(policy string) int64 { return *l.At(policy) }

// At returns the place of a policy's limit.
func (l *Limits) At(policy string) *int64 {
	switch policy {
	case Minute:
		return &l.Minute
	case Day:
		return &l.Day
	case Month:
		return &l.Month
	}
	panic("bug: there is no policy " + policy)
}

// Set yields the policies that are set and their limits, the shortest period first.
func (l Limits) Set() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		for _, policy := range Policies {
			if limit := l.Of(policy); limit != 0 && !yield(policy, limit) {
				return
			}
		}
	}
}

// Effective returns limits in force: an override where it is set, the plan's limits elsewhere.
func Effective(plan, override Limits) Limits {
	return Limits{
		cmp.Or(override.Minute, plan.Minute), cmp.Or(override.Day, plan.Day), cmp.Or(override.Month, plan.Month),
	}
}

// None in a change of limits takes the policy away.
const None = -1

// NoLimits in place of a change takes all policies away.
var NoLimits = Limits{Minute: None, Day: None, Month: None}

// Changed returns limits after a change. A limit of 0 in it is not changed.
func (l Limits) Changed(by Limits) Limits {
	l = Effective(l, by)
	for _, policy := range Policies {
		if at := l.At(policy); *at == None {
			*at = 0
		}
	}
	return l
}

// IsLess reports whether these limits admit less than was admitted before: one of them is lower or
// new, or none is left.
func (l Limits) IsLess(than Limits) bool {
	if !than.IsSet() || !l.IsSet() {
		return than.IsSet()
	}
	return l.Narrows(than)
}

// Narrows reports whether one of the limits is lower than before, or new. Without limits of its
// own, a key has no less.
func (l Limits) Narrows(before Limits) bool {
	for policy, limit := range l.Set() {
		if was := before.Of(policy); was == 0 || limit < was {
			return true
		}
	}
	return false
}

// IsSet reports whether a policy is set. If none is, the tenant is refused, not unlimited.
func (l Limits) IsSet() bool { return l != Limits{} }

// Check returns an error that names the first limit outside 1 … LimitMax, or the first that is
// larger than that of a longer period. Zero is allowed: not set.
func (l Limits) Check() error {
	var shorter string
	for policy, limit := range l.Set() {
		if limit < 0 || limit > LimitMax {
			return fmt.Errorf("a %s limit of %d is out of range: use 1 to %d", policy, limit, LimitMax)
		}
		if shorter != "" && limit < l.Of(shorter) {
			return fmt.Errorf("a %s limit of %d is below the %s limit of %d, which could never be reached: "+
				"raise the %[1]s limit, or lower the %[3]s limit", policy, limit, shorter, l.Of(shorter))
		}
		shorter = policy
	}
	return nil
}

// Admit returns an error that names the operation and the limit if a request of this cost can never
// be admitted.
func (l Limits) Admit(operation string, cost int64) error {
	for policy, limit := range l.Set() {
		if cost > limit {
			return fmt.Errorf("a request of operation %s costs %d, so a %s limit of %d never admits it: "+
				"raise the limit, or lower its x-cost", operation, cost, policy, limit)
		}
	}
	return nil
}

// MonthStartsMax is the last day of a month on which a tenant's month can begin: every month has
// it.
const MonthStartsMax = 28

// CheckMonthStarts returns an error unless a tenant's month can begin on this day. Zero is allowed:
// the first.
func CheckMonthStarts(day uint8) error {
	if day > MonthStartsMax {
		return fmt.Errorf("a month cannot start on day %d: use 1 to %d, which every month has", day, MonthStartsMax)
	}
	return nil
}

// CheckKey returns an error unless these can be a key's own limits: see Check.
func (l Limits) CheckKey() error {
	if l.Month != 0 {
		return errors.New("a key has no month limit of its own: use a day limit")
	}
	return l.Check()
}

var namePattern = regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`)

// CheckName returns an error if name is not a valid name of a plan.
func CheckName(name string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("%q is not a plan name: use up to 40 lower-case letters, digits and hyphens, a letter first",
			name)
	}
	return nil
}

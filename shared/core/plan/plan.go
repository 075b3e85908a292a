// Package plan has the limits of plans and tenants.
//
// A plan has two limits, per minute and per day. A tenant may override either of them. Limits belong to the tenant,
// not to its keys: a second key does not add a second allowance. All functions are pure and safe for concurrent use.
package plan

import (
	"fmt"
	"regexp"
)

// LimitMax is the largest limit. It is well below what quota records can hold: they have 32 bits for each count.
const LimitMax = 1_000_000_000

// Limits are the numbers of requests that each policy admits. Zero means not set, never unlimited.
type Limits struct {
	Minute int64 `json:"minute"` // requests in any 60 seconds
	Day    int64 `json:"day"`    // requests in a UTC calendar day
}

// Effective returns a tenant's limits: its overrides where they are set, its plan's elsewhere.
func Effective(plan, override Limits) Limits {
	if override.Minute != 0 {
		plan.Minute = override.Minute
	}
	if override.Day != 0 {
		plan.Day = override.Day
	}
	return plan
}

// IsSet reports whether both limits are set. If one is missing, the tenant is refused, not unlimited.
func (l Limits) IsSet() bool { return l.Minute > 0 && l.Day > 0 }

// Check returns an error that names the first limit outside 1 … LimitMax. Zero is allowed: not set.
func (l Limits) Check() error {
	for _, limit := range []struct {
		policy string
		value  int64
	}{{"minute", l.Minute}, {"day", l.Day}} {
		if limit.value < 0 || limit.value > LimitMax {
			return fmt.Errorf("a %s limit of %d is out of range: use 1 to %d", limit.policy, limit.value, LimitMax)
		}
	}
	return nil
}

var namePattern = regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`)

// CheckName returns an error if name is not a valid name of a plan.
func CheckName(name string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("%q is not a plan name: use up to 40 lower-case letters, digits and hyphens, a letter first", name)
	}
	return nil
}

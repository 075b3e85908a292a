// Package quota decides how many requests a tenant may make now. Up to three policies limit them:
// in any minute, in a UTC day and in a month. A key may have limits of its own within its tenant's.
//
// A record counts use in a rolling window and in calendar periods. The minute is the rolling
// window. Time is cut into slices. The admissions of a slice are released one window after the end
// of the slice: up to a slice late, never early. So no window, wherever it ends, has more
// admissions than the limit. The day is the UTC calendar day. The month is the UTC calendar month,
// or begins on another day of it. A record counts the use of its day, and apart from that the use
// of the month before this day: the two together are the use of the month.
//
// A request has a cost, in units; limits and use are in units too. A request is charged to all
// policies or to none. Of n requests, the first k ≤ n may be granted. Limits are arguments of a
// decision: a change holds from the next decision on, and usage is kept.
//
// Decisions are pure. They are not safe for concurrent use of one Record, so the caller holds a
// lock. Redis runs the same rule as a script on the same bytes, one script at a time.
package quota

import (
	"time"

	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
)

// Rule is the shape of the windows. Its durations are whole milliseconds.
type Rule struct {
	Slice  time.Duration // the minute policy's resolution
	Slices int           // slices in a window
	Day    time.Duration // the day policy's period, counted from the Unix epoch: 24 h is the UTC day
}

// Product is the rule of the product. Only tests use other rules, whose windows are short enough to
// wait for.
var Product = Rule{Slice: 250 * time.Millisecond, Slices: 240, Day: 24 * time.Hour}

// Window is the minute policy's length.
func (r Rule) Window() time.Duration { return r.Slice * time.Duration(r.Slices) }

// Policy is one of the limits of a request.
type Policy uint8

// The policies. The last two are a key's own. None means that no policy refused.
const (
	Minute Policy = iota
	Day
	Month
	KeyMinute
	KeyDay
	None

	Policies = int(None) // how many there are
)

func (p Policy) String() string {
	return [...]string{"minute", "day", "month", "key-minute", "key-day", "none"}[p]
}

// IsOfKey reports whether the policy is a key's own.
func (p Policy) IsOfKey() bool { return p == KeyMinute || p == KeyDay }

// Usage is the state of one policy after a decision, in units.
type Usage struct {
	Limit     int64          // 0: the policy is not set
	Used      int64          // exceeds Limit if the limit was lowered or usage was merged in
	Remaining int64          // what is left of Limit; if a gateway decided alone, what it admits
	ResetAt   instant.Millis // when usage is 0 again if no more requests come
	ReleaseAt instant.Millis // when usage next shrinks; ResetAt if nothing is used
	RetryAt   instant.Millis // when this policy would admit one more request of the same cost; 0 is at once
}

// Period is usage of a day or a month. The zero value means that nothing is known.
type Period struct {
	Ends int64 // the first day after it, in days since the Unix epoch
	Used int64
}

// Use is usage of a record as a gateway knows it, in units.
type Use struct {
	Minute     int64 // within the window that ends now
	Day, Month Period
}

// UseOf returns the use in a verdict.
func (r Rule) UseOf(v *Verdict) Use {
	period := func(u *Usage) Period { return Period{int64(u.ResetAt) / r.Day.Milliseconds(), u.Used} }
	return Use{v.Usages[Minute].Used, period(&v.Usages[Day]), period(&v.Usages[Month])}
}

// Demand is what is asked of one record.
type Demand struct {
	Limits      plan.Limits
	MonthStarts uint8 // day of the UTC month on which the month begins, 1 to 28; 0 is 1
	Cost        int64 // of each request; 0 is 1
	Want        int64 // requests that ask to be admitted; 0 peeks
	// Known is the usage that the caller last saw. The larger of this and the record's own count of
	// the day and of the month applies. Known.Minute, which is not released yet, only matters if
	// the record has lost usage of the day: then the loss, but at most Known.Minute, is charged to
	// the current slice.
	Known      Use
	Unreported Use // admitted while this record was unavailable; charged first, whatever the limits
}

// Verdict is the answer to one demand, or to a request with a key's own limits.
type Verdict struct {
	At       instant.Millis // when the decision was made, by the clock that decides
	Granted  int64          // requests
	Usages   [Policies]Usage
	Degraded bool // a gateway decided alone, without the shared count; the rule never sets it
}

// Join adds the verdict on a key's own record to that on its tenant's.
func (v *Verdict) Join(own *Verdict) {
	v.Usages[KeyMinute], v.Usages[KeyDay] = own.Usages[Minute], own.Usages[Day]
}

// Before makes v the verdict before the last granted units were charged.
func (v *Verdict) Before(units int64) {
	for p := range v.Usages {
		u := &v.Usages[p]
		if units == 0 || u.ResetAt == 0 { // no policy of this request
			continue
		}
		u.Used -= units
		u.RetryAt = 0
		u.Remaining = max(0, u.Limit-u.Used)
	}
}

// Violated returns the policy that refuses one more request. If several refuse, it is the one that
// admits again last; of two that admit again together, the longer one, and the tenant's before the
// key's. If none refuses, it is None.
func (v *Verdict) Violated() Policy {
	violated, latest := None, instant.Millis(0)
	for _, p := range [Policies]Policy{Month, Day, Minute, KeyDay, KeyMinute} {
		if at := v.Usages[p].RetryAt; at > latest {
			violated, latest = p, at
		}
	}
	return violated
}

// RetryAt is when all policies would admit one more request of the same cost; 0 is at once.
func (v *Verdict) RetryAt() (latest instant.Millis) {
	for i := range v.Usages {
		latest = max(latest, v.Usages[i].RetryAt)
	}
	return latest
}

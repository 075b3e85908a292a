// Package quota decides how many requests a tenant may make now. It has a limit for any minute and a limit for a UTC day.
//
// The minute is a rolling window. Time is cut into slices. The admissions of a slice are released one window after the end
// of the slice: up to a slice late, never early. So no window, wherever it ends, has more admissions than the limit.
// The day is the UTC calendar day. A request is charged to both policies or to neither. Of n requests, the first k ≤ n may
// be granted. Limits are arguments of each decision: a change holds from the next decision on, and usage is kept.
//
// Decisions are pure. They are not safe for concurrent use of one Record, so the caller holds a lock. Redis runs the same rule
// as a script on the same bytes, one script at a time.
package quota

import (
	"time"

	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
)

// Rule is the shape of the two windows. Its durations are whole milliseconds.
type Rule struct {
	Slice  time.Duration // the minute policy's resolution
	Slices int           // slices in a window
	Day    time.Duration // the day policy's period, counted from the Unix epoch, so that 24 h is the UTC day
}

// Product is the rule of the product. Only tests use other rules, whose windows are short enough to wait for.
var Product = Rule{Slice: 250 * time.Millisecond, Slices: 240, Day: 24 * time.Hour}

// Window is the minute policy's length.
func (r Rule) Window() time.Duration { return r.Slice * time.Duration(r.Slices) }

// Policy is one of a quota's two limits.
type Policy uint8

// The policies. None means that no policy refused.
const (
	None Policy = iota
	Minute
	Day
)

func (p Policy) String() string { return [...]string{"none", "minute", "day"}[p] }

// Usage is the state of one policy after a decision.
type Usage struct {
	Limit, Used int64          // Used exceeds Limit if the limit was lowered or usage was merged in
	ResetAt     instant.Millis // when usage is 0 again if no more requests come: the end of the window or of the day
	ReleaseAt   instant.Millis // when usage next shrinks; ResetAt if nothing is used
	RetryAt     instant.Millis // when this policy would admit one more; 0 is at once
}

// Remaining is what is left of the limit.
func (u Usage) Remaining() int64 { return max(0, u.Limit-u.Used) }

// DayUse is the known usage of a day. The zero value means that nothing is known.
type DayUse struct {
	Day  int64 // days since the Unix epoch
	Used int64
}

// Spent is usage that a gateway admitted while this record was unavailable.
type Spent struct {
	Minute int64  // admitted within the window that ends now
	Day    DayUse // admitted within that day
}

// Demand is what a tenant asks of its record.
type Demand struct {
	Limits plan.Limits
	Want   int64  // requests that ask to be admitted; 0 peeks
	Known  DayUse // the day's usage that the caller last saw; the larger of this and the record's own count applies
	// KnownMinute is the window's usage that the caller last saw and that is not released yet. It only matters if the record
	// has lost usage of the day: then the loss, but at most KnownMinute, is charged to the current slice.
	KnownMinute int64
	Spent       Spent // charged first, whatever the limits
}

// Verdict is the answer to one demand.
type Verdict struct {
	At          instant.Millis // when the decision was made, by the clock that decides
	Granted     int64
	Minute, Day Usage
	DayUse      DayUse // the use in Day, to send with the next demand
	Degraded    bool   // a gateway decided alone, without the shared count; the rule never sets it
	// Admits is how many more requests of the minute and of the day that gateway would admit now, of its share.
	Admits [2]int64
}

// Remaining is how many more requests a policy would admit now. If a gateway decided alone, others may admit more.
func (v *Verdict) Remaining(of Policy) int64 {
	switch {
	case v.Degraded:
		return v.Admits[of-Minute]
	case of == Minute:
		return v.Minute.Remaining()
	}
	return v.Day.Remaining()
}

// Violated returns the policy that refuses more requests. If both refuse, it is the one that admits again later. If neither
// refuses, it is None.
func (v Verdict) Violated() Policy {
	switch {
	case v.Minute.RetryAt == 0 && v.Day.RetryAt == 0:
		return None
	case v.Minute.RetryAt > v.Day.RetryAt:
		return Minute
	default:
		return Day
	}
}

// RetryAt is when both policies would admit one more request; 0 is at once.
func (v Verdict) RetryAt() instant.Millis { return max(v.Minute.RetryAt, v.Day.RetryAt) }

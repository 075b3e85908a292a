// Package quota decides how many requests a tenant may make now: so many in any minute, so many in a UTC day.
//
// The minute rolls. Time is cut into slices, and the admissions of a slice are released one window after the slice's
// end: up to a slice late, never early. So in no window that ends at any instant have more than the limit been admitted.
// The day is the UTC calendar day. A request is taken from both policies or from neither, and of n that are wanted the
// first k ≤ n may be granted. Limits are arguments of every decision: a change holds from the next one on, and use is kept.
//
// Decisions are pure and not safe for concurrent use of one Record: their caller holds a lock, or is Redis, where the
// same rule runs as a script on the same bytes.
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

// Product is the rule that is sold. Only tests use another, with windows they can afford to wait for.
var Product = Rule{Slice: 250 * time.Millisecond, Slices: 240, Day: 24 * time.Hour}

// Window is the minute policy's length.
func (r Rule) Window() time.Duration { return r.Slice * time.Duration(r.Slices) }

// Policy is one of a quota's two limits.
type Policy uint8

// The policies. None answers which policy refused when none did.
const (
	None Policy = iota
	Minute
	Day
)

func (p Policy) String() string { return [...]string{"none", "minute", "day"}[p] }

// Usage is one policy at an instant, after the decision that tells of it.
type Usage struct {
	Limit, Used int64          // Used exceeds Limit where a limit was lowered or use was merged in
	ResetAt     instant.Millis // when nothing is used any more if nothing more comes: the window's end, or the day's
	ReleaseAt   instant.Millis // when use next shrinks; where nothing is used, ResetAt
	RetryAt     instant.Millis // when this policy would admit one more; 0 is at once
}

// Remaining is how many more the policy would admit now.
func (u Usage) Remaining() int64 { return max(0, u.Limit-u.Used) }

// DayUse is what is known of a day's use. The zero value knows nothing.
type DayUse struct {
	Day  int64 // days since the Unix epoch
	Used int64
}

// Spent is use that was admitted elsewhere, while this record could not be asked.
type Spent struct {
	Minute int64  // admitted within the window that ends now
	Day    DayUse // admitted within that day
}

// Demand is what a tenant asks of its record.
type Demand struct {
	Limits plan.Limits
	Want   int64  // requests that ask to be admitted; 0 peeks
	Known  DayUse // the day's use that the asker last saw: the larger of this and the record's counts
	// KnownMinute is the window's use that the asker last saw and that is not released yet. It only matters if the record
	// has lost use of the day: as much of the loss as this is charged to the current slice.
	KnownMinute int64
	Spent       Spent // charged first, whatever the limits
}

// Verdict is the answer to one demand.
type Verdict struct {
	At          instant.Millis // the deciding clock's instant
	Granted     int64
	Minute, Day Usage
	DayUse      DayUse // as Day, to be given with the next demand
	Degraded    bool   // one gateway decided alone, without the count that all share; no rule sets it
}

// Violated names the policy that admits no more; where both do, the one that frees later; None where neither does.
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

// RetryAt is when one more would be admitted by both policies; 0 is at once.
func (v Verdict) RetryAt() instant.Millis { return max(v.Minute.RetryAt, v.Day.RetryAt) }

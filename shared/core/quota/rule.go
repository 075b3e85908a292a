package quota

import (
	"math"
	"time"

	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
)

// Ahead is how far in the future a record may be. If a clock stepped back by at most Ahead, the record's own slice counts
// as now until the clock has caught up. If a record is further ahead, the clock that dated it was wrong.
const Ahead = 5 * time.Second

// CountMax is the largest count that a record holds. Only merged usage can reach it. The count then stays there.
const CountMax = math.MaxUint32

// Take decides d at the instant now, charges rec what it grants, and returns the state of rec afterwards.
//
// A clock that steps back releases nothing: what is counted stays counted, and a day that has begun continues. A record
// that is more than Ahead in the future gets a new date: all its usage counts as admitted now, in this slice and on this day.
// Usage that rec has lost, but that the caller knows, counts as admitted now as well. Both may hold a tenant back for one more
// window, but never let it exceed a limit.
func (r Rule) Take(rec *Record, now instant.Millis, d Demand) Verdict {
	r.advance(rec, now)
	if lost := int64(Count(d.Known.Used)) - int64(rec.dayUsed); d.Known.Day == r.day(rec.at) && lost > 0 {
		rec.dayUsed = Count(d.Known.Used)
		r.charge(rec, Count(min(lost, d.KnownMinute)))
	}
	if d.Spent.Day.Day == r.day(rec.at) {
		rec.dayUsed = Count(int64(rec.dayUsed) + int64(Count(d.Spent.Day.Used)))
	}
	r.charge(rec, Count(d.Spent.Minute))
	minute, day := Limit(d.Limits.Minute), Limit(d.Limits.Day)
	granted := max(0, min(d.Want, minute-rec.sum, day-int64(rec.dayUsed)))
	r.charge(rec, uint32(granted))
	rec.dayUsed += uint32(granted)
	return r.verdict(&rec.summary, now, d.Limits, granted, r.retrySlice(rec, minute))
}

// advance brings rec to now: releases slices that have left the window, and starts the day's count again on a new day.
func (r Rule) advance(rec *Record, now instant.Millis) {
	at := int64(max(0, now)) / r.Slice.Milliseconds()
	if r.startsAt(rec.at) > now.Add(Ahead) {
		rec.count = Count(rec.sum)
		rec.sum = int64(rec.count)
		rec.at, rec.newest, rec.oldest = at, at, at
		return
	}
	if at <= rec.at {
		return
	}
	if r.day(at) != r.day(rec.at) {
		rec.dayUsed = 0
	}
	rec.at = at
	for rec.sum > 0 && rec.oldest < at-int64(r.Slices) {
		rec.sum -= int64(r.countOf(rec, rec.oldest))
		rec.oldest = r.usedFrom(rec, rec.oldest+1)
	}
}

// charge counts n in rec's current slice, whatever the limits are.
func (r Rule) charge(rec *Record, n uint32) {
	switch {
	case n == 0:
		return
	case rec.sum == 0:
		rec.newest, rec.oldest, rec.count = rec.at, rec.at, 0
	case rec.newest < rec.at:
		if rec.ring == nil {
			rec.ring = make([]uint32, r.Slices)
		}
		*r.slot(rec, rec.newest) = rec.count
		for unused := rec.newest + 1; unused < rec.at; unused++ {
			*r.slot(rec, unused) = 0
		}
		rec.newest, rec.count = rec.at, 0
	}
	n = min(n, CountMax-rec.count)
	rec.count += n
	rec.sum += int64(n)
}

// retrySlice is the slice whose release brings usage under the limit. It has no meaning if usage is already under the limit.
func (r Rule) retrySlice(rec *Record, limit int64) int64 {
	if rec.sum <= limit {
		return rec.oldest
	}
	slice, sum := rec.oldest, rec.sum
	for slice < rec.newest {
		if sum -= int64(r.countOf(rec, slice)); sum < limit {
			break
		}
		slice = r.usedFrom(rec, slice+1)
	}
	return slice
}

// usedFrom returns the first slice with usage, from the given slice on.
func (r Rule) usedFrom(rec *Record, slice int64) int64 {
	for slice < rec.newest && *r.slot(rec, slice) == 0 {
		slice++
	}
	return min(slice, rec.newest)
}

// countOf returns the usage of a slice that is between the oldest and the newest slice with usage.
func (r Rule) countOf(rec *Record, slice int64) uint32 {
	if slice == rec.newest {
		return rec.count
	}
	return *r.slot(rec, slice)
}

func (r Rule) slot(rec *Record, slice int64) *uint32 { return &rec.ring[slice%int64(r.Slices)] }

// day is the index of the day in which a slice lies.
func (r Rule) day(slice int64) int64 { return slice * r.Slice.Milliseconds() / r.Day.Milliseconds() }

// startsAt is the instant at which a slice begins.
func (r Rule) startsAt(slice int64) instant.Millis {
	return instant.Millis(slice * r.Slice.Milliseconds())
}

// releaseAt is the instant at which a slice's admissions are released.
func (r Rule) releaseAt(slice int64) instant.Millis {
	return r.startsAt(slice + 1 + int64(r.Slices))
}

// verdict returns the state of a record.
func (r Rule) verdict(s *summary, now instant.Millis, limits plan.Limits, granted, retrySlice int64) Verdict {
	day := r.day(s.at)
	midnight := instant.Millis((day + 1) * r.Day.Milliseconds())
	v := Verdict{
		At:      now,
		Granted: granted,
		Minute:  Usage{Limit: Limit(limits.Minute), Used: s.sum, ResetAt: now, ReleaseAt: now},
		Day:     Usage{Limit: Limit(limits.Day), Used: int64(s.dayUsed), ResetAt: midnight, ReleaseAt: midnight},
		DayUse:  DayUse{Day: day, Used: int64(s.dayUsed)},
	}
	if s.sum > 0 {
		v.Minute.ResetAt, v.Minute.ReleaseAt = r.releaseAt(s.newest), r.releaseAt(s.oldest)
	}
	switch {
	case v.Minute.Limit == 0:
		v.Minute.RetryAt = r.releaseAt(s.at)
	case v.Minute.Used >= v.Minute.Limit:
		v.Minute.RetryAt = r.releaseAt(retrySlice)
	}
	if v.Day.Used >= v.Day.Limit {
		v.Day.RetryAt = midnight
	}
	return v
}

// Count returns n, limited to what a record can hold.
func Count(n int64) uint32 { return uint32(min(max(0, n), CountMax)) }

// Limit returns n, limited to what a decision can use. A limit that is not set admits nothing.
func Limit(n int64) int64 { return min(max(0, n), plan.LimitMax) }

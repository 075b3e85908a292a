package quota

import (
	"math"
	"time"

	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
)

// Ahead is how far in the future a record may be. If a clock stepped back by at most Ahead, the
// record's own slice counts as now until the clock has caught up. If a record is further ahead, the
// clock that dated it was wrong.
const Ahead = 5 * time.Second

// CountMax is the largest count that a record holds. Only merged usage can reach it. The count then
// stays there.
const CountMax = math.MaxUint32

// Take decides d at the instant now, charges rec what it grants, and returns the state of rec
// afterwards.
//
// A clock that steps back releases nothing: what is counted stays counted, and a day that has begun
// continues. A record that is more than Ahead in the future gets a new date: all its usage counts
// as admitted now, in this slice and on this day. Usage that rec has lost, but that the caller
// knows, counts as admitted now as well. Both may hold a tenant back for one more window, but never
// let it exceed a limit.
func (r Rule) Take(rec *Record, now instant.Millis, d Demand) (v Verdict) {
	b := d.bounds()
	r.grant(&v, rec, now, &b, r.admits(rec, now, &d, &b))
	return v
}

// TakeBoth decides two demands that are granted together: a key's own and its tenant's. Both
// records are charged, or neither.
func (r Rule) TakeBoth(key, tenant *Record, now instant.Millis, own, d Demand) (ofKey, ofTenant Verdict) {
	ownBounds, b := own.bounds(), d.bounds()
	granted := min(r.admits(key, now, &own, &ownBounds), r.admits(tenant, now, &d, &b))
	r.grant(&ofKey, key, now, &ownBounds, granted)
	r.grant(&ofTenant, tenant, now, &b, granted)
	return ofKey, ofTenant
}

// admits brings rec to now and adds the use that it does not have. It returns how many of the
// wanted requests it admits.
func (r Rule) admits(rec *Record, now instant.Millis, d *Demand, b *bounds) int64 {
	r.advance(rec, now)
	day := r.day(rec.at)
	if day >= int64(rec.monthEnds) {
		rec.monthEnds, rec.before = 0, 0
	}
	if d.Limits.Month != 0 {
		rec.monthEnds = uint32(MonthEnd(day, d.MonthStarts))
	}
	if known := int64(Count(d.Known.Day.Used)); d.Known.Day.Ends == day+1 && known > int64(rec.dayUsed) {
		r.charge(rec, Count(min(known-int64(rec.dayUsed), d.Known.Minute)))
		rec.dayUsed = uint32(known)
	}
	if d.Limits.Month != 0 && d.Known.Month.Ends == int64(rec.monthEnds) {
		rec.before = max(rec.before, Count(int64(Count(d.Known.Month.Used))-int64(rec.dayUsed)))
	}
	earlier := int64(Count(d.Unreported.Month.Used))
	if spent := int64(Count(d.Unreported.Day.Used)); d.Unreported.Day.Ends == day+1 {
		rec.dayUsed = Count(int64(rec.dayUsed) + spent)
		earlier -= spent
	}
	if ends := d.Unreported.Month.Ends; ends > day && ends <= CountMax {
		if rec.monthEnds == 0 {
			rec.monthEnds = uint32(ends) // so the day counts in the month when it is over
		}
		if ends == int64(rec.monthEnds) {
			rec.before = Count(int64(rec.before) + max(0, earlier))
		}
	}
	r.charge(rec, Count(d.Unreported.Minute))

	admitted := min(d.Want, plan.LimitMax)
	for p, used := range rec.used() {
		if b.limits[p] != noLimit {
			admitted = min(admitted, (b.limits[p]-used)/b.cost)
		}
	}
	return max(0, admitted)
}

// grant charges rec for the granted requests.
func (r Rule) grant(v *Verdict, rec *Record, now instant.Millis, b *bounds, granted int64) {
	units := Count(granted * b.cost)
	r.charge(rec, units)
	rec.dayUsed = Count(int64(rec.dayUsed) + int64(units))
	r.describe(v, &rec.summary, now, b, granted, r.retrySlice(rec, b.fitsBelow(Minute)))
}

// noLimit stands for the limit of a policy that is not set.
const noLimit = CountMax

// bounds are the limits of a demand by policy, and the cost of its requests.
type bounds struct {
	limits [Month + 1]int64
	cost   int64
}

// bounds returns the bounds of the demand. If no limit is set, nothing is admitted: the minute has
// 0.
func (d *Demand) bounds() bounds {
	b := bounds{[...]int64{noLimit, noLimit, noLimit}, d.cost()}
	if !d.Limits.IsSet() {
		b.limits[Minute] = 0
	}
	for p, limit := range [...]int64{d.Limits.Minute, d.Limits.Day, d.Limits.Month} {
		if limit != 0 {
			b.limits[p] = min(max(0, limit), plan.LimitMax)
		}
	}
	return b
}

func (b *bounds) fitsBelow(p Policy) int64 {
	if b.limits[p] != noLimit {
		return b.limits[p] - b.cost + 1
	}
	return noLimit
}

func (d *Demand) cost() int64 { return min(max(1, d.Cost), plan.CostMax) }

// Units are what this many requests of the demand cost.
func (d *Demand) Units(requests int64) int64 { return min(max(0, requests), plan.LimitMax) * d.cost() }

// FitsBelow returns the use below which a policy admits one more request of the demand. It is not
// positive if the cost is above the limit, and CountMax if the policy is not set.
func (d *Demand) FitsBelow(p Policy) int64 {
	b := d.bounds()
	return b.fitsBelow(p)
}

// MonthEnd returns the first day after this one on which a month begins, in days since the Unix
// epoch. Months begin on this day of the UTC calendar month, 1 to 28; 0 is 1.
func MonthEnd(day int64, starts uint8) int64 {
	const seconds = 24 * 60 * 60
	starts = min(max(1, starts), 28)
	year, month, of := time.Unix(day*seconds, 0).UTC().Date()
	if of >= int(starts) {
		month++
	}
	return time.Date(year, month, int(starts), 0, 0, 0, 0, time.UTC).Unix() / seconds
}

// advance brings rec to now: releases slices that have left the window, and starts the day's count
// again on a new day.
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
		rec.before = Count(int64(rec.before) + int64(rec.dayUsed))
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

// retrySlice is the slice whose release brings usage below a bound. It has no meaning if usage is
// already below it.
func (r Rule) retrySlice(rec *Record, bound int64) int64 {
	if rec.sum <= bound {
		return rec.oldest
	}
	slice, sum := rec.oldest, rec.sum
	for slice < rec.newest {
		sum -= int64(r.countOf(rec, slice))
		if sum < bound {
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

// describe sets the zero v to the state of a record.
func (r Rule) describe(v *Verdict, s *summary, now instant.Millis, b *bounds, granted, retrySlice int64) {
	v.At, v.Granted = now, granted
	minute, day, month := &v.Usages[Minute], &v.Usages[Day], &v.Usages[Month]
	minute.ResetAt, minute.ReleaseAt = now, now
	if s.sum > 0 {
		minute.ResetAt, minute.ReleaseAt = r.releaseAt(s.newest), r.releaseAt(s.oldest)
	}
	tomorrow := r.day(s.at) + 1
	day.ResetAt = instant.Millis(tomorrow * r.Day.Milliseconds())
	month.ResetAt = instant.Millis(max(tomorrow, int64(s.monthEnds)) * r.Day.Milliseconds())
	day.ReleaseAt, month.ReleaseAt = day.ResetAt, month.ResetAt
	for p, used := range s.used() {
		u, limit := &v.Usages[p], b.limits[p]
		u.Used = used
		if limit == noLimit {
			continue
		}
		u.Limit, u.Remaining = limit, max(0, limit-used)
		switch {
		case used+b.cost <= limit:
		case Policy(p) != Minute:
			u.RetryAt = u.ResetAt
		case b.cost > limit:
			u.RetryAt = r.releaseAt(s.at)
		default:
			u.RetryAt = r.releaseAt(retrySlice)
		}
	}
}

// Count returns n, limited to what a record can hold.
func Count(n int64) uint32 { return uint32(min(max(0, n), CountMax)) }

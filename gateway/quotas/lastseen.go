package quotas

import (
	"sync/atomic"
	"time"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/sharded"
)

const (
	// rememberFor is how long a refusal is repeated without asking Redis again. So a flood of
	// refused requests costs Redis one call a second, and a quota that was raised without this
	// gateway's knowledge is noticed within a second.
	rememberFor = time.Second
	// lastSeenMax bounds the remembered tenants, at about 200 bytes each. A tenant that was
	// forgotten here counts as new here; Redis still has its record.
	lastSeenMax = 1 << 18
)

// lastSeen keeps the last decision on each record. It is used for the headers of requests that are
// not metered, to repeat refusals without asking Redis, and to restore the use of the day and the
// month in a Redis that has lost it. It is safe for concurrent use.
type lastSeen struct {
	rule    quota.Rule
	records *sharded.Map[store.Name, decision]
	// refused has when the last refusal ends, by the first byte of a tenant's ID.
	refused [256]atomic.Int64
}

// decision is the last one on a record. It must not exceed 128 bytes: a map stores larger values
// behind a pointer.
type decision struct {
	version     uint64
	at          instant.Millis // when it was decided, or a little before, by the deciding clock; 0 = never
	sentAt      instant.Millis // when this gateway asked, by its own clock
	refuseUntil instant.Millis // by this gateway's clock; 0 = not refused
	limits      plan.Limits
	monthStarts uint8
	cost        uint16
	use         quota.Use
	resetAt     instant.Millis // of the minute, like the two below
	releaseAt   instant.Millis
	retryAt     instant.Millis
}

func newLastSeen(rule quota.Rule) *lastSeen {
	return &lastSeen{
		rule:    rule,
		records: sharded.New[store.Name, decision](lastSeenMax, func(n store.Name) byte { return n.Tenant[0] }),
	}
}

func (k *lastSeen) get(n store.Name) decision { return k.records.Get(n) }

// mayRefuse is true if a refusal of the tenant is remembered that holds at now. Another tenant's
// refusal may make it true as well.
func (k *lastSeen) mayRefuse(t id.Tenant, now instant.Millis) bool {
	return int64(now) < k.refused[t[0]].Load()
}

// refusal returns the remembered refusal that still holds for a, if there is one.
func (k *lastSeen) refusal(a store.Request, now instant.Millis) (v quota.Verdict, ok bool) {
	f := k.get(a.Name)
	if now >= f.refuseUntil || f.question(a.Name) != a {
		return v, false
	}
	return k.verdict(a, now), true
}

// store remembers the verdict of a trip that was sent and answered at these instants, unless that
// of a later decision is known: a tenant may be in two trips. Of two that overlap, the one with
// more use was decided later, whichever was sent first. refused says that some of the tenant's
// requests were not admitted.
func (k *lastSeen) store(a store.Request, sentAt, answeredAt instant.Millis, v *quota.Verdict, refused bool) {
	minute := &v.Usages[quota.Minute]
	f := decision{
		version:     a.Version,
		sentAt:      sentAt,
		limits:      a.Limits,
		monthStarts: a.MonthStarts,
		cost:        uint16(a.Cost),
		use:         k.rule.UseOf(v),
		resetAt:     minute.ResetAt,
		releaseAt:   minute.ReleaseAt,
		retryAt:     minute.RetryAt,
		// This assumes that Redis decided just before the answer arrived. Instants derived from it
		// are then never too early.
		at: v.At - max(0, answeredAt-sentAt),
	}
	retryAt := v.RetryAt() // 0: this record admits, and the other of key and tenant refused
	if refused && retryAt != 0 {
		// Counted from when the trip was sent, so that Redis is asked again one second after it, or
		// at RetryAt if that is earlier.
		f.refuseUntil = sentAt.Add(min(rememberFor, retryAt.Sub(v.At)))
	}
	s := k.records.Lock(a.Name)
	defer s.Unlock()
	if old := s.Entries[a.Name]; old.sentAt <= f.sentAt || f.hasMore(&old) {
		s.Put(a.Name, f, nil)
		if last := &k.refused[a.Tenant[0]]; int64(f.refuseUntil) > last.Load() {
			last.Store(int64(f.refuseUntil))
		}
	}
}

// verdict returns the known use at now, under the limits of a. It leaves out use that has been
// released since.
func (k *lastSeen) verdict(a store.Request, now instant.Millis) quota.Verdict {
	f := k.get(a.Name)
	if f.at == 0 {
		f = decision{at: now, sentAt: now}
	}
	d := store.Demand{Request: a, Known: quota.Use{Day: f.use.Day, Month: f.use.Month}}
	at := f.decidingAt(now)
	v := k.rule.Take(new(quota.Record), at, d.Quota())
	u := &v.Usages[quota.Minute]
	if f.use.Minute == 0 || at >= f.resetAt {
		return v
	}
	u.Used, u.ResetAt, u.ReleaseAt = f.use.Minute, f.resetAt, max(f.releaseAt, at)
	if u.Limit != 0 {
		u.Remaining = max(0, u.Limit-u.Used)
		if u.Remaining < max(1, a.Cost) {
			u.RetryAt = max(f.retryAt, u.ReleaseAt)
		}
	}
	return v
}

// question is what was asked of the record.
func (f *decision) question(n store.Name) store.Request {
	return store.Request{Name: n, Version: f.version, Limits: f.limits, MonthStarts: f.monthStarts, Cost: int64(f.cost)}
}

// decidingAt converts now to the deciding clock.
func (f *decision) decidingAt(now instant.Millis) instant.Millis { return f.at + now - f.sentAt }

// hasMore reports whether f has more use than other.
func (f *decision) hasMore(other *decision) bool {
	day, others := f.use.Day, other.use.Day
	return day.Ends > others.Ends || day.Ends == others.Ends && day.Used > others.Used
}

// known is what a demand tells Redis at now.
func (f *decision) known(now instant.Millis) quota.Use {
	use := f.use
	if f.decidingAt(now) >= f.resetAt {
		use.Minute = 0
	}
	return use
}

// hasPeriod reports whether the day or the month of the use still runs at now.
func (f *decision) hasPeriod(now instant.Millis, day time.Duration) bool {
	today := int64(f.decidingAt(now)) / day.Milliseconds()
	return f.use.Day.Used > 0 && f.use.Day.Ends > today ||
		f.limits.Month != 0 && f.use.Month.Used > 0 && f.use.Month.Ends > today
}

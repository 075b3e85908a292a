package quotas

import (
	"time"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/sharded"
)

const (
	// rememberFor is how long a refusal is repeated without asking Redis again. So a flood of refused requests costs Redis
	// one call a second, and a quota that was raised without this gateway's knowledge is noticed within a second.
	rememberFor = time.Second
	// lastSeenMax bounds the remembered tenants, at about 200 bytes each. A tenant that was forgotten here counts as new
	// here; Redis still has its record.
	lastSeenMax = 1 << 18
)

// lastSeen keeps the last decision on each tenant. It is used for the headers of requests that are not metered, to repeat
// refusals without asking Redis, and to restore the day's use in a Redis that has lost it. It is safe for concurrent use.
type lastSeen struct {
	rule    quota.Rule
	records *sharded.Map[store.Name, snapshot]
}

// snapshot is one decision. It must not exceed 128 bytes: a map stores larger values behind a pointer.
type snapshot struct {
	version     uint64
	at          instant.Millis // when it was decided, or a little before, by the deciding clock; 0 = never
	sentAt      instant.Millis // when this gateway asked, by its own clock
	refuseUntil instant.Millis // by this gateway's clock; 0 = not refused
	failedAt    instant.Millis // when Redis last failed to give figures to Current, by this gateway's clock; 0 = it has not failed
	dayIndex    int64
	minute, day quota.Usage
}

func newLastSeen(rule quota.Rule) *lastSeen {
	return &lastSeen{rule, sharded.New[store.Name, snapshot](lastSeenMax, func(n store.Name) byte { return n.Tenant[0] })}
}

func (k *lastSeen) get(n store.Name) snapshot { return k.records.Get(n) }

// put stores f unless the stored snapshot is newer: a tenant may be in two trips. Of two trips that overlap, the one with more use was
// decided later, whichever was sent first. Such trips are sent less than rememberFor apart: if the stored snapshot seems newer by more,
// the clock has stepped back since then.
func (k *lastSeen) put(n store.Name, f snapshot) {
	s := k.records.Lock(n)
	defer s.Unlock()
	old, ok := s.Entries[n]
	newer := old.sentAt.Sub(f.sentAt)
	if ok && newer < rememberFor && newer > 0 && !f.hasMore(&old) {
		return
	}
	s.Put(n, f, nil)
}

// fail records that Redis had no figures for Current at this instant. The next snapshot ends this.
func (k *lastSeen) fail(n store.Name, at instant.Millis) {
	s := k.records.Lock(n)
	defer s.Unlock()
	f := s.Entries[n]
	f.failedAt = at
	s.Put(n, f, nil)
}

// refusal returns the remembered refusal that still holds for a, if there is one.
func (k *lastSeen) refusal(a store.Request, now instant.Millis) (v quota.Verdict, ok bool) {
	f := k.get(a.Name())
	return f.refusal(a, now)
}

// store remembers the verdict of a trip that was sent and answered at these instants. refused says that some of the
// tenant's requests were not admitted.
func (k *lastSeen) store(a store.Request, sentAt, answeredAt instant.Millis, v *quota.Verdict, refused bool) {
	f := snapshot{
		version: a.Version, sentAt: sentAt, dayIndex: v.DayUse.Day, minute: v.Minute, day: v.Day,
		// This assumes that Redis decided just before the answer arrived. Instants derived from it are then never too
		// early.
		at: v.At - max(0, answeredAt-sentAt),
	}
	if refused {
		// Counted from when the trip was sent, so that Redis is asked again one second after it, or at RetryAt if that is
		// earlier.
		f.refuseUntil = sentAt.Add(min(rememberFor, v.RetryAt().Sub(v.At)))
	}
	k.put(a.Name(), f)
}

// verdict returns the known use at now, under the limits of a. It leaves out use that has been released since.
func (k *lastSeen) verdict(a store.Request, now instant.Millis) quota.Verdict {
	f := k.get(a.Name())
	if f.at == 0 || now < f.sentAt {
		f = snapshot{at: now, sentAt: now}
	}
	last := f.verdict(now)
	v := k.rule.Take(new(quota.Record), last.At, quota.Demand{Limits: a.Limits})
	lay(&v.Minute, last.Minute, last.At)
	lay(&v.Day, last.Day, last.At)
	v.DayUse.Used = v.Day.Used
	return v
}

// lay copies the use from last into unused, which is the policy's state without any use. If the use in last has expired
// at now, it copies nothing.
func lay(unused *quota.Usage, last quota.Usage, now instant.Millis) {
	if last.Used == 0 || now >= last.ResetAt {
		return
	}
	unused.Used, unused.ResetAt, unused.ReleaseAt = last.Used, last.ResetAt, max(last.ReleaseAt, now)
	if unused.Used >= unused.Limit {
		unused.RetryAt = max(last.RetryAt, unused.ReleaseAt)
	}
}

func (f *snapshot) limits() plan.Limits {
	return plan.Limits{Minute: f.minute.Limit, Day: f.day.Limit}
}

// verdict returns f as a verdict. Its instant is now, converted to the deciding clock.
func (f *snapshot) verdict(now instant.Millis) quota.Verdict {
	return quota.Verdict{
		At: f.at + now - f.sentAt, Minute: f.minute, Day: f.day, DayUse: f.dayUse(),
	}
}

// hasMore reports whether f has more use than other.
func (f *snapshot) hasMore(other *snapshot) bool {
	return f.dayIndex > other.dayIndex || f.dayIndex == other.dayIndex && f.day.Used > other.day.Used
}

// minuteUse returns the use that may still be in the window at now.
func (f *snapshot) minuteUse(now instant.Millis) int64 {
	if f.at+now-f.sentAt >= f.minute.ResetAt {
		return 0
	}
	return f.minute.Used
}

// refusal returns the refusal if it still holds for a: the limits and their version must be those of the refusal. A refusal
// ends if the clock steps back.
func (f *snapshot) refusal(a store.Request, now instant.Millis) (v quota.Verdict, ok bool) {
	if now >= f.refuseUntil || now < f.sentAt || f.version != a.Version || f.limits() != a.Limits {
		return v, false
	}
	return f.verdict(now), true
}

// dayUse returns the day's use that a demand carries to Redis.
func (f *snapshot) dayUse() quota.DayUse { return quota.DayUse{Day: f.dayIndex, Used: f.day.Used} }

// dayUseAt returns the use of the day in which now lies.
func (f *snapshot) dayUseAt(now instant.Millis, day time.Duration) int64 {
	if int64(f.at+now-f.sentAt)/day.Milliseconds() != f.dayIndex {
		return 0
	}
	return f.day.Used
}

package quotas

import (
	"sync"
	"sync/atomic"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
)

const (
	// rememberFor is how long a refusal is repeated without asking again: so a flood of refused requests costs Redis one
	// call a second, and a limit raised behind the gateway's back is noticed within one.
	rememberFor = time.Second
	// knownMax bounds the tenants whose figures are kept, at about 200 bytes each. Whoever is forgotten is as good as new
	// here: Redis still knows.
	knownMax = 1 << 18
)

// known keeps the last decision on each tenant: for headers of what is not metered, for refusals that need not be asked
// for again, and so that a Redis that lost the day's use learns it anew. It is safe for concurrent use.
type known struct {
	rule   quota.Rule
	shards [shards]struct {
		sync.Mutex
		figures map[id.Tenant]figures
		// By then no refusal of these tenants holds any more. It is read without the lock: where nobody is over a limit,
		// that is all the look that a request takes.
		refusedUntil atomic.Int64
	}
}

// figures are kept in the map itself, which holds values of up to 128 bytes without a pointer for the collector to
// chase.
type figures struct {
	version     uint64
	at          instant.Millis // the deciding clock's when it was asked, or a little before; 0 = forgotten
	sentAt      instant.Millis // this gateway's when it asked
	refuseUntil instant.Millis // by this gateway's clock; 0 = not refused
	dayIndex    int64
	minute, day quota.Usage
}

func newKnown(rule quota.Rule) *known {
	k := &known{rule: rule}
	for i := range k.shards {
		k.shards[i].figures = make(map[id.Tenant]figures)
	}
	return k
}

func (k *known) get(t id.Tenant) figures {
	s := &k.shards[t[0]%shards]
	s.Lock()
	defer s.Unlock()
	return s.figures[t]
}

// put keeps f unless something newer is known: a tenant may be in two trips, and may be forgotten during one. Trips do not
// overlap by as much as rememberFor: what seems newer by more was dated by a clock that has stepped back since.
func (k *known) put(t id.Tenant, f figures) {
	s := &k.shards[t[0]%shards]
	s.Lock()
	defer s.Unlock()
	old, ok := s.figures[t]
	newer := old.sentAt.Sub(f.sentAt)
	if ok && newer < rememberFor && (newer > 0 || newer == 0 && old.at == 0) {
		return
	}
	if !ok && len(s.figures) >= knownMax/shards {
		for other := range s.figures { // begins anywhere
			delete(s.figures, other)
			break
		}
	}
	s.figures[t] = f
	s.refusedUntil.Store(max(s.refusedUntil.Load(), int64(f.refuseUntil)))
}

// refusal returns the refusal that still holds for a, if any.
func (k *known) refusal(a Ask, now instant.Millis) (v quota.Verdict, ok bool) {
	if int64(now) >= k.shards[a.Tenant[0]%shards].refusedUntil.Load() {
		return v, false
	}
	f := k.get(a.Tenant)
	return f.refusal(a, now)
}

// store remembers what a trip that was sent and answered at these instants has decided; refused says that some of its
// requests were not admitted.
func (k *known) store(a Ask, sentAt, answeredAt instant.Millis, v *quota.Verdict, refused bool) {
	f := figures{
		version: a.Version, sentAt: sentAt, dayIndex: v.DayUse.Day, minute: v.Minute, day: v.Day,
		// As if it had been decided just before the answer: what is told of the future is then never too early.
		at: v.At - max(0, answeredAt-sentAt),
	}
	if refused {
		// From when it was sent, not answered: so the next call comes a second after this one and never past RetryAt.
		f.refuseUntil = sentAt.Add(min(rememberFor, v.RetryAt().Sub(v.At)))
	}
	k.put(a.Tenant, f)
}

// verdict is what is known of t at now, under these limits: use that has been released since is left out.
func (k *known) verdict(t id.Tenant, limits plan.Limits, now instant.Millis) quota.Verdict {
	f := k.get(t)
	if f.at == 0 || now < f.sentAt {
		f = figures{at: now, sentAt: now}
	}
	last := f.verdict(now)
	v := k.rule.Take(new(quota.Record), last.At, quota.Demand{Limits: limits})
	lay(&v.Minute, last.Minute, last.At)
	lay(&v.Day, last.Day, last.At)
	v.DayUse.Used = v.Day.Used
	return v
}

// lay lays last over unused, which is the policy's state without any use, as far as last still holds at now.
func lay(unused *quota.Usage, last quota.Usage, now instant.Millis) {
	if last.Used == 0 || now >= last.ResetAt {
		return
	}
	unused.Used, unused.ResetAt, unused.ReleaseAt = last.Used, last.ResetAt, max(last.ReleaseAt, now)
	if unused.Used >= unused.Limit {
		unused.RetryAt = max(last.RetryAt, unused.ReleaseAt)
	}
}

// forget drops what is known of t. A decision that was sent before says nothing of it any more.
func (k *known) forget(t id.Tenant, now instant.Millis) { k.put(t, figures{sentAt: now}) }

func (f *figures) limits() plan.Limits {
	return plan.Limits{Minute: f.minute.Limit, Day: f.day.Limit}
}

// verdict tells of f at now, by the deciding clock.
func (f *figures) verdict(now instant.Millis) quota.Verdict {
	return quota.Verdict{
		At: f.at + now - f.sentAt, Minute: f.minute, Day: f.day, DayUse: f.dayUse(),
	}
}

// refusal returns the refusal that still holds for a, if any: the limits and their version are those refused under. A
// clock that stepped back ends it.
func (f *figures) refusal(a Ask, now instant.Millis) (v quota.Verdict, ok bool) {
	if now >= f.refuseUntil || now < f.sentAt || f.version != a.Version || f.limits() != a.Limits {
		return v, false
	}
	return f.verdict(now), true
}

// dayUse is what a demand tells Redis.
func (f *figures) dayUse() quota.DayUse { return quota.DayUse{Day: f.dayIndex, Used: f.day.Used} }

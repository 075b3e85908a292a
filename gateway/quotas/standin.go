package quotas

import (
	"sync"
	"sync/atomic"
	"time"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
)

// standIn decides while Redis does not answer: it stands in for Redis. This gateway admits its
// share of what was left of each limit at its last decision on the tenant. It counts this in its
// own windows, and remembers what it admitted until Redis has charged it.
//
// The share of a policy depends on what was known when Redis stopped answering:
//
//	max(1, charged + ⌊(limit − known use) ÷ gateways⌋)
//
// Known use is what Redis last told, and what gateways that left have admitted. It counts until the
// end of its window, day or month; then the share is limit ÷ gateways. Charged is what this one
// admitted in an earlier outage of the same window, day or month, if Redis has counted it since. It
// is part of both the known use and the use here, and must not be counted against the tenant twice.
// The number of gateways is that of fleet. A process that Redis has never answered has the smallest
// share, 1: it does not know what was admitted before.
//
// Until Redis decides again, the shares of all gateways add up to at most one limit. With what
// Redis admitted before, every window admits at most two limits. If Redis fails again before it
// decides, what it has charged counts at once: the shares grow, and together with what was charged
// they may exceed one limit. Two limits are enough then too, because a share grows only by a part
// of what Redis has left of the limit. Decision 5 states the four conditions of this bound.
//
// It is safe for concurrent use. One lock is enough: a decision here takes a microsecond.
type standIn struct {
	memory *store.Memory
	now    func(id.Tenant) instant.Millis // by the clock of the tenant's Redis

	mu         sync.Mutex
	unreported map[store.Name]unreported
	size       atomic.Int64 // of unreported; lets decisions by Redis skip the lock
	changes    atomic.Int64 // of unreported; an outageRecord is saved if they have changed
}

// unreported is the use of a record that was admitted here and that Redis does not count yet.
type unreported struct {
	next quota.Use // the next demand carries it
	sent quota.Use // a demand under way or unanswered carries it, or Redis has charged it and does not decide yet
}

func (u *unreported) all() quota.Use { return plus(u.next, u.sent) }

// lapse drops what is older than the current window, day or month. here is the use of these.
func (u *unreported) lapse(here quota.Use) {
	for _, spent := range [...]*quota.Use{&u.next, &u.sent} {
		spent.Minute = min(spent.Minute, here.Minute)
		if spent.Day.Ends != here.Day.Ends {
			spent.Day = quota.Period{}
		}
		if spent.Month.Ends < here.Day.Ends {
			spent.Month = quota.Period{}
		}
	}
}

// retryAfter is the wait that a refused request gets: Redis may be back at any time.
const retryAfter = time.Second

func newStandIn(memory *store.Memory, now func(id.Tenant) instant.Millis) *standIn {
	return &standIn{memory: memory, now: now, unreported: make(map[store.Name]unreported)}
}

// admit decides one request if want is 1. If it is 0, admit returns the figures on which it would
// decide. known returns the last known use of a record. The use in the verdict is the known use and
// what this gateway has admitted since. A key's own limits have shares too.
func (o *standIn) admit(
	c *store.Call, want int64, known func(store.Request) quota.Verdict, gateways int64,
) quota.Verdict {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.now(c.Tenant)
	tenant := o.ask(c.Request, want, known, gateways, now)
	if !c.IsCapped() {
		return o.record(&tenant, o.memory.Take(now, &tenant.demand))
	}
	own := o.ask(c.Own(), want, known, gateways, now)
	ofKey, ofTenant := o.memory.TakeBoth(now, &own.demand, &tenant.demand)
	ofKey, ofTenant = o.record(&own, ofKey), o.record(&tenant, ofTenant)
	ofTenant.Join(&ofKey)
	return ofTenant
}

// question is what one record is asked in an outage.
type question struct {
	demand store.Demand  // under this gateway's shares of the limits
	whole  plan.Limits   // the limits themselves
	last   quota.Verdict // the known use
	own    unreported
}

// ask returns the question to a record. The caller must hold mu.
func (o *standIn) ask(
	r store.Request, want int64, known func(store.Request) quota.Verdict, gateways int64, now instant.Millis,
) question {
	here := o.memory.Take(now, &store.Demand{Request: r})
	a := question{
		demand: store.Demand{Request: r, Want: want},
		whole:  r.Limits,
		last:   known(r),
		own:    o.unreported[r.Name],
	}
	use := o.memory.UseOf(&here)
	a.own.lapse(use)
	open, last := a.own.all(), &a.last.Usages
	a.demand.Limits = plan.Limits{
		Minute: shareOf(a.whole.Minute, last[quota.Minute].Used, use.Minute-open.Minute, gateways),
		Day:    shareOf(a.whole.Day, last[quota.Day].Used, use.Day.Used-open.Day.Used, gateways),
		Month:  shareOf(a.whole.Month, last[quota.Month].Used, use.Month.Used-open.Month.Used, gateways),
	}
	return a
}

// record remembers what was granted, and turns the verdict on this gateway's shares into one on the
// whole limits. The caller must hold mu.
func (o *standIn) record(a *question, v quota.Verdict) quota.Verdict {
	if v.Granted == 1 {
		units, here := max(1, a.demand.Cost), o.memory.UseOf(&v)
		spent := quota.Use{
			Minute: units,
			Day:    quota.Period{Ends: here.Day.Ends, Used: units},
			Month:  quota.Period{Ends: here.Month.Ends, Used: units},
		}
		a.own.next = plus(a.own.next, spent)
	}
	o.set(a.demand.Name, a.own)
	v.Degraded = true
	open := a.own.all()
	for p, more := range [...]int64{open.Minute, open.Day.Used, open.Month.Used} {
		u, last := &v.Usages[p], &a.last.Usages[p]
		if u.RetryAt != 0 {
			u.RetryAt = v.At.Add(retryAfter) // the share does not tell when Redis would admit more
		}
		if last.Used > 0 {
			if u.Used == 0 || last.ReleaseAt < u.ReleaseAt {
				u.ReleaseAt = last.ReleaseAt
			}
			u.ResetAt = max(u.ResetAt, last.ResetAt)
		}
		u.Used = last.Used + more
	}
	v.Usages[quota.Minute].Limit = a.whole.Minute
	v.Usages[quota.Day].Limit = a.whole.Day
	v.Usages[quota.Month].Limit = a.whole.Month
	return v
}

// shareOf returns how much of a limit one gateway may admit in its own window or period. 0: the
// policy is not set.
func shareOf(limit, known, charged, gateways int64) int64 {
	if limit == 0 {
		return 0
	}
	return max(1, max(0, charged)+max(0, limit-known)/gateways)
}

// collect returns the unreported use of a tenant that no demand carries. The caller puts it into a
// demand, and passes that demand's outcome to settled.
func (o *standIn) collect(t store.Name) quota.Use {
	if o.size.Load() == 0 {
		return quota.Use{}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	u := o.current(t)
	spent := u.next
	u.sent = u.all()
	u.next = quota.Use{}
	o.set(t, u)
	return spent
}

// settled ends a demand that carried spent: Redis has charged it, or not.
func (o *standIn) settled(t store.Name, spent quota.Use, charged bool) {
	if spent == (quota.Use{}) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	u := o.unreported[t]
	u.sent = minus(u.sent, spent)
	if !charged {
		u.next = plus(u.next, spent)
	}
	o.set(t, u)
}

// tenants returns those with unreported use, or only those with some that no demand carries yet.
func (o *standIn) tenants(unsentOnly bool) (all []store.Name) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for t, u := range o.unreported {
		if !unsentOnly || u.next != (quota.Use{}) {
			all = append(all, t)
		}
	}
	return all
}

// entries returns the unreported use of all tenants. It locks once for each, so that decisions
// continue meanwhile.
func (o *standIn) entries() (all []entry) {
	for _, t := range o.tenants(false) {
		o.mu.Lock()
		u := o.current(t)
		o.mu.Unlock()
		if spent := u.all(); spent != (quota.Use{}) {
			all = append(all, entryOf(t, spent))
		}
	}
	return all
}

// restore counts requests from before a restart, or of a gateway that has left, as use of the share
// here, and as unreported unless another gateway reports them. The use in the window is dated at
// the instant of the save, which is later than the use itself. So the share does not grow too
// early.
func (o *standIn) restore(e entry, savedAt instant.Millis, isUnreported bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	spent, name := e.use(), e.name()
	o.memory.Take(savedAt, &store.Demand{Request: store.Request{Name: name}, Unreported: spent})
	if isUnreported {
		u := o.unreported[name]
		u.next = plus(u.next, spent)
		o.set(name, u)
	}
}

// current returns the unreported use of t without what has lapsed. The caller must hold mu.
func (o *standIn) current(t store.Name) unreported {
	u := o.unreported[t]
	if u != (unreported{}) {
		here := o.memory.Take(o.now(t.Tenant), &store.Demand{Request: store.Request{Name: t}})
		u.lapse(o.memory.UseOf(&here))
		o.set(t, u)
	}
	return u
}

// set stores unreported use, or deletes it if there is none. The caller must hold mu.
func (o *standIn) set(t store.Name, u unreported) {
	if u != o.unreported[t] {
		o.changes.Add(1)
	}
	if u == (unreported{}) {
		delete(o.unreported, t)
	} else {
		o.unreported[t] = u
	}
	o.size.Store(int64(len(o.unreported)))
}

// plus adds more to spent. If their days or months differ, the use of the later one remains.
func plus(spent, more quota.Use) quota.Use {
	return quota.Use{
		Minute: spent.Minute + more.Minute,
		Day:    later(spent.Day, more.Day),
		Month:  later(spent.Month, more.Month),
	}
}

func later(a, b quota.Period) quota.Period {
	switch {
	case a.Ends == b.Ends:
		a.Used += b.Used
	case a.Ends < b.Ends:
		return b
	}
	return a
}

// minus subtracts less from spent. It stops at zero, because a part may have lapsed since.
func minus(spent, less quota.Use) quota.Use {
	spent.Minute = max(0, spent.Minute-less.Minute)
	spent.Day, spent.Month = left(spent.Day, less.Day), left(spent.Month, less.Month)
	return spent
}

func left(of, less quota.Period) quota.Period {
	if of.Ends == less.Ends {
		of.Used = max(0, of.Used-less.Used)
	}
	if of.Used == 0 {
		return quota.Period{}
	}
	return of
}

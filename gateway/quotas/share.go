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

// localShare decides while Redis does not answer. This gateway admits its share of what was left of each limit at its last
// decision on the tenant. It counts this in its own windows, and remembers what it admitted until Redis has charged it.
//
// The share of a policy depends on what was known when Redis stopped answering:
//
//	max(1, charged + ⌊(limit − known use) ÷ gateways⌋)
//
// Known use counts until the end of its window or day; then the share is limit ÷ gateways. Charged is what this gateway
// admitted in an earlier outage of the same window and Redis has counted since. It is part of both the known use and the
// use here, and must not be counted against the tenant twice. The number of gateways is that of fleet. A process that Redis has never
// answered has the smallest share, 1: it does not know what was admitted before.
//
// Until Redis decides again, the shares of all gateways add up to at most one limit. With what Redis admitted before, every
// window admits at most 2 × the limit. If Redis fails again before it decides, what it has charged counts at once: the shares grow,
// and together with what was charged they may exceed one limit. The 2 × hold then too: a share grows only by a part of what Redis
// has left of the limit. Decision 5 states the four conditions of this bound.
//
// It is safe for concurrent use. One lock is enough: a decision here takes a microsecond.
type localShare struct {
	memory *store.Memory
	now    func(id.Tenant) instant.Millis // by the clock of the tenant's Redis

	mu         sync.Mutex
	unreported map[store.Name]unreported
	size       atomic.Int64 // of unreported; lets decisions by Redis skip the lock
	changes    atomic.Int64 // of unreported; an outageRecord is saved if they have changed
}

// unreported is the use of a tenant that was admitted here and that Redis does not count yet.
type unreported struct {
	next quota.Spent // the next demand carries it
	sent quota.Spent // a demand under way or unanswered carries it, or Redis has charged it and does not decide yet
}

func (u *unreported) all() quota.Spent { return plus(u.next, u.sent) }

// lapse drops what is older than the current window or the current day. The verdict here has the use of both.
func (u *unreported) lapse(here quota.Verdict) {
	for _, spent := range [...]*quota.Spent{&u.next, &u.sent} {
		spent.Minute = min(spent.Minute, here.Minute.Used)
		if spent.Day.Day != here.DayUse.Day {
			spent.Day = quota.DayUse{}
		}
	}
}

// retryAfter is the wait that a refused request gets: Redis may be back at any time.
const retryAfter = time.Second

func newLocalShare(memory *store.Memory, now func(id.Tenant) instant.Millis) *localShare {
	return &localShare{memory: memory, now: now, unreported: make(map[store.Name]unreported)}
}

// admit decides one request if want is 1. If it is 0, admit returns the figures on which it would decide. last is the tenant's last
// known use. The use in the verdict is the known use and what this gateway has admitted since.
func (o *localShare) admit(a store.Request, want int64, last quota.Verdict, gateways int64) quota.Verdict {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.now(a.Tenant)
	d := store.Demand{Request: a}
	here := o.memory.Take(now, &d)
	own := o.unreported[a.Name()]
	own.lapse(here)
	open := own.all()

	d.Want = want
	d.Limits = plan.Limits{
		Minute: shareOf(a.Limits.Minute, last.Minute.Used, here.Minute.Used-open.Minute, gateways),
		Day:    shareOf(a.Limits.Day, last.Day.Used, here.Day.Used-open.Day.Used, gateways),
	}
	v := o.memory.Take(now, &d)
	if v.Granted == 1 {
		own.next = plus(own.next, quota.Spent{Minute: 1, Day: quota.DayUse{Day: v.DayUse.Day, Used: 1}})
	}
	o.set(a.Name(), own)
	v.Degraded = true
	for _, u := range []*quota.Usage{&v.Minute, &v.Day} {
		if u.RetryAt != 0 {
			u.RetryAt = v.At.Add(retryAfter) // the share does not tell when Redis would admit more
		}
	}
	v.Admits = [2]int64{v.Minute.Remaining(), v.Day.Remaining()}
	open = own.all()
	show(&v.Minute, a.Limits.Minute, &last.Minute, open.Minute)
	show(&v.Day, a.Limits.Day, &last.Day, open.Day.Used)
	return v
}

// shareOf returns how much of a limit one gateway may admit in its own window.
func shareOf(limit, known, charged, gateways int64) int64 {
	return max(1, max(0, charged)+max(0, limit-known)/gateways)
}

// show turns the use of a share into that of the whole limit: the last known use, and more that was admitted here since.
func show(u *quota.Usage, limit int64, last *quota.Usage, more int64) {
	if last.Used > 0 {
		if u.Used == 0 || last.ReleaseAt < u.ReleaseAt {
			u.ReleaseAt = last.ReleaseAt
		}
		u.ResetAt = max(u.ResetAt, last.ResetAt)
	}
	u.Limit, u.Used = limit, last.Used+more
}

// collect returns the unreported use of a tenant that no demand carries. The caller puts it into a demand, and passes that demand's
// outcome to settled.
func (o *localShare) collect(t store.Name) quota.Spent {
	if o.size.Load() == 0 {
		return quota.Spent{}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	u := o.current(t)
	spent := u.next
	u.next, u.sent = quota.Spent{}, u.all()
	o.set(t, u)
	return spent
}

// settled ends a demand that carried spent: Redis has charged it, or not.
func (o *localShare) settled(t store.Name, spent quota.Spent, charged bool) {
	if spent == (quota.Spent{}) {
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
func (o *localShare) tenants(unsentOnly bool) (all []store.Name) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for t, u := range o.unreported {
		if !unsentOnly || u.next != (quota.Spent{}) {
			all = append(all, t)
		}
	}
	return all
}

// entry is the unreported use of a tenant as it is saved.
type entry struct {
	Tenant  id.Tenant      `json:"tenant"`
	Since   instant.Millis `json:"since,omitzero"` // see store.Name
	Minute  int64          `json:"minute"`
	Day     int64          `json:"day"` // days since the Unix epoch
	DayUsed int64          `json:"dayUsed"`
}

func (e *entry) name() store.Name { return store.Name{Tenant: e.Tenant, Since: e.Since} }

// entries returns the unreported use of all tenants. It locks once for each, so that decisions continue meanwhile.
func (o *localShare) entries() (all []entry) {
	for _, t := range o.tenants(false) {
		o.mu.Lock()
		u := o.current(t)
		o.mu.Unlock()
		if spent := u.all(); spent != (quota.Spent{}) {
			all = append(all, entry{t.Tenant, t.Since, spent.Minute, spent.Day.Day, spent.Day.Used})
		}
	}
	return all
}

// restore counts requests from before a restart, or of a gateway that has left, as use of the share here, and as unreported unless
// another gateway reports them. The use in the window is dated at the instant of the save, which is later than the use itself. So
// the share is not admitted again too early.
func (o *localShare) restore(e entry, savedAt instant.Millis, isUnreported bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	spent, name := quota.Spent{Minute: e.Minute, Day: quota.DayUse{Day: e.Day, Used: e.DayUsed}}, e.name()
	o.memory.Take(savedAt, &store.Demand{Request: store.Request{Tenant: name.Tenant, Since: name.Since}, Spent: spent})
	if isUnreported {
		u := o.unreported[name]
		u.next = plus(u.next, spent)
		o.set(name, u)
	}
}

// current returns the unreported use of t without what has lapsed. The caller must hold mu.
func (o *localShare) current(t store.Name) unreported {
	u := o.unreported[t]
	if u != (unreported{}) {
		u.lapse(o.memory.Take(o.now(t.Tenant), &store.Demand{Request: store.Request{Tenant: t.Tenant, Since: t.Since}}))
		o.set(t, u)
	}
	return u
}

// set stores unreported use, or deletes it if there is none. The caller must hold mu.
func (o *localShare) set(t store.Name, u unreported) {
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

// plus adds more to spent. If their days differ, the use of the later day remains.
func plus(spent, more quota.Spent) quota.Spent {
	spent.Minute += more.Minute
	switch {
	case spent.Day.Day == more.Day.Day:
		spent.Day.Used += more.Day.Used
	case spent.Day.Day < more.Day.Day:
		spent.Day = more.Day
	}
	return spent
}

// minus subtracts less from spent. It stops at zero, because a part may have lapsed since.
func minus(spent, less quota.Spent) quota.Spent {
	spent.Minute = max(0, spent.Minute-less.Minute)
	if spent.Day.Day == less.Day.Day {
		spent.Day.Used = max(0, spent.Day.Used-less.Day.Used)
	}
	if spent.Day.Used == 0 {
		spent.Day = quota.DayUse{}
	}
	return spent
}

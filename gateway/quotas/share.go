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
//	max(1, charged + ⌊(limit − known use) ÷ registered gateways⌋)
//
// Known use counts until the end of its window or day; then the share is limit ÷ gateways. Charged is what this gateway
// admitted in an earlier outage of the same window and Redis has counted since. It is part of both the known use and the
// use here, and must not be counted against the tenant twice.
//
// A process that Redis has never answered has the smallest share, 1: it does not know what was admitted before.
//
// Until Redis decides again, the shares of all gateways add up to at most one limit. With what Redis admitted before, every
// window admits at most 2 × the limit. If Redis fails again before it decides, what it has charged counts at once: the shares grow,
// and together with what was charged they may exceed one limit. The 2 × hold then too: a share grows only by a part of what Redis
// has left of the limit. All that holds if
//
//   - the number of gateways is right, or too large, and not larger than the limit;
//   - Redis keeps its counts, or loses them once while a gateway that has seen them still runs;
//   - all gateways notice within probeInterval of one another that Redis is back, so that Redis has all their debts when it
//     decides again (see package redis);
//   - a gateway that is restarted finds its file (see outageRecord). Otherwise each restart adds one request.
//
// It is safe for concurrent use. One lock is enough: a decision here takes a microsecond.
type localShare struct {
	memory *store.Memory

	mu      sync.Mutex
	debt    map[store.Name]debt
	size    atomic.Int64 // of debt; lets decisions by Redis skip the lock
	changes atomic.Int64 // of debts; an outageRecord is saved if they have changed
}

// debt counts a tenant's requests that were admitted here and that Redis has not confirmed:
//
//	owed  the next demand carries it
//	sent  a demand under way or unanswered carries it, or Redis has charged it and does not decide yet
type debt struct {
	owed, sent quota.Spent
}

// unreported returns the part of the use here that Redis has not confirmed.
func (d *debt) unreported() quota.Spent { return plus(d.owed, d.sent) }

// lapse drops debts that are older than the current window or the current day. The verdict here has the use of both.
func (d *debt) lapse(here quota.Verdict) {
	for _, spent := range [...]*quota.Spent{&d.owed, &d.sent} {
		spent.Minute = min(spent.Minute, here.Minute.Used)
		if spent.Day.Day != here.DayUse.Day {
			spent.Day = quota.DayUse{}
		}
	}
}

// retryAfter is the wait that a refused request gets: Redis may be back at any time.
const retryAfter = time.Second

func newLocalShare(memory *store.Memory) *localShare {
	return &localShare{memory: memory, debt: make(map[store.Name]debt)}
}

// admit decides one request if want is 1. If it is 0, admit returns the figures on which it would decide. last is the tenant's last
// known use.
func (o *localShare) admit(a store.Request, want int64, last quota.Verdict, gateways int64) quota.Verdict {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.memory.Now()
	d := store.Demand{Request: a}
	here := o.memory.Take(now, &d)
	debt := o.debt[a.Name()]
	debt.lapse(here)
	unreported := debt.unreported()

	d.Want = want
	d.Limits = plan.Limits{
		Minute: shareOf(a.Limits.Minute, last.Minute.Used, here.Minute.Used-unreported.Minute, gateways),
		Day:    shareOf(a.Limits.Day, last.Day.Used, here.Day.Used-unreported.Day.Used, gateways),
	}
	v := o.memory.Take(now, &d)
	if v.Granted == 1 {
		debt.owed = plus(debt.owed, quota.Spent{Minute: 1, Day: quota.DayUse{Day: v.DayUse.Day, Used: 1}})
	}
	o.set(a.Name(), debt)
	v.Degraded = true
	if v.Granted < want || v.RetryAt() != 0 {
		// The share does not tell when Redis would admit more.
		v.Minute.RetryAt, v.Day.RetryAt = v.At.Add(retryAfter), 0
	}
	show(&v.Minute, a.Limits.Minute)
	show(&v.Day, a.Limits.Day)
	return v
}

// shareOf returns how much of a limit one gateway may admit in its own window.
func shareOf(limit, known, charged, gateways int64) int64 {
	return max(1, max(0, charged)+max(0, limit-known)/gateways)
}

// show reports a share as if it were the whole limit, with the same number of requests remaining.
func show(u *quota.Usage, limit int64) {
	u.Used = limit - min(limit, u.Remaining())
	u.Limit = limit
}

// collect returns what a tenant owes. The caller puts it into a demand, and passes that demand's outcome to settled.
func (o *localShare) collect(t store.Name) quota.Spent {
	if o.size.Load() == 0 {
		return quota.Spent{}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	debt, ok := o.current(t)
	if !ok {
		return quota.Spent{}
	}
	owed := debt.owed
	debt.sent, debt.owed = plus(debt.sent, owed), quota.Spent{}
	o.set(t, debt)
	return owed
}

// settled ends a demand that carried spent: Redis has charged it, or not.
func (o *localShare) settled(t store.Name, spent quota.Spent, charged bool) {
	if spent == (quota.Spent{}) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	debt := o.debt[t]
	debt.sent = minus(debt.sent, spent)
	if !charged {
		debt.owed = plus(debt.owed, spent)
	}
	o.set(t, debt)
}

// owed returns the tenants with debts that the next demand carries.
func (o *localShare) owed() []store.Name {
	return o.tenants(func(d debt) bool { return d.owed != (quota.Spent{}) })
}

func (o *localShare) tenants(which func(debt) bool) (tenants []store.Name) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for t, debt := range o.debt {
		if which(debt) {
			tenants = append(tenants, t)
		}
	}
	return tenants
}

// unreported is the use of a tenant that Redis has not confirmed.
type unreported struct {
	Tenant  id.Tenant      `json:"tenant"`
	Since   instant.Millis `json:"since,omitzero"` // see store.Name
	Minute  int64          `json:"minute"`
	Day     int64          `json:"day"` // days since the Unix epoch
	DayUsed int64          `json:"dayUsed"`
}

// unreported returns the debts of all tenants. It locks once for each, so that decisions continue meanwhile.
func (o *localShare) unreported() (all []unreported) {
	for _, t := range o.tenants(func(debt) bool { return true }) {
		o.mu.Lock()
		if debt, ok := o.current(t); ok {
			spent := debt.unreported()
			all = append(all, unreported{t.Tenant, t.Since, spent.Minute, spent.Day.Day, spent.Day.Used})
		}
		o.mu.Unlock()
	}
	return all
}

// restore counts requests from before a restart, or of a gateway that has left, as use of the share here. If isOwed, they are also a
// debt. The use in the window is dated at the instant of the save, which is later than the use itself. So the share is not admitted
// again too early.
func (o *localShare) restore(before unreported, savedAt instant.Millis, isOwed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	spent := quota.Spent{Minute: before.Minute, Day: quota.DayUse{Day: before.Day, Used: before.DayUsed}}
	name := store.Name{Tenant: before.Tenant, Since: before.Since}
	o.memory.Take(min(savedAt, o.memory.Now()), &store.Demand{Request: store.Request{Tenant: name.Tenant, Since: name.Since}, Spent: spent})
	if isOwed {
		debt := o.debt[name]
		debt.owed = plus(debt.owed, spent)
		o.set(name, debt)
		o.current(name)
	}
}

// current returns the debt of t without what has lapsed. The caller must hold mu.
func (o *localShare) current(t store.Name) (d debt, ok bool) {
	if d, ok = o.debt[t]; !ok {
		return d, false
	}
	d.lapse(o.memory.Take(o.memory.Now(), &store.Demand{Request: store.Request{Tenant: t.Tenant, Since: t.Since}}))
	o.set(t, d)
	return d, d != debt{}
}

// sweep drops debts of past days. It runs at the start of an outage, so that there are never many more debts than tenants
// in a day.
func (o *localShare) sweep(day int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for t, one := range o.debt {
		if one.unreported().Day.Day < day {
			o.set(t, debt{})
		}
	}
}

// set stores a debt, or deletes it if it is zero. The caller must hold mu.
func (o *localShare) set(t store.Name, d debt) {
	if d != o.debt[t] {
		o.changes.Add(1)
	}
	if d == (debt{}) {
		delete(o.debt, t)
	} else {
		o.debt[t] = d
	}
	o.size.Store(int64(len(o.debt)))
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

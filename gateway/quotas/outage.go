package quotas

import (
	"context"
	"sync"
	"sync/atomic"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
)

// outage decides while Redis does not: this gateway admits its share of what was left of each limit when it last
// heard of it, in windows of its own, and remembers what it admitted until Redis has been told.
//
// The share of a policy is fixed by what was known when Redis fell silent:
//
//	max(1, charged + ⌊(limit − known use) ÷ live gateways⌋)
//
// Known use counts until the window or the day in which it was made is over; from then on the share is limit ÷
// gateways. Charged is what this gateway admitted in an earlier outage of the same window and Redis has counted
// since: it is part of both the known use and the use here, and so must not be held against the tenant twice.
//
// The shares of all gateways come to no more than one limit, so an outage admits, on top of the limit that Redis may
// have admitted before or may admit after it, at most one limit more: in every window at most 2 × the limit, provided
// that the number of gateways is right and no larger than the limit, and a request a gateway where the least share decides
// and Redis loses its counts as well. What hits one gateway harder than the others is refused from its share on.
//
// It is safe for concurrent use. One lock is enough: a decision here takes a microsecond.
type outage struct {
	memory *memory

	mu   sync.Mutex
	debt map[id.Tenant]debt
	size atomic.Int64 // of debt, so that decisions by Redis need not take the lock
}

// debt is what a tenant was admitted here that Redis has not said to have counted.
type debt struct {
	owed   quota.Spent // Redis certainly has not: to be charged in its next decision
	sent   quota.Spent // it is being told
	unsure quota.Spent // it may have, in a batch that was not answered: never charged again
}

// uncharged is what of the use here is not known to be part of Redis's.
func (d *debt) uncharged() quota.Spent { return plus(plus(d.owed, d.sent), d.unsure) }

// lapse drops what no longer lies in the window and the day that here tells of.
func (d *debt) lapse(here quota.Verdict) {
	for _, spent := range [...]*quota.Spent{&d.owed, &d.sent, &d.unsure} {
		spent.Minute = min(spent.Minute, here.Minute.Used)
		if spent.Day.Day != here.DayUse.Day {
			spent.Day = quota.DayUse{}
		}
	}
}

func newOutage(memory *memory) *outage {
	return &outage{memory: memory, debt: make(map[id.Tenant]debt)}
}

// take decides one request. Last is what is known of the tenant; unsure says that a batch with this very request may
// have been executed.
func (o *outage) take(a Ask, last quota.Verdict, gateways int64, unsure bool) quota.Verdict {
	return o.decide(a, 1, last, gateways, unsure)
}

// peek tells what take would decide from.
func (o *outage) peek(a Ask, last quota.Verdict, gateways int64) quota.Verdict {
	return o.decide(a, 0, last, gateways, false)
}

func (o *outage) decide(a Ask, want int64, last quota.Verdict, gateways int64, unsure bool) quota.Verdict {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := instant.Of(o.memory.clock())
	d := demand{Ask: a}
	here := o.memory.take(now, &d)
	debt := o.debt[a.Tenant]
	debt.lapse(here)
	uncharged := debt.uncharged()

	d.Want = want
	d.Limits = plan.Limits{
		Minute: share(a.Limits.Minute, last.Minute.Used, here.Minute.Used-uncharged.Minute, gateways),
		Day:    share(a.Limits.Day, last.Day.Used, here.Day.Used-uncharged.Day.Used, gateways),
	}
	v := o.memory.take(now, &d)
	if v.Granted == 1 {
		spent := &debt.owed
		if unsure {
			spent = &debt.unsure
		}
		*spent = plus(*spent, quota.Spent{Minute: 1, Day: quota.DayUse{Day: v.DayUse.Day, Used: 1}})
	}
	o.set(a.Tenant, debt)
	show(&v.Minute, a.Limits.Minute)
	show(&v.Day, a.Limits.Day)
	return v
}

// share is how much one of so many gateways may admit of a policy in its own window.
func share(limit, known, charged, gateways int64) int64 {
	return max(1, max(0, charged)+max(0, limit-known)/gateways)
}

// show makes a share look like the limit that it is part of, with as much remaining.
func show(u *quota.Usage, limit int64) {
	u.Used = limit - min(limit, u.Remaining())
	u.Limit = limit
}

// collect returns what t owes, to be charged by a demand whose fate settle is told.
func (o *outage) collect(t id.Tenant) quota.Spent {
	if o.size.Load() == 0 {
		return quota.Spent{}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	debt, ok := o.debt[t]
	if !ok {
		return quota.Spent{}
	}
	d := demand{Ask: Ask{Tenant: t}}
	debt.lapse(o.memory.take(instant.Of(o.memory.clock()), &d))
	owed := debt.owed
	debt.sent, debt.owed = plus(debt.sent, owed), quota.Spent{}
	o.set(t, debt)
	return owed
}

// settle is told what became of a demand that was to charge spent: it is paid, owed again, or may be paid.
func (o *outage) settle(t id.Tenant, spent quota.Spent, became fate) {
	if spent == (quota.Spent{}) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	debt := o.debt[t]
	debt.sent = minus(debt.sent, spent)
	switch became {
	case undecided:
		debt.owed = plus(debt.owed, spent)
	case unsure:
		debt.unsure = plus(debt.unsure, spent)
	}
	o.set(t, debt)
}

// forget drops what t was admitted here.
func (o *outage) forget(t id.Tenant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.set(t, debt{})
	_ = o.memory.forget(context.Background(), t) // cannot fail
}

// sweep drops debts of past days, at the beginning of an outage, so that they never outnumber the tenants of a day by
// much.
func (o *outage) sweep(day int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for t, debt := range o.debt {
		if debt.uncharged().Day.Day < day {
			delete(o.debt, t)
		}
	}
	o.size.Store(int64(len(o.debt)))
}

// set wants mu held.
func (o *outage) set(t id.Tenant, d debt) {
	if d == (debt{}) {
		delete(o.debt, t)
	} else {
		o.debt[t] = d
	}
	o.size.Store(int64(len(o.debt)))
}

// plus adds more to spent; where their days differ, the later one remains.
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

// minus takes less from spent, as far as it has not lapsed since.
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

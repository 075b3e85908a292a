package quotas

import (
	"sync"
	"sync/atomic"
	"time"

	"petgate/gateway/quotas/redis"
	"petgate/gateway/quotas/store"
	"petgate/shared/core/id"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
)

// localShare decides while Redis does not answer. This gateway admits its share of what was left of each limit when it last
// heard of the tenant, in windows of its own. It remembers what it admitted until Redis has charged it.
//
// The share of a policy is fixed by what was known when Redis fell silent:
//
//	max(1, charged + ⌊(limit − known use) ÷ registered gateways⌋)
//
// Known use counts until the window or the day in which it was made is over; from then on the share is limit ÷
// gateways. Charged is what this gateway admitted in an earlier outage of the same window and Redis has counted
// since: it is part of both the known use and the use here, and so must not be held against the tenant twice.
//
// A process that has never heard of Redis has the least share, 1: it knows nothing of what was admitted before.
//
// The shares of all gateways come to no more than one limit, so an outage admits, on top of the limit that Redis may have
// admitted before or may admit after it, at most one limit more: in every window at most 2 × the limit. That holds if
//
//   - the number of gateways is right, or too large, and not larger than the limit;
//   - Redis keeps its counts, or loses them once and a gateway that has seen them still runs;
//   - all gateways find Redis back within probeInterval of one another, so that all have told it their debts when it decides
//     again (see package redis);
//   - no gateway is restarted: each restart adds one request, and what the process had not told Redis.
//
// It is safe for concurrent use. One lock is enough: a decision here takes a microsecond.
type localShare struct {
	memory *store.Memory

	mu   sync.Mutex
	debt map[id.Tenant]debt
	size atomic.Int64 // of debt, so that decisions by Redis need not take the lock
}

// debt is what a tenant was admitted here and Redis has not confirmed:
//
//	owed    Redis has certainly not charged it: the next demand carries it
//	sent    a demand under way carries it
//	unsure  a batch that was not answered may have charged it: it is not sent again before that batch is asked about
type debt struct {
	owed, sent, unsure quota.Spent
}

// uncharged is the part of the use here that Redis has not confirmed.
func (d *debt) uncharged() quota.Spent { return plus(plus(d.owed, d.sent), d.unsure) }

// lapse drops what lies before the window and the day of here.
func (d *debt) lapse(here quota.Verdict) {
	for _, spent := range [...]*quota.Spent{&d.owed, &d.sent, &d.unsure} {
		spent.Minute = min(spent.Minute, here.Minute.Used)
		if spent.Day.Day != here.DayUse.Day {
			spent.Day = quota.DayUse{}
		}
	}
}

// retryAfter is what a refused request is told. The shared count may be back at any time.
const retryAfter = time.Second

func newLocalShare(memory *store.Memory) *localShare {
	return &localShare{memory: memory, debt: make(map[id.Tenant]debt)}
}

// take decides one request. Last is what is known of the tenant; unsure says that a batch with this very request may
// have been executed.
func (o *localShare) take(a store.Request, last quota.Verdict, gateways int64, unsure bool) quota.Verdict {
	return o.admit(a, 1, last, gateways, unsure)
}

// peek tells what take would decide from.
func (o *localShare) peek(a store.Request, last quota.Verdict, gateways int64) quota.Verdict {
	return o.admit(a, 0, last, gateways, false)
}

func (o *localShare) admit(a store.Request, want int64, last quota.Verdict, gateways int64, unsure bool) quota.Verdict {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.memory.Now()
	d := store.Demand{Request: a}
	here := o.memory.Take(now, &d)
	debt := o.debt[a.Tenant]
	debt.lapse(here)
	uncharged := debt.uncharged()

	d.Want = want
	d.Limits = plan.Limits{
		Minute: shareOf(a.Limits.Minute, last.Minute.Used, here.Minute.Used-uncharged.Minute, gateways),
		Day:    shareOf(a.Limits.Day, last.Day.Used, here.Day.Used-uncharged.Day.Used, gateways),
	}
	v := o.memory.Take(now, &d)
	if v.Granted == 1 {
		spent := &debt.owed
		if unsure {
			spent = &debt.unsure
		}
		*spent = plus(*spent, quota.Spent{Minute: 1, Day: quota.DayUse{Day: v.DayUse.Day, Used: 1}})
	}
	o.set(a.Tenant, debt)
	v.Degraded = true
	if v.Granted < want || v.RetryAt() != 0 {
		// The share says nothing of when the shared count admits more.
		v.Minute.RetryAt, v.Day.RetryAt = v.At.Add(retryAfter), 0
	}
	show(&v.Minute, a.Limits.Minute)
	show(&v.Day, a.Limits.Day)
	return v
}

// shareOf is how much one of so many gateways may admit of a policy in its own window.
func shareOf(limit, known, charged, gateways int64) int64 {
	return max(1, max(0, charged)+max(0, limit-known)/gateways)
}

// show makes a share look like the limit that it is part of, with as much remaining.
func show(u *quota.Usage, limit int64) {
	u.Used = limit - min(limit, u.Remaining())
	u.Limit = limit
}

// collect returns what t owes, to be charged by a demand whose outcome settled is told.
func (o *localShare) collect(t id.Tenant) quota.Spent {
	if o.size.Load() == 0 {
		return quota.Spent{}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	debt, ok := o.debt[t]
	if !ok {
		return quota.Spent{}
	}
	d := store.Demand{Request: store.Request{Tenant: t}}
	debt.lapse(o.memory.Take(o.memory.Now(), &d))
	owed := debt.owed
	debt.sent, debt.owed = plus(debt.sent, owed), quota.Spent{}
	o.set(t, debt)
	return owed
}

// settled is told what became of a demand that was to charge spent: it is paid, owed again, or may be paid.
func (o *localShare) settled(t id.Tenant, spent quota.Spent, became redis.Outcome) {
	if spent == (quota.Spent{}) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	debt := o.debt[t]
	debt.sent = minus(debt.sent, spent)
	switch became {
	case redis.Undecided:
		debt.owed = plus(debt.owed, spent)
	case redis.Unsure:
		debt.unsure = plus(debt.unsure, spent)
	}
	o.set(t, debt)
}

// resolve settles what is unsure of a tenant, now that it is known whether the demand was decided and what it was granted. It
// returns how many requests Redis has charged although they were refused here.
func (o *localShare) resolve(d *store.Demand, decided bool, granted int64) (chargedInVain int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	debt := o.debt[d.Tenant]
	unpaid := debt.unsure
	if decided {
		admitted := max(0, unpaid.Minute-d.Spent.Minute)
		chargedInVain = max(0, granted-admitted)
		unpaid = minus(unpaid, plus(d.Spent, quota.Spent{
			Minute: granted, Day: quota.DayUse{Day: unpaid.Day.Day, Used: granted},
		}))
	}
	debt.owed, debt.unsure = plus(debt.owed, unpaid), quota.Spent{}
	o.set(d.Tenant, debt)
	return chargedInVain
}

// owing returns the tenants that owe something.
func (o *localShare) owing() (tenants []id.Tenant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for t, debt := range o.debt {
		if debt.owed != (quota.Spent{}) {
			tenants = append(tenants, t)
		}
	}
	return tenants
}

// forget drops what t was admitted here.
func (o *localShare) forget(t id.Tenant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.set(t, debt{})
	o.memory.Forget(t)
}

// sweep drops debts of past days, at the beginning of an outage, so that they never outnumber the tenants of a day by
// much.
func (o *localShare) sweep(day int64) {
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
func (o *localShare) set(t id.Tenant, d debt) {
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

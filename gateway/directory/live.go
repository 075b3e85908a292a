package directory

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/plan"
)

const (
	// watchedFor is how long after the last question requests are still counted. It is longer than the pause between two questions.
	watchedFor = 90 * time.Second
	// rankedOver is how long a tenant counts as active after its last request: at least this, and less than twice as long.
	rankedOver = 10 * time.Second
)

// live adds up the requests of each tenant while somebody watches. It costs requests nothing: it reads what they count for the
// statistics.
type live struct {
	// mu is held while counts move from the shards to the backlog, so that a reader finds each request in one of the two. No
	// request waits for it.
	mu       sync.Mutex
	since    time.Time // when the counting began; zero: nobody watches
	askedAt  time.Time
	rankedAt time.Time
	tenants  map[id.Tenant]tally // without what is still in the shards
}

// tally counts the requests of a tenant since the counting began.
type tally struct {
	requests, refused int64
	before            [2]int64 // requests at the last two changes of the ranking's period, the later one first
}

func (t tally) recent() int64 { return t.requests - t.before[1] }

// plus returns t with n more requests.
func (t tally) plus(outcome string, n int64) tally {
	t.requests += n
	if outcome != "ok" && outcome != "report" {
		t.refused += n
	}
	return t
}

// Activity is what the tenants of a gateway do now. The counts grow from Since on.
type Activity struct {
	Since    time.Time // if it differs from that of an earlier answer, the counts began again in between
	Requests int64     // of all tenants
	Refused  int64     // of them, those with another outcome than ok and report
	Active   int       // how many tenants made a request in the last 10 to 20 s
	Tenants  []TenantActivity
}

// TenantActivity is what one tenant does, and the limits that it has now. A tenant that is no longer known has none.
type TenantActivity struct {
	Tenant   id.Tenant
	Requests int64
	Refused  int64
	Plan     string
	Limits   plan.Limits
}

// Activity returns the activity of all tenants and the counts of the n most active ones. The first call begins to count; the
// counting ends 90 s after the last call. now must have a monotonic reading.
func (d *Directory) Activity(now time.Time, n int) Activity {
	type active struct {
		tenant id.Tenant
		tally
	}
	var a Activity
	var ranking []active
	for tenant, t := range d.usage.watch(now, &a.Since) {
		a.Requests += t.requests
		a.Refused += t.refused
		if t.recent() > 0 {
			ranking = append(ranking, active{tenant, t})
		}
	}
	slices.SortFunc(ranking, func(a, b active) int {
		return cmp.Or(cmp.Compare(b.recent(), a.recent()), slices.Compare(a.tenant[:], b.tenant[:]))
	})
	a.Active = len(ranking)
	for _, one := range ranking[:min(n, len(ranking))] {
		row := TenantActivity{Tenant: one.tenant, Requests: one.requests, Refused: one.refused}
		row.Plan, row.Limits, _, _ = d.TenantLimits(one.tenant)
		a.Tenants = append(a.Tenants, row)
	}
	return a
}

// watch returns the counts of all tenants, with what is still in the shards.
func (u *usage) watch(now time.Time, since *time.Time) map[id.Tenant]tally {
	l := &u.live
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.since.IsZero() {
		l.since, l.rankedAt, l.tenants = now, now, map[id.Tenant]tally{}
	}
	*since, l.askedAt = l.since, now
	if now.Sub(l.rankedAt) >= rankedOver {
		l.rankedAt = now
		for tenant, t := range l.tenants {
			t.before = [2]int64{t.requests, t.before[0]}
			l.tenants[tenant] = t
		}
	}
	all := maps.Clone(l.tenants)
	for i := range u.shards {
		shard := &u.shards[i]
		shard.mu.Lock()
		counts := maps.Clone(shard.counts)
		shard.mu.Unlock()
		for row, n := range counts {
			all[row.Tenant] = all[row.Tenant].plus(row.Outcome, n)
		}
	}
	return all
}

// add counts requests that leave the shards. The caller holds mu.
func (l *live) add(row Usage, n int64) {
	if !l.since.IsZero() {
		l.tenants[row.Tenant] = l.tenants[row.Tenant].plus(row.Outcome, n)
	}
}

// forget ends the counting if nobody has asked for a while. The caller holds mu.
func (l *live) forget(now time.Time) {
	if !l.since.IsZero() && now.Sub(l.askedAt) > watchedFor {
		l.since, l.tenants = time.Time{}, nil
	}
}

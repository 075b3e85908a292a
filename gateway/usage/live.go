package usage

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
)

const (
	// WatchedFor is how long after the last question requests are still counted. It is longer than
	// the pause between two questions.
	WatchedFor = 90 * time.Second
	// rankedOver is how long a tenant counts as active after its last request: at least this, and
	// less than twice as long.
	rankedOver = 10 * time.Second
)

// live adds up the requests of each tenant while somebody watches. Requests do no extra work: it
// sums the usage counters.
type live struct {
	since    time.Time // when the counting began; zero: nobody watches
	askedAt  time.Time
	rankedAt time.Time
	all      counts // of all tenants
	tenants  map[id.Tenant]tally
}

// counts are numbers of requests that have left the shards.
type counts struct{ requests, refused int64 }

func (c counts) plus(request Request, n int64) counts {
	c.requests += n
	if !request.Charged && request.Outcome != "report" {
		c.refused += n
	}
	return c
}

// tally counts the requests of a tenant.
type tally struct {
	counts
	since  time.Time // the tenant's first request since the counting began, or after a pause
	before [2]int64  // requests at the beginning of this period of the ranking, and of the one before
}

func (t tally) recent() int64 { return t.requests - t.before[1] }

// Activity is what the tenants of a gateway do now. The counts grow from Since on.
type Activity struct {
	Since    time.Time // if it differs from that of an earlier answer, the counts began again in between
	Requests int64     // of all tenants
	Refused  int64     // how many of them were not charged; reports of the quota do not count here
	Active   int       // how many tenants made a request in the last 10 to 20 s
	Tenants  []TenantActivity
}

// TenantActivity is what one tenant does.
type TenantActivity struct {
	Tenant   id.Tenant
	Since    time.Time // when the tenant's counts began; they begin again after a while without requests
	Requests int64
	Refused  int64
}

// Activity returns the activity of all tenants and the counts of the n most active ones. The first
// call begins to count; the counting ends 90 s after the last call. now must have a monotonic
// reading.
func (c *Counter) Activity(now time.Time, n int) Activity {
	type active struct {
		tenant id.Tenant
		tally
	}
	since, all, tenants := c.watch(now)
	ranking := make([]active, 0, len(tenants))
	for tenant, t := range tenants {
		ranking = append(ranking, active{tenant, t})
	}
	slices.SortFunc(ranking, func(a, b active) int {
		return cmp.Or(cmp.Compare(b.recent(), a.recent()), slices.Compare(a.tenant[:], b.tenant[:]))
	})
	a := Activity{Since: since, Requests: all.requests, Refused: all.refused, Active: len(ranking)}
	for _, one := range ranking[:min(n, len(ranking))] {
		a.Tenants = append(a.Tenants, TenantActivity{
			Tenant:   one.tenant,
			Since:    one.since,
			Requests: one.requests,
			Refused:  one.refused,
		})
	}
	return a
}

// watch returns the counts of all tenants together and of each that counts as active, until now.
func (c *Counter) watch(now time.Time) (since time.Time, all counts, tenants map[id.Tenant]tally) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &c.live
	if l.since.IsZero() {
		*l = live{since: now, rankedAt: now, tenants: map[id.Tenant]tally{}}
	}
	l.askedAt = now
	c.collect(now, instant.Of(c.cfg.Clock()))
	turn := now.Sub(l.rankedAt) >= rankedOver
	if turn {
		l.rankedAt = now
	}
	for tenant, t := range l.tenants {
		if turn {
			t.before = [2]int64{t.requests, t.before[0]}
			l.tenants[tenant] = t
		}
		if t.recent() == 0 {
			delete(l.tenants, tenant)
		}
	}
	return l.since, l.all, maps.Clone(l.tenants)
}

// add counts requests that leave the shards. The caller holds the lock of the Counter.
func (l *live) add(request Request, n int64, now time.Time) {
	if l.since.IsZero() {
		return
	}
	t, isKnown := l.tenants[request.Tenant]
	if !isKnown {
		t.since = now
	}
	t.counts = t.plus(request, n)
	l.tenants[request.Tenant] = t
	l.all = l.all.plus(request, n)
}

// forget ends the counting if nobody has asked for a while. The caller holds the lock of the
// Counter.
func (l *live) forget(now time.Time) {
	if !l.since.IsZero() && now.Sub(l.askedAt) > WatchedFor {
		l.since, l.tenants = time.Time{}, nil
	}
}

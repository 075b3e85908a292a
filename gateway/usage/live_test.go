package usage

import (
	"slices"
	"testing"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/testkit"
)

// Counts of a watcher only grow, whether the requests are still in the shards or were collected for
// the database.
func TestActivity(t *testing.T) {
	t.Parallel()
	p := newRig(t, testkit.SQLite(t)).unregistered("gw-1")
	acme, quiet := id.Tenant{1}, id.Tenant{2}
	count := func(tenant id.Tenant, outcome string, n int) {
		for range n {
			isCharged := outcome == "ok" || outcome == "upstream_timeout"
			p.Count(Request{Tenant: tenant, Outcome: outcome, Charged: isCharged})
		}
	}
	now := time.Now()
	count(acme, "ok", 5)
	p.collected() // nobody watches: these are not counted
	if first := p.Activity(now, 10); first.Requests != 0 || first.Active != 0 {
		t.Errorf("at first: %+v", first)
	}
	count(acme, "ok", 1)
	count(acme, "upstream_timeout", 1) // charged, so it is not refused
	count(acme, "report", 1)
	count(acme, "minute_quota_exceeded", 3)
	count(quiet, "ok", 1)
	want := Activity{Since: now, Requests: 7, Refused: 3, Active: 2, Tenants: []TenantActivity{
		{Tenant: acme, Requests: 6, Refused: 3}, {Tenant: quiet, Requests: 1},
	}}
	since := map[id.Tenant]time.Time{}
	same := func(when string, got Activity) {
		t.Helper()
		for i := range got.Tenants {
			since[got.Tenants[i].Tenant], got.Tenants[i].Since = got.Tenants[i].Since, time.Time{}
		}
		if got.Since != want.Since || got.Requests != want.Requests || got.Refused != want.Refused ||
			got.Active != want.Active || !slices.Equal(got.Tenants, want.Tenants) {
			t.Errorf("%s: %+v, want %+v", when, got, want)
		}
	}
	same("in the shards", p.Activity(now, 10))
	p.collected()
	same("collected", p.Activity(now, 10))
	count(quiet, "ok", 1)
	want.Requests, want.Tenants[1].Requests = 8, 2
	same("in both", p.Activity(now.Add(time.Second), 10))
	want.Tenants = want.Tenants[:1]
	same("the most active one", p.Activity(now.Add(time.Second), 1))
	count(quiet, "ok", 4)
	want.Requests, want.Tenants = 12, append(want.Tenants, TenantActivity{Tenant: quiet, Requests: 6})
	slices.SortFunc(want.Tenants, func(a, b TenantActivity) int { return slices.Compare(a.Tenant[:], b.Tenant[:]) })
	for range 9 { // maps have no order
		same("as active as the other", p.Activity(now.Add(rankedOver), 10))
	}
	count(quiet, "ok", 3)
	want.Requests, want.Active, want.Tenants = 15, 1, []TenantActivity{{Tenant: quiet, Requests: 9}}
	same("acme has made no request for two periods", p.Activity(now.Add(2*rankedOver), 10))
	if since[acme] != now || since[quiet] != now {
		t.Errorf("the counts grow from %v on, want %v", since, now)
	}

	p.live.forget(now.Add(2*rankedOver + WatchedFor))
	same("within the time of a pause", p.Activity(now.Add(2*rankedOver), 10))
	p.collect(now.Add(2*rankedOver+WatchedFor+time.Millisecond), 0)
	if p.live.tenants != nil {
		t.Error("the counts are kept although nobody watches")
	}
	p.collected()
	if again := p.Activity(now.Add(time.Hour), 10); again.Since == want.Since || again.Requests != 0 {
		t.Errorf("watched again: %+v", again)
	}
}

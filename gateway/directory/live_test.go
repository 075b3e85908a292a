package directory

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
	store := openStore(t, testkit.SQLite(t))
	acme, key, _ := fixture(t, store)
	d := opened(t, store, Config{})
	quiet := massTenant(1)
	count := func(tenant id.Tenant, outcome string, n int) {
		for range n {
			d.Count(
				Usage{
					Tenant:  tenant,
					Key:     key.ID,
					Outcome: outcome,
					Charged: outcome == "ok" || outcome == "upstream_timeout",
				},
			)
		}
	}
	now := time.Now()
	count(acme.ID, "ok", 5)
	d.usage.collect(time.Now(), 0) // nobody watches: these are not counted
	if first := d.Activity(now, 10); first.Requests != 0 || first.Active != 0 {
		t.Errorf("at first: %+v", first)
	}
	count(acme.ID, "ok", 1)
	count(acme.ID, "upstream_timeout", 1) // charged, so it is not refused
	count(acme.ID, "report", 1)
	count(acme.ID, "minute_quota_exceeded", 3)
	count(quiet, "ok", 1)
	want := Activity{Since: now, Requests: 7, Refused: 3, Active: 2, Tenants: []TenantActivity{
		{Tenant: acme.ID, Requests: 6, Refused: 3}, {Tenant: quiet, Requests: 1},
	}}
	want.Tenants[0].Terms, _ = d.Terms(acme.ID)
	since := map[id.Tenant]time.Time{}
	same := func(when string, got Activity) {
		t.Helper()
		for i := range got.Tenants {
			since[got.Tenants[i].Tenant], got.Tenants[i].Since = got.Tenants[i].Since, time.Time{}
		}
		if got.Since != want.Since || got.Requests != want.Requests || got.Refused != want.Refused ||
			got.Active != want.Active ||
			!slices.Equal(got.Tenants, want.Tenants) {
			t.Errorf("%s: %+v, want %+v", when, got, want)
		}
	}
	same("in the shards", d.Activity(now, 10))
	d.usage.collect(time.Now(), 0)
	same("collected", d.Activity(now, 10))
	count(quiet, "ok", 1)
	want.Requests, want.Tenants[1].Requests = 8, 2
	same("in both", d.Activity(now.Add(time.Second), 10))
	want.Tenants = want.Tenants[:1]
	same("the most active one", d.Activity(now.Add(time.Second), 1))
	count(quiet, "ok", 4)
	want.Requests, want.Tenants = 12, append(want.Tenants, TenantActivity{Tenant: quiet, Requests: 6})
	slices.SortFunc(want.Tenants, func(a, b TenantActivity) int { return slices.Compare(a.Tenant[:], b.Tenant[:]) })
	for range 9 { // maps have no order
		same("as active as the other", d.Activity(now.Add(rankedOver), 10))
	}
	count(quiet, "ok", 3)
	want.Requests, want.Active, want.Tenants = 15, 1, []TenantActivity{{Tenant: quiet, Requests: 9}}
	same("acme has made no request for two periods", d.Activity(now.Add(2*rankedOver), 10))
	if since[acme.ID] != now || since[quiet] != now {
		t.Errorf("the counts grow from %v on, want %v", since, now)
	}

	d.usage.live.forget(now.Add(2*rankedOver + WatchedFor))
	same("within the time of a pause", d.Activity(now.Add(2*rankedOver), 10))
	d.usage.collect(now.Add(2*rankedOver+WatchedFor+time.Millisecond), 0)
	if d.usage.live.tenants != nil {
		t.Error("the counts are kept although nobody watches")
	}
	d.usage.collect(time.Now(), 0)
	if again := d.Activity(now.Add(time.Hour), 10); again.Since == want.Since || again.Requests != 0 {
		t.Errorf("watched again: %+v", again)
	}
}

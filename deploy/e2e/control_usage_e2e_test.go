//go:build e2e

package e2e_test

import (
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// Gateways are restarted twice, one after the other and under load, while the database is away: the second time, processes end that
// have never reached it. When it is back, the usage is what the clients saw. A gateway that is killed loses at most 3 s of it.
func TestUsageSurvivesAnOutage(t *testing.T) {
	t.Parallel()
	postgres := testkit.StartPostgres(t)
	redis, prefix := testkit.Redis(t)
	f := fleet.Start(t, fleet.Spec{
		Database: postgres.URL, Redis: redis, RedisPrefix: prefix, Gateways: 3, Upstreams: fleet.FixedUpstream(t),
		GatewayEnv: []string{"GATEWAY_DRAIN_DELAY=0s", "GATEWAY_ACCESS_LOG=false"},
	})
	key := f.NewTenant("acme", fleet.Unlimited...)
	seen := 0
	stored := func() (n int) {
		if err := openDatabase(t, f).Get(&n, `SELECT COALESCE(sum(requests), 0) FROM usage_hours WHERE charged`); err != nil {
			t.Log(err) // it has just started
		}
		return n
	}
	l := startLoad(t, key.Token, 2, 4*time.Millisecond, f.Gateways...)
	<-time.After(time.Second)
	postgres.Kill(t)
	for range 2 {
		for _, g := range f.Gateways {
			<-time.After(500 * time.Millisecond)
			if code := g.Stop(); code != 0 {
				t.Errorf("%s: exit code %d", g.ID, code)
			}
			g.Start(t)
		}
	}
	seen += admitted(l.end())
	postgres.Start(t)
	testkit.Eventually(t, time.Minute, "the usage is stored", func() bool { return stored() >= seen })
	<-time.After(4 * time.Second) // until every gateway has written what it has
	if n := stored(); n != seen {
		t.Fatalf("%d requests are stored, clients saw %d", n, seen)
	}

	l = startLoad(t, key.Token, 2, 4*time.Millisecond, f.Gateways...)
	postgres.Kill(t)
	<-time.After(8 * time.Second)
	killed := time.Now()
	f.Gateways[0].Kill()
	all := l.end()
	risk := 0 // what the killed gateway admitted in its last 3 s
	for _, s := range all {
		if s.gateway == f.Gateways[0] && s.Status == 200 && s.started.After(killed.Add(-3*time.Second)) {
			risk++
		}
	}
	seen += admitted(all)
	f.Gateways[0].Start(t)
	postgres.Start(t)
	testkit.Eventually(t, time.Minute, "the usage is stored", func() bool { return stored() >= seen-risk })
	<-time.After(4 * time.Second)
	n := stored()
	if n < seen-risk || n > seen+2 { // its two clients may each have lost an answer
		t.Errorf("%d requests are stored, clients saw %d, of which %d in the last 3 s of the killed gateway", n, seen, risk)
	}
	t.Logf("figure: Postgres away, three gateways restarted twice and one killed: %d of %d requests stored, %d were at risk", n, seen, risk)
}

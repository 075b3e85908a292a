package e2e_test

import (
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// Postgres hangs, is killed and comes back while three gateways serve. No request fails because of it, also at gateways that end
// meanwhile and start again from their snapshots, the second time as processes that have never reached the database. When it is back,
// the usage is what the clients saw. A gateway that is killed loses at most 3 s of it. Then changes arrive.
func TestPostgresOutage(t *testing.T) {
	t.Parallel()
	outage := testkit.Size(1500*time.Millisecond, 8*time.Second)
	postgres := testkit.StartPostgres(t)
	redis, prefix := testkit.Redis(t)
	f := fleet.Start(t, fleet.Spec{
		Database: postgres.URL, Redis: redis, RedisPrefix: prefix, Gateways: 3, Upstreams: fleet.FixedUpstream(t),
		GatewayEnv: []string{"GATEWAY_DRAIN_DELAY=0s", "GATEWAY_ACCESS_LOG=false"},
	})
	key := f.NewTenant("acme", fleet.Unlimited...)
	revoked := f.NewKey("acme")
	f.MustKeyadmin("key", "revoke", revoked.ID, "--yes")
	served := 0
	// serve sends requests to all gateways while do runs. A request meets no gateway if that restarts.
	serve := func(what string, restarts bool, do func()) []fleet.Shot {
		t.Helper()
		l := fleet.StartLoad(t, key.Token, 2, 4*time.Millisecond, f.Gateways...)
		<-time.After(500 * time.Millisecond)
		do()
		shots, before := l.End(), served
		for _, s := range shots {
			if s.Status == 200 {
				served++
			} else if s.Status != 0 || !restarts {
				t.Errorf("%s: %s answers %v", what, s.Gateway.ID, s.Reply)
			}
		}
		t.Logf("figure: %s: %d requests, all answered 200", what, served-before)
		return shots
	}
	// awaitUsage waits until the usage of all but some requests is stored, and returns that of how many is.
	awaitUsage := func(lost int) (n int) {
		t.Helper()
		testkit.Eventually(t, time.Minute, "the usage is stored", func() bool {
			if err := openDatabase(t, f).Get(&n, `SELECT COALESCE(sum(requests), 0) FROM usage_hours WHERE charged`); err != nil {
				t.Log(err) // it has just started
			}
			return n >= served-lost
		})
		return n
	}
	serve("Postgres hangs", false, func() {
		postgres.Pause(t)
		<-time.After(outage)
		postgres.Resume(t)
	})
	postgres.Kill(t)
	serve("Postgres is away, and gateways restart", true, func() {
		for range 2 {
			for _, g := range f.Gateways {
				if code := g.Stop(); code != 0 {
					t.Errorf("%s: exit code %d", g.ID, code)
				}
				g.Start(t)
				g.Want(t, revoked.Token, 401, "invalid_api_key")
			}
		}
	})
	postgres.Start(t)
	awaitUsage(0)
	<-time.After(4 * time.Second) // until every gateway has written what it has
	if n := awaitUsage(0); n != served {
		t.Fatalf("%d requests are stored, clients saw %d", n, served)
	}

	postgres.Kill(t)
	killed, risk := time.Time{}, 0
	for _, s := range serve("Postgres is away, and a gateway is killed", true, func() {
		<-time.After(outage)
		killed = time.Now()
		f.Gateways[0].Kill()
	}) {
		if s.Gateway == f.Gateways[0] && s.Status == 200 && s.Started.After(killed.Add(-3*time.Second)) {
			risk++
		}
	}
	f.Gateways[0].Start(t)
	f.Gateways[0].Want(t, key.Token, 200, "")
	served++
	f.Gateways[0].Want(t, revoked.Token, 401, "invalid_api_key")
	postgres.Start(t)
	awaitUsage(risk)
	<-time.After(4 * time.Second)
	if n := awaitUsage(risk); n > served+2 { // its two clients may each have lost an answer
		t.Errorf("%d requests are stored, clients saw %d, of which %d in the last 3 s of the killed gateway", n, served, risk)
	} else {
		t.Logf("figure: %d of %d requests are stored, %d were at risk", n, served, risk)
	}
	f.MustKeyadmin("key", "revoke", key.ID, "--yes", "--wait", "20s")
	for _, g := range f.Gateways {
		g.Want(t, key.Token, 401, "invalid_api_key")
	}
}

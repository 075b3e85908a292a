package e2e_test

import (
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// outage is how long the database is away.
const outage = 3 * time.Second

// wantAllServed fails the test for every request that was not answered 200.
func wantAllServed(t *testing.T, what string, shots []shot) (served int) {
	t.Helper()
	failures := 0
	for _, s := range shots {
		if s.Status == 200 {
			served++
		} else if failures++; failures <= 3 {
			t.Errorf("%s: %s answers %v", what, s.gateway.ID, s.Reply)
		}
	}
	if failures > 3 {
		t.Errorf("%s: %d requests failed", what, failures)
	}
	if served == 0 {
		t.Errorf("%s: nothing was asked", what)
	}
	return served
}

// If Postgres hangs or is down, no request is refused or fails because of it. A gateway that is restarted during the outage
// serves from its snapshot. Changes after the outage arrive.
func TestPostgresOutage(t *testing.T) {
	t.Parallel()
	postgres := testkit.StartPostgres(t)
	redis, prefix := testkit.Redis(t)
	f := fleet.Start(t, fleet.Spec{
		Database: postgres.URL, Redis: redis, RedisPrefix: prefix, Gateways: 3, Upstreams: fleet.FixedUpstream(t),
		GatewayEnv: []string{"GATEWAY_DRAIN_DELAY=0s", "GATEWAY_ACCESS_LOG=false"},
	})
	key := f.NewTenant("acme", fleet.Unlimited...)
	revoked := f.NewKey("acme")
	f.MustKeyadmin("key", "revoke", revoked.ID, "--yes")
	killed, stopped, well := f.Gateways[0], f.Gateways[1], f.Gateways[2:]

	l := startLoad(t, key.Token, 2, 4*time.Millisecond, f.Gateways...)
	lasting := func(d time.Duration) []shot {
		<-time.After(d)
		return l.take()
	}
	wantAllServed(t, "before", lasting(500*time.Millisecond))

	postgres.Pause(t)
	hung := wantAllServed(t, "while Postgres hangs", lasting(outage/2))
	postgres.Resume(t)
	postgres.Kill(t)
	gone := wantAllServed(t, "while Postgres is gone", lasting(outage/2))
	l.end()

	l = startLoad(t, key.Token, 2, 4*time.Millisecond, well...)
	for _, g := range []*fleet.Program{killed, stopped} {
		begun := time.Now()
		if g == killed {
			g.Kill()
		} else if code := g.Stop(); code != 0 {
			t.Errorf("exit code %d after SIGTERM without a database", code)
		}
		g.Start(t)
		g.Want(t, key.Token, 200, "")
		g.Want(t, revoked.Token, 401, "invalid_api_key")
		t.Logf("figure: without Postgres, %s was ended and served from its snapshot after %v", g.ID,
			time.Since(begun).Round(time.Millisecond))
	}
	others := startLoad(t, key.Token, 2, 4*time.Millisecond, killed, stopped)
	restarted := lasting(500 * time.Millisecond)

	postgres.Start(t)
	back := time.Now()
	gone += wantAllServed(t, "while Postgres is gone and back", append(restarted, l.end()...))
	gone += wantAllServed(t, "from snapshots", others.end())
	done := f.Keyadmin("key", "revoke", key.ID, "--yes", "--wait", "20s")
	if done.Code != 0 {
		t.Fatalf("keyadmin key revoke: exit code %d\n%s", done.Code, done.Stderr)
	}
	arrived := time.Since(back)
	for _, g := range f.Gateways {
		g.Want(t, key.Token, 401, "invalid_api_key")
	}
	t.Logf("figure: Postgres hung and was killed under load: %d and %d requests, all answered 200; "+
		"a change arrived everywhere %v after it was back", hung, gone, arrived.Round(time.Millisecond))
}

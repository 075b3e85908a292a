package e2e_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// throughProxy returns the fleet's database URL for a gateway whose network the test can break.
func throughProxy(t testing.TB, database string) (*testkit.Proxy, string) {
	t.Helper()
	u := must.Get[*url.URL](t)(url.Parse(database))
	proxy := testkit.NewProxy(t, u.Host)
	u.Host = proxy.Addr
	return proxy, "DATABASE_URL=" + u.String()
}

// wantUnconfirmed runs a command that must report one gateway as unconfirmed. On a busy machine,
// another gateway may be late too: it repeats the command until only the laggard is named.
func wantUnconfirmed(t *testing.T, f *fleet.Fleet, laggard *fleet.Program, args ...string) {
	t.Helper()
	testkit.Eventually(t, fleet.ReplyWithin, "only "+laggard.ID+" is named", func() bool {
		done := f.Keyadmin(args...)
		if done.Code != 3 || !strings.Contains(done.Stderr, laggard.ID+" (127.0.0.1), ") ||
			!strings.Contains(done.Stderr, "may still accept this key") {
			t.Fatalf("keyadmin %s: exit code %d, want 3 and %s named\n%s", strings.Join(args, " "), done.Code,
				laggard.ID, done.Stderr)
		}
		return !slices.ContainsFunc(f.Gateways, func(g *fleet.Program) bool {
			return g != laggard && strings.Contains(done.Stderr, g.ID+" ")
		})
	})
}

// A gateway that does not apply a revocation is named, and the gateway that applies it refuses. A
// repeated command waits again.
func TestRevocationWithALaggard(t *testing.T) {
	t.Parallel()
	redis, prefix := testkit.Redis(t)
	f := fleet.Start(t, fleet.Spec{
		Redis: redis, RedisPrefix: prefix, Gateways: 1, Upstreams: fleet.FixedUpstream(t),
	})
	proxy, through := throughProxy(t, f.Database)
	well, cut := f.Gateways[0], f.AddGateway(through)
	unreported, partitioned, restarted := f.NewTenant("acme", fleet.Unlimited...), f.NewKey("acme"), f.NewKey("acme")

	// keyadmin is killed after the change and before the confirmation: the change is made all the
	// same, and the same command confirms it.
	t.Run("keyadmin is killed", func(t *testing.T) {
		cut.Want(t, unreported.Token, 200, "")
		cut.Pause(t)
		command := testkit.Start(t, testkit.Build(t, "petgate/keyadmin"), []string{"DATABASE_URL=" + f.Database},
			"key", "revoke", unreported.ID, "--yes", "--wait", "60s")
		testkit.Eventually(t, fleet.ReplyWithin, "the change is made",
			func() bool { return well.Ask(unreported.Token).Status == 401 })
		command.Kill()
		wantUnconfirmed(t, f, cut, "key", "revoke", unreported.ID, "--yes", "--wait", "500ms")
		cut.Resume()
		f.MustKeyadmin("key", "revoke", unreported.ID, "--yes", "--wait", "20s")
		cut.Want(t, unreported.Token, 401, "invalid_api_key")
	})
	t.Run("partitioned", func(t *testing.T) {
		proxy.BlackHole()
		wantUnconfirmed(t, f, cut, "key", "revoke", partitioned.ID, "--yes", "--wait", "500ms")
		well.Want(t, partitioned.Token, 401, "invalid_api_key")
		cut.Want(t, partitioned.Token, 200, "") // it cannot know the revocation, and keyadmin has reported that
		proxy.Restore(t)
		f.MustKeyadmin("key", "revoke", partitioned.ID, "--yes", "--wait", "30s")
		cut.Want(t, partitioned.Token, 401, "invalid_api_key")
	})
	t.Run("restarted from its snapshot", func(t *testing.T) {
		proxy.BlackHole()
		cut.Kill()
		cut.Start(t)
		cut.Want(t, partitioned.Token, 401, "invalid_api_key") // confirmed before it was killed
		wantUnconfirmed(t, f, cut, "key", "revoke", restarted.ID, "--yes", "--wait", "500ms")
		cut.Want(t, restarted.Token, 200, "")
		proxy.Restore(t)
		f.MustKeyadmin("key", "revoke", restarted.ID, "--yes", "--wait", "30s")
		cut.Want(t, restarted.Token, 401, "invalid_api_key")
	})
}

// With a maximum age, a gateway that is cut off refuses all requests after that age, and keyadmin
// relies on that.
func TestRevocationFencesAPartitionedGateway(t *testing.T) {
	t.Parallel()
	redis, prefix := testkit.Redis(t)
	f := fleet.Start(t, fleet.Spec{Redis: redis, RedisPrefix: prefix, Upstreams: fleet.FixedUpstream(t)})
	proxy, through := throughProxy(t, f.Database)
	g := f.AddGateway(through, "GATEWAY_DIRECTORY_MAX_AGE=2s")
	key := f.NewTenant("acme", fleet.Unlimited...)
	// On a busy machine, its directory may be too old for a moment.
	testkit.Eventually(t, fleet.ReplyWithin, "it accepts the key",
		func() bool { return g.MustAsk(t, key.Token).Status == 200 })

	l := fleet.StartLoad(t, key.Token, 2, 5*time.Millisecond, g)
	proxy.BlackHole()
	begun := time.Now()
	done := f.Keyadmin("key", "revoke", key.ID, "--yes", "--wait", "20s")
	over := time.Now()
	if done.Code != 0 || !strings.Contains(done.Stderr, "is fenced: it refuses every call") {
		t.Fatalf("exit code %d, want 0 and a fence\n%s", done.Code, done.Stderr)
	}
	l.Await(t, key.Token, 503, 20, over)
	proxy.Restore(t)
	l.Await(t, key.Token, 401, 20, over) // it follows again
	for _, s := range l.End() {
		if s.Status == 200 && s.Started.After(over) {
			t.Errorf("200 to a request begun %v after the revocation was confirmed", s.Started.Sub(over))
		}
	}
	t.Logf("figure: a partitioned gateway with a maximum age of 2s was fenced, and its revocation confirmed, after %v",
		over.Sub(begun).Round(10*time.Millisecond))
}

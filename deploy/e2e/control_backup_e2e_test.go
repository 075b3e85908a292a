//go:build e2e

package e2e_test

import (
	"path/filepath"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// An operator restores a backup from before a revocation, again and again, while gateways serve. The revoked key is never accepted,
// and a key of the backup always. A gateway that starts afterwards, and knows nothing of before, refuses the key too.
func TestRestoreRevivesNoKey(t *testing.T) {
	t.Parallel()
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		redis, prefix := testkit.Redis(t)
		f := fleet.Start(t, fleet.Spec{
			Database: url, Redis: redis, RedisPrefix: prefix, Gateways: 2, Upstreams: fleet.FixedUpstream(t),
			GatewayEnv: []string{"GATEWAY_DRAIN_DELAY=0s"},
		})
		kept := f.NewTenant("acme", fleet.Unlimited...)
		revoked, rotated := f.NewKey("acme"), f.NewKey("acme")
		path := filepath.Join(t.TempDir(), "backup")
		f.MustKeyadmin("backup", path)
		f.MustKeyadmin("key", "revoke", revoked.ID, "--yes", "--wait", "20s")
		f.MustKeyadmin("key", "rotate", rotated.ID, "--grace", "0", "--yes", "--wait", "20s")
		created := f.NewKey("acme")

		served := fleet.StartLoad(t, kept.Token, 1, 5*time.Millisecond, f.Gateways...)
		refused := fleet.StartLoad(t, revoked.Token, 1, 5*time.Millisecond, f.Gateways...)
		replaced := fleet.StartLoad(t, rotated.Token, 1, 5*time.Millisecond, f.Gateways...)
		served.Await(t, kept.Token, 200, 1, time.Time{})
		refused.Await(t, revoked.Token, 401, 1, time.Time{})
		replaced.Await(t, rotated.Token, 401, 1, time.Time{})
		for range 3 {
			// It ends with 0 only when every gateway has loaded what was restored.
			f.MustKeyadmin("restore", path, "--yes", "--wait", "20s")
		}
		for _, g := range f.Gateways {
			g.Want(t, created.Token, 401, "invalid_api_key") // the backup does not have it
		}
		for name, l := range map[string]struct {
			*fleet.Load
			status int
		}{"valid": {served, 200}, "revoked": {refused, 401}, "replaced": {replaced, 401}} {
			for _, s := range l.End() {
				if s.Status != l.status {
					t.Fatalf("%d to a request with the %s key", s.Status, name)
				}
			}
		}
		fresh := f.AddGateway()
		fresh.Want(t, kept.Token, 200, "")
		fresh.Want(t, revoked.Token, 401, "invalid_api_key")
		fresh.Want(t, rotated.Token, 401, "invalid_api_key")
	})
}

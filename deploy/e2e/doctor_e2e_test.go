//go:build e2e

package e2e

import (
	"slices"
	"strings"
	"testing"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// Doctor finds nothing on a healthy fleet. Then it finds what differs between two gateways, and an upstream that refuses one of them.
func TestDoctorOnAFleet(t *testing.T) {
	t.Parallel()
	redis := testkit.StartRedis(t, "--appendonly", "yes")
	f := fleet.Start(t, fleet.Spec{Redis: redis.URL, Gateways: 2})
	// On a busy machine, a gateway may be late: then doctor reports that as well.
	finds := func(f *fleet.Fleet, format string, code int, wants ...string) {
		t.Helper()
		var done fleet.Result
		if !testkit.Await(fleet.ReplyWithin, func() bool {
			done = f.Keyadmin("doctor", "-o", format)
			return done.Code == code && !slices.ContainsFunc(wants, func(want string) bool { return !strings.Contains(done.Stdout+done.Stderr, want) })
		}) {
			t.Fatalf("exit code %d, want %d and %q\n%s%s", done.Code, code, wants, done.Stdout, done.Stderr)
		}
	}
	finds(f, "table", 0, "2 gateways without a problem")
	redis2 := testkit.StartRedis(t, "--maxmemory-policy", "allkeys-lru")
	g := fleet.Start(t, fleet.Spec{Database: f.Database, Redis: redis2.URL, Gateways: 1, GatewayEnv: []string{"GATEWAY_ID=gw-3", "GATEWAY_BAN_AFTER=5"}})
	finds(g, "csv", 1, "--ban-after differs", "REDIS_URL differs", "maxmemory-policy allkeys-lru", "appendonly no")
}

//go:build e2e

package e2e

import (
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
	if done := f.Keyadmin("doctor"); done.Code != 0 || !strings.Contains(done.Stderr, "2 gateways without a problem, Redis keeps what it is given") {
		t.Fatalf("a healthy fleet: exit code %d\n%s%s", done.Code, done.Stdout, done.Stderr)
	}
	redis2 := testkit.StartRedis(t, "--maxmemory-policy", "allkeys-lru")
	g := fleet.Start(t, fleet.Spec{Database: f.Database, Redis: redis2.URL, Gateways: 1, GatewayEnv: []string{"GATEWAY_BAN_AFTER=5"}})
	done := g.Keyadmin("doctor", "-o", "csv")
	for _, want := range []string{"--ban-after differs", "--redis-url differs", "maxmemory-policy allkeys-lru", "appendonly no"} {
		if !strings.Contains(done.Stdout, want) {
			t.Errorf("doctor does not find %q: exit code %d\n%s%s", want, done.Code, done.Stdout, done.Stderr)
		}
	}
	if done.Code != 1 {
		t.Errorf("exit code %d, want 1", done.Code)
	}
}

//go:build e2e

package e2e_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// The reader of the logs hangs, and the pipe is full. Nothing waits for the reader: neither a request, even when Redis
// goes down, nor a change of a key, nor the end of the program.
func TestUnreadLogHoldsUpNothing(t *testing.T) {
	t.Parallel()
	const lines = 1500 // of more than 64 KiB, which fill a pipe
	server := testkit.StartRedis(t)
	redis := testkit.NewProxy(t, server.Addr)
	f := fleet.Start(t, fleet.Spec{})
	postgres, through := throughProxy(t, f.Database)
	pets := f.AddPets()
	gateway := f.AddGateway(through, "REDIS_URL=redis://"+redis.Addr, "GATEWAY_UPSTREAMS="+pets.URL)
	for _, p := range []*fleet.Program{pets, gateway} {
		pipeOutput(t, p) // which nothing reads
		p.AwaitReady(t)
	}
	key := f.NewTenant("acme", fleet.Unlimited...)
	c := gateway.Client()
	defer c.Close()
	ask := func(what string, times int) {
		t.Helper()
		for range times {
			if got := c.Must(t, fleet.GetPets(key.Token)); got.Status != http.StatusOK || got.Took > 5*time.Second {
				t.Fatalf("%s: %v after %v", what, got, got.Took)
			}
		}
	}
	ask("the pipe fills", lines)
	redis.Kill()
	ask("Redis is down", 20)
	redis.Restore(t)
	ask("Redis is back", 20)
	postgres.Kill()
	testkit.Eventually(t, fleet.ReplyWithin, "the gateway is silent", func() bool {
		ask("Postgres is down", 1)
		return strings.Contains(f.MustKeyadmin("gateway", "list"), "silent")
	})
	postgres.Restore(t)
	f.MustKeyadmin("key", "revoke", key.ID, "--yes", "--wait", "20s")
	if got := c.Must(t, fleet.GetPets(key.Token)); got.Status != http.StatusUnauthorized {
		t.Errorf("the revoked key: %v", got)
	}
	for _, p := range []*fleet.Program{gateway, pets} {
		if code := p.Stop(); code != 0 {
			t.Errorf("%s: exit code %d", p.URL, code)
		}
	}
}

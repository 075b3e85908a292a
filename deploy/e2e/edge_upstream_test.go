package e2e_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// TestHangingPets pauses the pet service: the kernel accepts connections, and nothing answers.
func TestHangingPets(t *testing.T) {
	t.Parallel()
	const deadline = 2 * time.Second
	f := fleet.Start(t, fleet.Spec{Gateways: 1, GatewayEnv: []string{"GATEWAY_UPSTREAM_TIMEOUT=" + deadline.String()}})
	key := f.NewTenant("acme", fleet.Unlimited...)
	c := f.Gateways[0].Client()
	defer c.Close()
	// On a busy machine, a request may miss the deadline. The key makes it safe to repeat.
	stored := func(name string) {
		t.Helper()
		testkit.Eventually(t, fleet.ReplyWithin, name+" is stored", func() bool {
			return c.Must(t, fleet.PostPet(key.Token, name, fmt.Sprintf("Idempotency-Key: %q", name))).Status == 201
		})
	}
	stored("before")
	f.Pets.Pause(t)
	defer f.Pets.Resume()
	var slowest time.Duration
	for _, request := range []string{fleet.GetPets(key.Token), fleet.PostPet(key.Token, "meanwhile"), fleet.GetPets(key.Token)} {
		began := time.Now()
		got := c.Must(t, request)
		took := time.Since(began)
		slowest = max(slowest, took)
		if got.Status != 504 || !strings.Contains(got.Body, `"upstream_timeout"`) || took < deadline/2 {
			t.Errorf("after %v: %d %s", took, got.Status, got.Body)
		}
	}
	if slowest > 5*deadline {
		t.Errorf("a 504 took %v, the deadline is %v", slowest, deadline)
	}
	f.Pets.Resume()
	began := time.Now()
	testkit.Eventually(t, fleet.ReplyWithin, "normal service", func() bool {
		got := c.Must(t, fleet.GetPets(key.Token))
		return got.Status == 200
	})
	again := time.Since(began)
	stored("after")
	rows := petRows(t, f)
	if rows["before"] != 1 || rows["after"] != 1 || rows["meanwhile"] > 1 {
		t.Errorf("stored: %v", rows)
	}
	t.Logf("figure: a pet service that hangs: 504 after at most %v with a deadline of %v, normal %v after it goes on",
		slowest.Round(time.Millisecond), deadline, again.Round(time.Millisecond))
}

// TestSocketAndSecret uses one gateway with a pet service on a Unix socket, and one with a pet service that requires a secret.
func TestSocketAndSecret(t *testing.T) {
	t.Parallel()
	f := fleet.Start(t, fleet.Spec{})
	key := f.NewTenant("acme", fleet.Unlimited...)
	socket := "unix:" + filepath.Join(t.TempDir(), "pets.sock")
	f.AddPets("PETSVC_LISTEN=" + socket)
	guarded := f.AddPets("PETSVC_SECRET=open sesame")
	for _, settings := range [][]string{
		{"GATEWAY_UPSTREAMS=" + socket},
		{"GATEWAY_UPSTREAMS=" + guarded.URL, "GATEWAY_UPSTREAM_SECRET=open sesame"},
	} {
		c := f.AddGateway(settings...).Client()
		if got := c.Must(t, fleet.PostPet(key.Token, settings[0])); got.Status != 201 {
			t.Errorf("%v: %d %s", settings, got.Status, got.Body)
		}
		if got := c.Must(t, fleet.GetPets(key.Token)); got.Status != 200 || !strings.HasPrefix(got.Body, `[{"id":`) {
			t.Errorf("%v: %d %s", settings, got.Status, got.Body)
		}
		c.Close()
	}
	mistaken := f.AddGateway("GATEWAY_UPSTREAMS="+guarded.URL, "GATEWAY_UPSTREAM_SECRET=close sesame")
	c := mistaken.Client()
	defer c.Close()
	if got := c.Must(t, fleet.GetPets(key.Token)); got.Status != 502 || !strings.Contains(got.Body, `"upstream_refused"`) {
		t.Errorf("with a wrong secret: %d %s", got.Status, got.Body)
	}
	if page := mistaken.AdminPage(t, "/readyz"); !strings.Contains(page, "GATEWAY_UPSTREAM_SECRET") {
		t.Errorf("with a wrong secret, /readyz says %s", page)
	}
	direct := guarded.Client()
	defer direct.Close()
	for _, fields := range [][]string{nil, {"X-Gateway-Secret: guessed"}} {
		if got := direct.Must(t, fleet.GetPets("any", fields...)); got.Status != 401 || !strings.Contains(got.Body, `"gateway_only"`) {
			t.Errorf("a direct client with %v: %d %s", fields, got.Status, got.Body)
		}
	}
	t.Log("figure: a unix: upstream serves; a pet service with a secret answers its gateway, and a direct client 401")
}

package e2e_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// TestHangingPets stops the pet service in its tracks: connections are accepted by the kernel, and nothing is answered.
func TestHangingPets(t *testing.T) {
	together(t)
	const deadline = 500 * time.Millisecond
	f := fleet.Start(t, fleet.Spec{Gateways: 1, GatewayEnv: []string{"GATEWAY_UPSTREAM_TIMEOUT=" + deadline.String()}})
	key := f.NewTenant("acme", limitless...)
	c := call(f.Gateways[0])
	defer c.close()
	if got := c.must(t, postPet(key.Token, "before")); got.StatusCode != 201 {
		t.Fatalf("%d %s", got.StatusCode, got.body)
	}
	f.Pets.Signal(syscall.SIGSTOP)
	defer f.Pets.Signal(syscall.SIGCONT)
	var slowest time.Duration
	for _, request := range []string{getPets(key.Token), postPet(key.Token, "meanwhile"), getPets(key.Token)} {
		began := time.Now()
		got := c.must(t, request)
		took := time.Since(began)
		slowest = max(slowest, took)
		if got.StatusCode != 504 || !strings.Contains(got.body, `"upstream_timeout"`) || took < deadline/2 {
			t.Errorf("after %v: %d %s", took, got.StatusCode, got.body)
		}
	}
	if slowest > deadline+2*time.Second {
		t.Errorf("a 504 took %v, the deadline is %v", slowest, deadline)
	}
	f.Pets.Signal(syscall.SIGCONT)
	began := time.Now()
	testkit.Eventually(t, replyWithin, "normal service", func() bool {
		got := c.must(t, getPets(key.Token))
		return got.StatusCode == 200
	})
	again := time.Since(began)
	if got := c.must(t, postPet(key.Token, "after")); got.StatusCode != 201 {
		t.Errorf("%d %s", got.StatusCode, got.body)
	}
	rows := petRows(t, f)
	if rows["before"] != 1 || rows["after"] != 1 || rows["meanwhile"] > 1 {
		t.Errorf("stored: %v", rows)
	}
	t.Logf("figure: a pet service that hangs: 504 after at most %v with a deadline of %v, normal %v after it goes on",
		slowest.Round(time.Millisecond), deadline, again.Round(time.Millisecond))
}

// TestSocketAndSecret puts a gateway before a pet service on a Unix socket, and one before a pet service that knows a secret.
func TestSocketAndSecret(t *testing.T) {
	together(t)
	f := fleet.Start(t, fleet.Spec{})
	key := f.NewTenant("acme", limitless...)
	socket := "unix:" + filepath.Join(t.TempDir(), "pets.sock")
	f.AddPets("PETSVC_LISTEN=" + socket)
	guarded := f.AddPets("PETSVC_SECRET=open sesame")
	for _, settings := range [][]string{
		{"GATEWAY_UPSTREAMS=" + socket},
		{"GATEWAY_UPSTREAMS=" + guarded.URL, "GATEWAY_UPSTREAM_SECRET=open sesame"},
	} {
		c := call(f.AddGateway(settings...))
		if got := c.must(t, postPet(key.Token, settings[0])); got.StatusCode != 201 {
			t.Errorf("%v: %d %s", settings, got.StatusCode, got.body)
		}
		if got := c.must(t, getPets(key.Token)); got.StatusCode != 200 || !strings.HasPrefix(got.body, `[{"id":`) {
			t.Errorf("%v: %d %s", settings, got.StatusCode, got.body)
		}
		c.close()
	}
	direct := call(guarded)
	defer direct.close()
	for _, fields := range [][]string{nil, {"X-Gateway-Secret: guessed"}} {
		if got := direct.must(t, getPets("any", fields...)); got.StatusCode != 403 || !strings.Contains(got.body, `"gateway_only"`) {
			t.Errorf("a direct client with %v: %d %s", fields, got.StatusCode, got.body)
		}
	}
	t.Log("figure: a unix: upstream serves; a pet service with a secret answers its gateway, and a direct client 403")
}

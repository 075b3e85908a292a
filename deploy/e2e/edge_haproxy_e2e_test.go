//go:build e2e

package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// startHAProxy starts haproxy in front of three gateways, with the configuration of docs/operations.md. Only the addresses are
// changed. It returns the address of haproxy.
func startHAProxy(t *testing.T, gateways []*fleet.Program) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```haproxy\n")
	config, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("docs/operations.md has no haproxy block")
	}
	address := "127.0.0.1:" + strconv.Itoa(testkit.FreePort(t))
	runHAProxy(t, config, gateways, "bind :80", "bind "+address)
	return address
}

// runHAProxy starts haproxy with a configuration in which the addresses of the gateways are changed, and the given pairs of an old
// and a new text.
func runHAProxy(t *testing.T, config string, gateways []*fleet.Program, changes ...string) {
	t.Helper()
	for n, g := range gateways {
		_, port, _ := strings.Cut(strings.TrimPrefix(g.Admin, "http://"), ":")
		changes = append(changes, fmt.Sprintf("10.0.0.%d:8080 check port 9090", n+1), g.Addr()+" check port "+port)
	}
	path := filepath.Join(t.TempDir(), "haproxy.cfg")
	writeFile(t, path, replaceEach(t, config, changes))
	p := testkit.Start(t, findProgram(t, "haproxy"), nil, "-db", "-f", path)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("haproxy said:\n%s%s", p.Stdout, p.Stderr)
		}
	})
}

// replaceEach replaces in a configuration each old text by its new one. All old texts have to be there.
func replaceEach(t *testing.T, config string, changes []string) string {
	t.Helper()
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(config, changes[i]) {
			t.Fatalf("the configuration has no %q", changes[i])
		}
	}
	return strings.NewReplacer(changes...).Replace(config)
}

// findProgram also searches the directory in which Debian keeps programs for root.
func findProgram(t *testing.T, name string) string {
	t.Helper()
	for _, name := range []string{name, "/usr/sbin/" + name} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatalf("no %[1]s on this machine: run TEST_PROGRAMS=%[1]s deploy/services.sh, which installs it", name)
	return ""
}

func awaitBalancer(t *testing.T, address, token string) {
	t.Helper()
	c := &fleet.Client{Addr: address}
	defer c.Close()
	testkit.Eventually(t, fleet.ReplyWithin, "haproxy serves", func() bool {
		got, err := c.Do(fleet.GetPets(token))
		return err == nil && got.Status == 200
	})
}

// TestRollingGateways restarts each of three gateways behind haproxy in turn, with all settings at their defaults, and then
// both pet services behind them.
func TestRollingGateways(t *testing.T) {
	t.Parallel()
	url, prefix := testkit.Redis(t)
	f := fleet.Start(t, fleet.Spec{Redis: url, RedisPrefix: prefix})
	pets := []*fleet.Program{f.AddPets(), f.AddPets()}
	for range 3 {
		f.AddGateway("GATEWAY_UPSTREAMS=" + pets[0].URL + "," + pets[1].URL)
	}
	key := f.NewTenant("acme", fleet.Unlimited...)
	address := startHAProxy(t, f.Gateways)
	awaitBalancer(t, address, key.Token)
	load := startTraffic(key.Token, address)
	load.roll(t, f.Gateways)
	for _, p := range pets {
		restart(t, p)
		load.more(t, 250)
	}
	load.least(t, 10_000)
	load.end()
	load.faultless(t)
	if n := load.stored(t, f); n != 0 {
		t.Errorf("%d pets are stored without an answer", n)
	}
	t.Logf("figure: rolling restart of three gateways behind haproxy and of two pet services, under load: %d of %d requests failed, "+
		"slowest %v; %d created, each stored once", len(load.wrong), load.total(), load.slowest.Round(time.Millisecond), load.counts[201])
}

// TestForwardedAddress sends requests through haproxy with keys that have an allow-list, some of them with forged header fields.
func TestForwardedAddress(t *testing.T) {
	t.Parallel()
	f := fleet.Start(t, fleet.Spec{Gateways: 3, GatewayEnv: []string{"GATEWAY_TRUSTED_PROXIES=127.0.0.1/32"}})
	free := f.NewTenant("acme", fleet.Unlimited...)
	office := f.NewKey("acme", "--allow", "127.0.0.2/32")
	inside := f.NewKey("acme", "--allow", "127.0.0.1/32") // where haproxy is
	balancer := startHAProxy(t, f.Gateways)
	awaitBalancer(t, balancer, free.Token)
	gateway := f.Gateways[0].Addr()
	cases, wrong := 0, 0
	want := func(status int, address, from, token string, fields ...string) {
		t.Helper()
		cases++
		c := &fleet.Client{Addr: address, From: from}
		defer c.Close()
		if got := c.Must(t, fleet.GetPets(token, fields...)); got.Status != status {
			wrong++
			t.Errorf("from %s with %q: %d %s, want %d", from, fields, got.Status, got.Body, status)
		}
	}
	want(200, balancer, "127.0.0.2", office.Token)
	want(403, balancer, "127.0.0.3", office.Token)
	for _, forged := range [][]string{
		{"X-Forwarded-For: 127.0.0.2"},
		{"X-Forwarded-For: 127.0.0.1"},
		{"X-Forwarded-For: 127.0.0.2, 127.0.0.1"},
		{"X-Forwarded-For: ,"},
		{"X-Forwarded-For: 127.0.0.1", "X-Forwarded-For: 127.0.0.1"},
		{"X-Real-IP: 127.0.0.2"},
		{"Forwarded: for=127.0.0.2"},
		{"Connection: X-Forwarded-For"},
		{"Connection: close, X-Forwarded-For"},
	} {
		for _, key := range []fleet.Key{office, inside} {
			want(403, balancer, "127.0.0.3", key.Token, forged...)
			want(403, gateway, "127.0.0.3", key.Token, forged...) // not a proxy, so its header fields are not trusted
		}
		want(200, balancer, "127.0.0.2", office.Token, forged...)
	}
	t.Logf("figure: allow-lists behind haproxy: %d calls with honest and forged addresses, %d not decided by the true one", cases, wrong)
}

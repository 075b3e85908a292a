//go:build e2e

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// startNginx starts nginx in front of two gateways, with the configuration of docs/operations.md. Only the addresses and the
// certificate are changed.
func startNginx(t *testing.T, gateways []*fleet.Program) *http2Front {
	t.Helper()
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```nginx\n")
	config, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("docs/operations.md has no nginx block")
	}
	front, address, certificate := newHTTP2Front(t)
	changes := []string{"listen 443 ", "listen " + address + " ", "/etc/nginx/petgate.pem", certificate}
	for n, g := range gateways {
		changes = append(changes, fmt.Sprintf("server 10.0.0.%d:8080", n+1), "server "+g.Addr())
	}
	dir := t.TempDir()
	own := fmt.Sprintf("daemon off;\nworker_processes 1;\npid %[1]s/pid;\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\n", dir)
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		own += fmt.Sprintf("%s_temp_path %s/%s;\n", kind, dir, kind)
	}
	path := filepath.Join(dir, "nginx.conf")
	writeFile(t, path, own+replaceEach(t, config, changes)+"}\n")
	p := testkit.Start(t, findProgram(t, "nginx"), nil, "-e", "stderr", "-c", path)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("nginx said:\n%s%s", p.Stdout, p.Stderr)
		}
	})
	return front
}

// TestNginx restarts two gateways in turn behind nginx, which has no health checks, while a client with 50 HTTP/2 streams lists pets. It
// adds none: nginx does not repeat a POST whose connection ends.
func TestNginx(t *testing.T) {
	t.Parallel()
	url, prefix := testkit.Redis(t)
	f := fleet.Start(t, fleet.Spec{Redis: url, RedisPrefix: prefix, Gateways: 2, GatewayEnv: []string{"GATEWAY_DRAIN_DELAY=1s"}})
	key := f.NewTenant("acme", fleet.Unlimited...)
	c := startNginx(t, f.Gateways).client(t, "127.0.0.1")
	c.await(t, key.Token)
	load := startHTTP2Traffic(c, key.Token, 0)
	load.roll(t, f.Gateways)
	load.end()
	load.faultless(t)
	t.Logf("figure: rolling restart of two gateways behind nginx, %d HTTP/2 streams: %d of %d GETs lost", streams, len(load.wrong), load.total())
}

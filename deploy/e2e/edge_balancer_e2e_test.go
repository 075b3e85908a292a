//go:build e2e

package e2e_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

func restart(t *testing.T, p *fleet.Program) {
	t.Helper()
	if code := p.Stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM:\n%s", code, p.Stderr)
	}
	p.Start(t)
}

// streams is how many requests an HTTP/2 client of these tests sends at a time, on one connection.
const streams = 50

// balancer is haproxy or nginx in front of gateways.
type balancer struct {
	address string
	roots   *x509.CertPool // of its certificate
	pem     string         // its certificate and key
}

// newBalancer returns one that is not started.
func newBalancer(t *testing.T) *balancer {
	t.Helper()
	files := testkit.NewAuthority(t).SaveServer(1, time.Now().Add(time.Hour))
	b := &balancer{
		address: "127.0.0.1:" + strconv.Itoa(testkit.FreePort(t)),
		roots:   x509.NewCertPool(),
		pem:     filepath.Join(t.TempDir(), "both.pem"),
	}
	b.roots.AppendCertsFromPEM([]byte(read(t, files.CA)))
	writeFile(t, b.pem, read(t, files.Cert)+read(t, files.Key))
	return b
}

// run runs the program on a configuration in which each of some texts is replaced. All of them have
// to be there.
func (b *balancer) run(t *testing.T, program, config string, changes []string, args ...string) {
	t.Helper()
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(config, changes[i]) {
			t.Fatalf("the configuration has no %q", changes[i])
		}
	}
	path := filepath.Join(t.TempDir(), program+".conf")
	writeFile(t, path, strings.NewReplacer(changes...).Replace(config))
	p := testkit.Start(t, findProgram(t, program), nil, append(args, path)...)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s said:\n%s%s", program, p.Stdout, p.Stderr)
		}
	})
}

func (b *balancer) runHAProxy(t *testing.T, gateways []*fleet.Program) {
	t.Helper()
	changes := []string{"bind :443 ", "bind " + b.address + " ", "/etc/haproxy/petgate.pem", b.pem}
	for n, g := range gateways {
		_, port, _ := strings.Cut(strings.TrimPrefix(g.Admin, "http://"), ":")
		changes = append(changes, fmt.Sprintf("10.0.0.%d:8080 check port 9090", n+1), g.Addr()+" check port "+port)
	}
	b.run(t, "haproxy", read(t, "../haproxy/haproxy.cfg"), changes, "-db", "-f")
}

func (b *balancer) runNginx(t *testing.T, gateways []*fleet.Program) {
	t.Helper()
	_, rest, _ := strings.Cut(read(t, "../../docs/operations.md"), "```nginx\n")
	config, _, _ := strings.Cut(rest, "```")
	changes := []string{"listen 443 ", "listen " + b.address + " ", "/etc/nginx/petgate.pem", b.pem}
	for n, g := range gateways {
		changes = append(changes, fmt.Sprintf("server 10.0.0.%d:8080", n+1), "server "+g.Addr())
	}
	b.run(t, "nginx", nginxConfig(t, config), changes, "-e", "stderr", "-c")
}

// nginxConfig returns a whole configuration, which needs no directory of the system.
func nginxConfig(t *testing.T, http string) string {
	dir := t.TempDir()
	text := fmt.Sprintf(
		"daemon off;\nmaster_process off;\npid %s/pid;\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\n", dir)
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		text += fmt.Sprintf("%s_temp_path %s/%s;\n", kind, dir, kind)
	}
	return text + http + "}\n"
}

func read(t *testing.T, path string) string {
	t.Helper()
	return string(must.Get[[]byte](t)(os.ReadFile(path)))
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

// http2Client sends requests on one connection at a time.
type http2Client struct {
	http.Client
	url   string
	dials atomic.Int64
}

// client returns a client that calls from an address.
func (b *balancer) client(t *testing.T, from string) *http2Client {
	c := &http2Client{url: "https://" + b.address + "/v1/pets"}
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	transport := &http.Transport{
		ForceAttemptHTTP2: true, MaxConnsPerHost: 1, TLSClientConfig: &tls.Config{RootCAs: b.roots},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c.dials.Add(1)
			return dialer.DialContext(ctx, network, address)
		},
	}
	c.Transport = transport
	t.Cleanup(transport.CloseIdleConnections)
	return c
}

// do lists pets, or adds one if there is a name. A response by another protocol than HTTP/2 is an
// error.
func (c *http2Client) do(token, name string, fields ...string) (fleet.Reply, error) {
	method, body := http.MethodGet, ""
	if name != "" {
		method, body = http.MethodPost, fmt.Sprintf(`{"name":%q,"categoryId":1}`, name)
	}
	request, err := http.NewRequest(method, c.url, strings.NewReader(body))
	if err != nil {
		return fleet.Reply{}, err
	}
	request.Header = http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}}
	for _, field := range fields {
		name, value, _ := strings.Cut(field, ": ")
		request.Header.Add(name, value)
	}
	response, err := c.Do(request)
	if err != nil {
		return fleet.Reply{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.ProtoMajor != 2 {
		err = errors.New("the response is by " + response.Proto)
	}
	return fleet.Reply{Status: response.StatusCode, Body: string(text)}, err
}

// traffic sends load on all streams.
func (c *http2Client) traffic(token string, group int) *traffic {
	return newTraffic(streams, 250*time.Millisecond, group,
		func(_ int, name string, fields ...string) (fleet.Reply, error) { return c.do(token, name, fields...) })
}

// balanced is two gateways behind balancers that have the configurations of the documentation.
type balanced struct {
	*fleet.Fleet
	balancers    map[string]*balancer // haproxy and nginx, with TLS and HTTP/2
	free, office fleet.Key            // office calls from 127.0.0.2 only
}

// TestRollingGateways sends requests through haproxy and nginx, with HTTP/1.1 and HTTP/2:
// allow-lists see the address of the client, and each of the gateways and pet services restarts
// under load.
func TestRollingGateways(t *testing.T) {
	t.Parallel()
	url, prefix := testkit.Redis(t)
	s := &balanced{balancers: map[string]*balancer{"haproxy": newBalancer(t), "nginx": newBalancer(t)}}
	s.Fleet = fleet.Start(
		t,
		fleet.Spec{
			Redis:       url,
			RedisPrefix: prefix,
			GatewayEnv:  []string{"GATEWAY_TRUSTED_PROXIES=127.0.0.1/32", "GATEWAY_DRAIN_DELAY=5s"},
		},
	)
	pets := []*fleet.Program{s.AddPets("PETSVC_DRAIN_DELAY=5s"), s.AddPets("PETSVC_DRAIN_DELAY=5s")}
	for range 2 {
		s.AddGateway("GATEWAY_UPSTREAMS=" + pets[0].URL + "," + pets[1].URL)
	}
	s.free, s.office = s.NewTenant("acme", fleet.Unlimited...), s.NewKey("acme", "--allow", "127.0.0.2/32")
	s.balancers["haproxy"].runHAProxy(t, s.Gateways)
	s.balancers["nginx"].runNginx(t, s.Gateways)
	clients := map[string]*http2Client{}
	for name, b := range s.balancers {
		clients[name] = b.client(t, "127.0.0.1")
		testkit.Eventually(t, fleet.ReplyWithin, name+" serves",
			func() bool { got, _ := clients[name].do(s.free.Token, ""); return got.Status == 200 })
	}
	s.decideByAddress(t)

	before := clients["haproxy"].dials.Load()
	loads := map[string]*traffic{"HTTP/1.1": startTraffic(s.free.Token, fleet.Client{
		Addr: s.balancers["haproxy"].address,
		TLS:  &tls.Config{RootCAs: s.balancers["haproxy"].roots, ServerName: "127.0.0.1"},
	}), "HTTP/2": clients["haproxy"].traffic(s.free.Token, 4)}
	lists := clients["nginx"].traffic(s.free.Token, 0) // nginx does not repeat a POST whose connection ends
	for _, g := range s.Gateways {
		loads["HTTP/1.1"].more(t, 250)
		restart(t, g)
		testkit.Eventually(t, fleet.ReplyWithin, "requests at the gateway that was restarted", func() bool {
			return g.Metric(t, "petgate_gateway_requests_total", `outcome="ok"`) > 0
		})
	}
	lists.end()
	lists.faultless(t)
	t.Logf("figure: rolling restart of two gateways behind nginx, %d HTTP/2 streams: %d of %d GETs lost", streams,
		len(lists.wrong), lists.total())
	for _, p := range pets {
		loads["HTTP/1.1"].more(t, 250)
		restart(t, p)
	}
	loads["HTTP/1.1"].least(t, 10_000)
	for name, load := range loads {
		load.end()
		load.faultless(t)
		must.Equal(t, load.stored(t, s.Fleet), 0, "%s: pets that are stored without an answer", name)
		t.Logf(
			"figure: rolling restart of the gateways behind haproxy and of two pet services, under load by %s: "+
				"%d of %d requests failed, slowest %v; "+
				"%d pets created, each stored once",
			name,
			len(load.wrong),
			load.total(),
			load.slowest.Round(time.Millisecond),
			load.counts[201],
		)
	}
	must.Equal(t, clients["haproxy"].dials.Load()-before, 0,
		"connections to haproxy that the HTTP/2 client opened meanwhile")
}

// asker is a way to list pets from an address.
type asker func(token, _ string, fields ...string) (fleet.Reply, error)

// decideByAddress calls from two addresses with a key for one of them, some of the time with forged
// fields.
func (s *balanced) decideByAddress(t *testing.T) {
	inside := s.NewKey("acme", "--allow", "127.0.0.1/32") // where the balancers are
	cases := 0
	for _, from := range []string{"127.0.0.2", "127.0.0.3"} {
		asks := map[string]asker{"no balancer": func(token, _ string, fields ...string) (fleet.Reply, error) {
			c := &fleet.Client{Addr: s.Gateways[0].Addr(), From: from}
			defer c.Close()
			return c.Do(fleet.GetPets(token, fields...))
		}}
		for name, b := range s.balancers {
			asks[name] = b.client(t, from).do
		}
		for _, forged := range [][]string{
			nil,
			{"X-Forwarded-For: 127.0.0.2"},
			{"X-Forwarded-For: 127.0.0.2, 127.0.0.1"},
			{"X-Forwarded-For: ,"},
			{"X-Real-IP: 127.0.0.2", "Forwarded: for=127.0.0.2"},
		} {
			for name, ask := range asks {
				for _, key := range []fleet.Key{s.office, inside} {
					cases++
					want := 403
					if key == s.office && from == "127.0.0.2" {
						want = 200
					}
					if got, err := ask(key.Token, "", forged...); got.Status != want || err != nil {
						t.Errorf("%s, from %s with %q: %v %v, want %d", name, from, forged, got, err, want)
					}
				}
			}
		}
	}
	t.Logf(
		"figure: allow-lists behind haproxy and nginx: %d calls with honest and forged addresses, each decided by the true one",
		cases,
	)
}

//go:build e2e

package e2e_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// streams is how many requests an HTTP/2 client of these tests sends at a time, on one connection.
const streams = 50

// http2Front is haproxy with deploy/haproxy/haproxy.cfg.
type http2Front struct {
	url   string
	roots *x509.CertPool
}

func startHTTP2Front(t *testing.T, gateways []*fleet.Program) *http2Front {
	t.Helper()
	config, err := os.ReadFile("../haproxy/haproxy.cfg")
	must.Do(t, err)
	f, address, certificate := newHTTP2Front(t)
	runHAProxy(t, string(config), gateways, "bind :443 ", "bind "+address+" ", "/etc/haproxy/petgate.pem", certificate)
	return f
}

// newHTTP2Front returns a front that is not started, its address, and a PEM file with its certificate, its key and their authority.
func newHTTP2Front(t *testing.T) (f *http2Front, address, certificate string) {
	t.Helper()
	files := testkit.NewAuthority(t).SaveServer(1, time.Now().Add(time.Hour))
	certificate = filepath.Join(t.TempDir(), "both.pem")
	f = &http2Front{roots: x509.NewCertPool()}
	var text []byte
	for _, path := range []string{files.Cert, files.Key, files.CA} {
		part, err := os.ReadFile(path)
		must.Do(t, err)
		f.roots.AppendCertsFromPEM(part)
		text = append(text, part...)
	}
	writeFile(t, certificate, string(text))
	address = "127.0.0.1:" + strconv.Itoa(testkit.FreePort(t))
	f.url = "https://" + address
	return f, address, certificate
}

// http2Client sends requests on one connection at a time.
type http2Client struct {
	http.Client
	url   string
	dials atomic.Int64
}

// client returns a client that calls from an address.
func (f *http2Front) client(t *testing.T, from string) *http2Client {
	c := &http2Client{url: f.url + "/v1/pets"}
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	transport := &http.Transport{
		ForceAttemptHTTP2: true, MaxConnsPerHost: 1, TLSClientConfig: &tls.Config{RootCAs: f.roots},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c.dials.Add(1)
			return dialer.DialContext(ctx, network, address)
		},
	}
	c.Transport = transport
	t.Cleanup(transport.CloseIdleConnections)
	return c
}

// do returns the status and the body of a response. A response by another protocol than HTTP/2 is an error.
func (c *http2Client) do(method, token, body string, fields ...string) (status int, content string, err error) {
	request, err := http.NewRequest(method, c.url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for _, field := range fields {
		name, value, _ := strings.Cut(field, ": ")
		request.Header.Add(name, value)
	}
	response, err := c.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.ProtoMajor != 2 {
		err = fmt.Errorf("the response is by %s", response.Proto)
	}
	return response.StatusCode, string(text), err
}

func (c *http2Client) await(t *testing.T, token string) {
	t.Helper()
	testkit.Eventually(t, fleet.ReplyWithin, "haproxy serves", func() bool {
		status, _, err := c.do("GET", token, "")
		return err == nil && status == 200
	})
}

// startHTTP2Traffic sends load on all streams.
func startHTTP2Traffic(c *http2Client, token string, group int) *traffic {
	return newTraffic(streams, 250*time.Millisecond, group, func(_ int, name string, fields ...string) (fleet.Reply, error) {
		method, body := "GET", ""
		if name != "" {
			method, body = "POST", fmt.Sprintf(`{"name":%q,"categoryId":1}`, name)
		}
		status, text, err := c.do(method, token, body, fields...)
		return fleet.Reply{Status: status, Body: text}, err
	})
}

// TestHTTP2 restarts two gateways in turn, behind haproxy, while a client with 50 streams on one connection lists and adds pets.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	url, prefix := testkit.Redis(t)
	f := fleet.Start(t, fleet.Spec{Redis: url, RedisPrefix: prefix, Gateways: 2})
	key := f.NewTenant("acme", fleet.Unlimited...)
	front := startHTTP2Front(t, f.Gateways)
	c := front.client(t, "127.0.0.1")
	c.await(t, key.Token)
	before := c.dials.Load()
	load := startHTTP2Traffic(c, key.Token, 4)
	load.roll(t, f.Gateways)
	load.end()
	load.faultless(t)
	load.stored(t, f)
	if n := c.dials.Load() - before; n != 0 {
		t.Errorf("the client opened %d more connections", n)
	}
	t.Logf("figure: rolling restart of two gateways behind haproxy, %d HTTP/2 streams on one connection: %d of %d requests lost, %d pets stored once",
		streams, len(load.wrong), load.total(), load.counts[201])
}

// TestHTTP2Client sends requests with 50 streams at a time: a key's quota holds, and allow-lists see the address of the client.
func TestHTTP2Client(t *testing.T) {
	t.Parallel()
	const limit = 100
	url, prefix := testkit.Redis(t)
	f := fleet.Start(t, fleet.Spec{Redis: url, RedisPrefix: prefix, Gateways: 2, GatewayEnv: []string{"GATEWAY_TRUSTED_PROXIES=127.0.0.1/32"}})
	free := f.NewTenant("acme", fleet.Unlimited...)
	office := f.NewKey("acme", "--allow", "127.0.0.2/32")
	front := startHTTP2Front(t, f.Gateways)
	c := front.client(t, "127.0.0.1")
	c.await(t, free.Token)

	for from, want := range map[string]int{"127.0.0.2": 200, "127.0.0.3": 403} {
		own := front.client(t, from)
		for _, fields := range [][]string{
			nil, {"X-Forwarded-For: 127.0.0.2"}, {"X-Forwarded-For: 127.0.0.2, 127.0.0.1"}, {"X-Forwarded-For: 127.0.0.1", "Forwarded: for=127.0.0.2"},
		} {
			if status, text, err := own.do("GET", office.Token, "", fields...); status != want || err != nil {
				t.Errorf("from %s with %q: %d %s %v, want %d", from, fields, status, text, err, want)
			}
		}
	}

	// Redis has 50 ms for a call, and a gateway that does not get its answer decides alone. On a machine that is busy, this is repeated until
	// Redis has decided everything.
	attempt := 0
	testkit.Eventually(t, 2*time.Minute, "Redis decides all requests of a load", func() bool {
		attempt++
		small := f.NewTenant("small-"+strconv.Itoa(attempt), "--plan", "free", "--minute", strconv.Itoa(limit), "--day", strconv.Itoa(limit))
		alone := decidedAlone(t, f)
		c.await(t, free.Token) // haproxy closes a connection that has been idle for ten seconds, so the burst follows at once
		dials := c.dials.Load()
		counts := c.burst(t, small.Token, 3*limit)
		if n := decidedAlone(t, f) - alone; n != 0 {
			t.Logf("attempt %d: %v decisions without Redis, %v", attempt, n, counts)
			return false
		}
		if counts[200] != limit || counts[200]+counts[429] != 3*limit {
			t.Errorf("with a limit of %d: %v", limit, counts)
		}
		if n := c.dials.Load() - dials; n != 0 {
			t.Errorf("the client opened %d more connections", n)
		}
		t.Logf("figure: %d HTTP/2 streams on one connection, two gateways: of %d requests with a limit of %d, %d were admitted", streams, 3*limit, limit, counts[200])
		return true
	})
	for _, g := range f.Gateways {
		if n := g.Metric(t, "petgate_gateway_requests_total", `outcome="ok"`); n == 0 {
			t.Errorf("%s got no request", g.ID)
		}
	}
}

// burst sends requests on all streams, and returns how many responses had each status.
func (c *http2Client) burst(t *testing.T, token string, requests int) map[int]int {
	t.Helper()
	var mu sync.Mutex
	counts := map[int]int{}
	var all sync.WaitGroup
	for range streams {
		all.Go(func() {
			for range requests / streams {
				status, text, err := c.do("GET", token, "")
				mu.Lock()
				if counts[status]++; err != nil {
					t.Errorf("%d %s %v", status, text, err)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return counts
}

// decidedAlone is how often gateways decided, or refused to decide, because Redis did not answer in time.
func decidedAlone(t *testing.T, f *fleet.Fleet) (n float64) {
	t.Helper()
	for _, g := range f.Gateways {
		n += g.Metric(t, "petgate_gateway_limits_timeouts_total", "")
		for _, outcome := range []string{"local_admitted", "local_refused", "undecided"} {
			n += g.Metric(t, "petgate_gateway_limits_decisions_total", `outcome="`+outcome+`"`)
		}
		for _, result := range []string{"failed", "unsure"} {
			n += g.Metric(t, "petgate_gateway_limits_trips_total", `result="`+result+`"`)
		}
	}
	return n
}

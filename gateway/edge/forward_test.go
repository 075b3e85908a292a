package edge_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"petgate/gateway/edge"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// An operation goes to the service that it names, with the Host that the settings say. A service that is not there is refused at the start.
func TestServices(t *testing.T) {
	orders := newRawUpstream(t)
	pets := newRawUpstream(t)
	operations := slices.Clone(operations)
	operations[1].Upstream = "orders"
	services := func(host string) func(*setup) {
		return func(s *setup) {
			s.Operations, s.UpstreamHost = operations, host
			s.Upstreams = []string{pets.URL(), "orders=" + orders.URL()}
		}
	}
	for host, want := range map[string]string{"": pets.listener.Addr().String(), edge.OwnHost: pets.listener.Addr().String(), edge.KeepHost: "a", "b:1": "b:1"} {
		r := newRig(t, services(host))
		client := r.dial(t)
		client.ask(t, rawGet())
		client.ask(t, rawPost("Content-Length: 0"))
		seen, ordered := pets.Seen(), orders.Seen()
		if len(seen) != 1 || seen[0].Method != "GET" || len(ordered) != 1 || ordered[0].Method != "POST" {
			t.Fatalf("pets saw %q, orders saw %q", texts(seen), texts(ordered))
		}
		if got := seen[0].Fields["host"][0]; got != want {
			t.Errorf("%s: the Host is %s, want %s", host, got, want)
		}
	}
	for _, upstreams := range [][]string{{pets.URL()}, {"orders=" + orders.URL()}} {
		cfg := edge.Config{Upstreams: upstreams, BodyBytesMax: 1, BodiesBytesMax: 1}
		_, err := edge.New(cfg, edge.Deps{Operations: operations, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), "there is no upstream") {
			t.Errorf("%q: %v", upstreams, err)
		}
	}
}

// A request over TLS is one of HTTP/1.1, whatever else the client offers, and the upstream learns that it came over HTTPS.
func TestTLS(t *testing.T) {
	issued := testkit.NewAuthority(t).Issue(&x509.Certificate{SerialNumber: big.NewInt(2)}, time.Now().Add(time.Hour))
	r := newRig(t, func(s *setup) { s.TLS = &tls.Config{Certificates: []tls.Certificate{issued}} })
	conn, err := tls.Dial("tcp", r.address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}})
	must.Do(t, err)
	client := &rawClient{conn: conn, in: bufio.NewReader(conn)}
	defer client.close()
	got, protocol := client.ask(t, rawGet()), conn.ConnectionState().NegotiatedProtocol
	if seen := r.upstream.Seen(); got.Status != 200 || protocol != "http/1.1" || len(seen) != 1 || !slices.Equal(seen[0].Fields["x-forwarded-proto"], []string{"https"}) {
		t.Errorf("got %d over %q, and the upstream saw %q", got.Status, protocol, seen)
	}
}

// Requests are counted by operation, and the figures of the upstreams by upstream.
func TestMetricsOfOperationsAndUpstreams(t *testing.T) {
	upstream := newRawUpstream(t)
	live, dead := strings.TrimPrefix(upstream.URL(), "http://"), "127.0.0.1:1"
	r := newRig(t, func(s *setup) { s.Upstreams = []string{upstream.URL(), upstream.URL(), "http://" + dead} }) // one is named twice
	client, asked := r.dial(t), 0
	for asked == 0 || r.metric(t, "petgate_gateway_upstream_ejections_total", dead) == 0 {
		if asked++; asked > 1000 {
			t.Fatal("the dead upstream is not ejected")
		}
		client.ask(t, rawGet())
	}
	client.ask(t, rawTarget("/v1/none"))
	client.ask(t, rawBearer(usedUpToken))
	testkit.Eventually(t, patience, "all requests are counted", func() bool { // after their responses
		return r.metric(t, "petgate_gateway_responses_total", "none", "4xx") == 2
	})
	for _, c := range []struct {
		name, label string
		want        float64
	}{
		{"responses_total", "listPets", float64(asked)},
		{"responses_total", "2xx", float64(asked)},
		{"responses_total", "none", 2},
		{"request_seconds", "listPets", float64(asked)},
		{"request_seconds", "none", 2},
		{"upstream_connections", dead, 0},
		{"upstream_failures_total", live, 0},
		{"upstream_ejected", live, 0},
	} {
		if got := r.metric(t, "petgate_gateway_"+c.name, c.label); got != c.want {
			t.Errorf("%s %s: %v, want %v", c.name, c.label, got, c.want)
		}
	}
	open, idle := r.metric(t, "petgate_gateway_upstream_connections", live), r.metric(t, "petgate_gateway_upstream_idle_connections", live)
	if failed := r.metric(t, "petgate_gateway_upstream_failures_total", dead); open == 0 || idle != open || failed < 3 {
		t.Errorf("%v connections, %v of them idle, although no request runs; %v failures of the dead upstream", open, idle, failed)
	}
	if problems, err := testutil.GatherAndLint(r.registry); err != nil || len(problems) != 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}

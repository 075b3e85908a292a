package edge_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"math/big"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"petgate/gateway/directory"
	"petgate/gateway/edge"
	"petgate/gateway/quotas"
	"petgate/gateway/quotas/authfailures"
	"petgate/shared/api"
	"petgate/shared/core/id"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// sunsetAt changes a rig so that the operation getPet ends at end.
func sunsetAt(end time.Time) func(*setup) {
	return func(s *setup) {
		s.Operations = slices.Clone(operations)
		for i, o := range s.Operations {
			if o.ID == "getPet" {
				o.DeprecatedAt = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
				o.SunsetAt, o.Successor, o.Stability = end, "/v1/pets", "beta"
				s.Operations[i] = o
			}
		}
	}
}

// with adds operations to a rig.
func (s *setup) with(more ...api.Operation) { s.Operations = append(slices.Clone(operations), more...) }

// Allow names the methods of a path. One that an upstream may decode to another operation's has no
// operation and no methods.
func TestAllow(t *testing.T) {
	r := newRig(t, func(s *setup) {
		s.with(api.Operation{ID: "getBest", Method: "GET", Path: "/v1/pets/best", Scope: "pets:write"})
	})
	f := func(line, want, allow, message string) {
		t.Helper()
		got := r.ask(t, rawLine(line))
		if got.expect(t, line, want); got.field("allow") != allow || !strings.Contains(got.Body, message) {
			t.Errorf("%s: got Allow %q, want %q; %s", line, got.field("allow"), allow, got.Body)
		}
	}
	f("PUT /v1/pets HTTP/1.1", "405 method_not_allowed", "GET, HEAD, POST", "Its methods are GET, HEAD, POST")
	f("BREW /v1/pets/7 HTTP/1.1", "405 method_not_allowed", "GET, HEAD", "")
	f("GET /v1/pets/b%65st HTTP/1.1", "404 no_such_route", "", "without percent-encoding")
}

// A request costs what its operation says. What is not forwarded costs one. The cost is charged
// from the key's own limits too.
func TestCost(t *testing.T) {
	var asked quotas.Request
	r := newRig(t, func(s *setup) {
		s.with(api.Operation{ID: "search", Method: "GET", Path: "/v1/search", Scope: "pets:write", Cost: 5})
		s.changeEntries(func(e *directory.Entry) {
			e.KeyLimits, e.Limits.Month, e.MonthStarts, e.UsedSince = plan.Limits{Minute: 9}, 9000, 15, 77
		})
		take := s.take
		s.take = func(a quotas.Request) (quota.Verdict, error) {
			asked = a
			return take(a)
		}
	})
	client := r.dial(t)
	search := rawTarget("/v1/search")
	for _, e := range []exchange{
		{request: search, want: "200", operation: "search", cost: 5},
		{request: rawGet(), want: "200", operation: "listPets", cost: 1},
		{request: rawTarget("/v1/none"), want: "404 no_such_route", cost: 1},
		{
			request: strings.Replace(search, token, readerToken, 1), want: "403 insufficient_scope",
			operation: "search", cost: 1,
		},
	} {
		e.counts = charged
		got := r.exchange(t, client, e)
		told := ""
		if e.cost > 1 {
			told = decimal(int(e.cost))
		}
		must.Equal(t, got.field("x-request-cost"), told, "the cost that the client is told")
		policies := got.field("ratelimit-policy")
		must.Equal(t, strings.Contains(policies, `"month";q=9000;w=1555200`), true, "%s", policies)
		must.Equal(t, asked.Cost, e.cost, "the cost that the quotas are asked")
		if asked.Cap.Minute != 9 || asked.Key == (id.Key{}) || asked.MonthStarts != 15 || asked.Since != 77 ||
			asked.Version != 1 {
			t.Errorf("asked %+v", asked)
		}
	}
}

// An operation that needs no key is forwarded without a tenant and charged to nobody, with or
// without a key. Its neighbours need a key.
func TestPublicOperation(t *testing.T) {
	r := newRig(t, func(s *setup) {
		s.BodyBytesMax = len(long)
		s.attempts = func() (state authfailures.State, mayGoOn bool) { return state, true } // they are not limited
		s.with(
			api.Operation{ID: "health", Method: "GET", Path: "/health", IsPublic: true},
			api.Operation{ID: "report", Method: "POST", Path: "/reports/{id}", IsPublic: true},
			api.Operation{ID: "readReport", Method: "GET", Path: "/reports/{id}", Scope: "pets:read"})
	})
	client := r.dial(t)
	f := func(request, want, operation string) {
		t.Helper()
		r.exchange(t, client, exchange{request: request, want: want, operation: operation})
	}
	const longestCopied = 16 << 10
	report := keyless("POST /reports/7 HTTP/1.1", "Content-Length: "+decimal(longestCopied))
	f(keyless("GET /health HTTP/1.1"), "200", "health")
	f(keyless("HEAD /health HTTP/1.1"), "200", "health")
	f(report+repeat("a", longestCopied), "201", "report")
	f(keyless("GET /reports/7 HTTP/1.1"), "401 missing_api_key", "")
	f(keyless("PUT /reports/7 HTTP/1.1", "Content-Length: 0"), "401 missing_api_key", "")
	f(strings.Replace(rawTarget("/health"), token, unknownToken, 1), "200", "health")
	f(keyless("POST /reports/8 HTTP/1.1", "Content-Length: "+decimal(len(long)))+long, "201", "report")
	forwarded := r.upstream.Seen()
	for _, seen := range forwarded {
		if strings.Contains(strings.ToLower(seen.Head), "x-tenant-id") || strings.Contains(seen.Head, "ptg_") {
			t.Errorf("the upstream is told a tenant or a key: %s", seen.Head)
		}
	}
	must.Equal(t, len(forwarded), 5, "how many requests the upstream saw")
	r.upstream.Answer(saying(says("Content-Length: "+decimal(len(long))) + long))
	f(keyless("GET /health HTTP/1.1"), "200", "health")
	must.Equal(t, strings.Contains(r.accessLog.String(), `"bytes":100000,`), true,
		"the length of a long response is logged")
}

// All strangers together get the slots of one tenant, so a tenant still gets its own. A stranger
// who has tried too many keys is refused.
func TestPublicOperationIsBounded(t *testing.T) {
	var isGuessing atomic.Bool
	r := newRig(t, func(s *setup) {
		s.with(api.Operation{ID: "health", Method: "GET", Path: "/health", IsPublic: true})
		s.UpstreamConnsMax, s.UpstreamConnsPerTenant, s.UpstreamTimeout = 2, 1, patience
		s.attempts = func() (authfailures.State, bool) {
			state := guardState
			if isGuessing.Load() {
				state.Remaining = 0
			}
			return state, true
		}
	})
	health, slow := keyless("GET /health HTTP/1.1"), r.hold(t)
	slow.send(t, r.dial(t), keyless("GET /health?slow HTTP/1.1"))
	r.ask(t, health).expect(t, "another stranger", "503 upstream_overloaded")
	r.ask(t, rawGet()).expect(t, "a tenant", "200")
	slow.end(t, 1)
	r.ask(t, health).expect(t, "a stranger", "200")
	isGuessing.Store(true)
	got := r.ask(t, health)
	got.expect(t, "a stranger who guesses", "429 too_many_failed_attempts")
	must.Equal(t, strings.Contains(got.Body, `"limit":120,"used":120,`), true, "the refusal says what was used")
	r.ask(t, rawGet()).expect(t, "a tenant at that address", "200")
}

// An operation goes to the service that it names, with the Host that the settings say. A service
// that is not there is refused at the start.
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
	own := pets.listener.Addr().String()
	for host, want := range map[string]string{"": own, edge.OwnHost: own, edge.KeepHost: "a", "b:1": "b:1"} {
		r := newRig(t, services(host))
		client := r.dial(t)
		client.ask(t, rawGet())
		client.ask(t, rawPost("Content-Length: 0"))
		seen, ordered := pets.Seen(), orders.Seen()
		if len(seen) != 1 || seen[0].Method != "GET" || len(ordered) != 1 || ordered[0].Method != "POST" {
			t.Fatalf("pets saw %q, orders saw %q", texts(seen), texts(ordered))
		}
		must.Equal(t, seen[0].Fields["host"][0], want, "the Host, as %q says", host)
		must.Equal(t, strings.Join(seen[0].Fields["x-forwarded-host"], " AND "), "a", "X-Forwarded-Host")
		must.Equal(t, strings.Join(ordered[0].Fields["content-length"], " AND "), "0",
			"the length of a POST without content")
	}
	for _, upstreams := range [][]string{{pets.URL()}, {"orders=" + orders.URL()}} {
		cfg := edge.Config{Upstreams: upstreams, BodyBytesMax: 1, BodiesBytesMax: 1}
		_, err := edge.New(cfg,
			edge.Deps{Operations: operations, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), "there is no upstream") {
			t.Errorf("%q: %v", upstreams, err)
		}
	}
}

// A request over TLS is one of HTTP/1.1, whatever else the client offers, and the upstream learns
// that it came over HTTPS.
func TestTLS(t *testing.T) {
	issued := testkit.NewAuthority(t).Issue(&x509.Certificate{SerialNumber: big.NewInt(2)}, time.Now().Add(time.Hour))
	r := newRig(t, func(s *setup) { s.TLS = &tls.Config{Certificates: []tls.Certificate{issued}} })
	conn, err := tls.Dial("tcp", r.address,
		&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}})
	must.Do(t, err)
	client := &rawClient{conn: conn, in: bufio.NewReader(conn)}
	defer client.close()
	got, protocol := client.ask(t, rawGet()), conn.ConnectionState().NegotiatedProtocol
	if seen := r.upstream.Seen(); got.Status != 200 || protocol != "http/1.1" || len(seen) != 1 ||
		!slices.Equal(seen[0].Fields["x-forwarded-proto"], []string{"https"}) {
		t.Errorf("got %d over %q, and the upstream saw %q", got.Status, protocol, seen)
	}
}

// The figures of the upstreams are counted by upstream, also of one that is named twice.
func TestMetricsOfUpstreams(t *testing.T) {
	upstream := newRawUpstream(t)
	live, dead := strings.TrimPrefix(upstream.URL(), "http://"), "127.0.0.1:1"
	twice := []string{upstream.URL(), upstream.URL(), "http://" + dead}
	r := newRig(t, func(s *setup) { s.Upstreams = twice })
	client, asked := r.dial(t), 0
	for asked == 0 || r.metric(t, "petgate_gateway_upstream_ejections_total", dead) == 0 {
		if asked++; asked > 1000 {
			t.Fatal("the dead upstream is not ejected")
		}
		client.ask(t, rawGet())
	}
	for _, c := range []struct {
		name, label string
		want        float64
	}{
		{"upstream_connections", dead, 0},
		{"upstream_failures_total", live, 0},
		{"upstream_ejected", live, 0},
	} {
		must.Equal(t, r.metric(t, "petgate_gateway_"+c.name, c.label), c.want, "%s %s", c.name, c.label)
	}
	open := r.metric(t, "petgate_gateway_upstream_connections", live)
	idle := r.metric(t, "petgate_gateway_upstream_idle_connections", live)
	if failed := r.metric(t, "petgate_gateway_upstream_failures_total", dead); open == 0 || idle != open || failed < 3 {
		t.Errorf("%v connections, %v of them idle, although no request runs; %v failures of the dead upstream", open,
			idle, failed)
	}
}

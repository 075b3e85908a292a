package edge_test

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
	"petgate/shared/trace"
)

const (
	callersTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	callersSpan  = "00f067aa0ba902b7"
	sampledField = "traceparent: 00-" + callersTrace + "-" + callersSpan + "-01"
	droppedField = "traceparent: 00-" + callersTrace + "-" + callersSpan + "-00"
)

// traces changes a rig so that it exports spans, with a sampler's ratio. The peer of its
// connections may be a trusted proxy.
func traces(t *testing.T, ratio string, isTrusted bool) func(*setup) {
	t.Helper()
	collector := testkit.StartCollector(t)
	return func(s *setup) {
		s.collector, s.Tracer = collector, newTracer(t, collector, ratio)
		if isTrusted {
			s.TrustedProxies = []netip.Prefix{loopback}
		}
	}
}

func newTracer(t testing.TB, to *testkit.Collector, ratio string) *trace.Tracer {
	t.Helper()
	return must.Get[*trace.Tracer](t)(trace.Open(trace.Config{
		Settings: trace.Settings{Endpoint: to.URL, Ratio: ratio}, Program: "gateway",
		Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
	}))
}

// spans ends the export and returns all spans, after n lines of the access log: a line is written
// after the span has ended.
func (r *rig) spans(t *testing.T, n int) []testkit.ExportedSpan {
	t.Helper()
	r.awaitLines(t, n)
	r.setup.Tracer.Close(patience)
	return r.setup.collector.Spans()
}

// The span of a request is the parent that the upstream gets. It has the caller's span as its
// parent, and what the access log has.
func TestSpan(t *testing.T) {
	r := newRig(t, traces(t, "1", false))
	client := r.dial(t)
	client.ask(t, rawTarget("/v1/pets?secret=1"))
	client.ask(t, rawGet(droppedField)) // the client does not decide
	client.ask(t, rawBearer(usedUpToken))
	seen := r.upstream.Seen()
	spans := r.spans(t, 3)
	if len(spans) != 3 || len(seen) != 2 {
		t.Fatalf("%d spans, %d requests at the upstream", len(spans), len(seen))
	}
	for i, s := range spans {
		line := r.accessLog.Lines()[i]
		if want := fmt.Sprintf(`"traceId":"%x"`, s.TraceId); !strings.Contains(line, want) {
			t.Errorf("the access log has %s, want %s", line, want)
		}
		if strings.Contains(s.String(), "secret") || len(findSecrets(s.String())) > 0 {
			t.Errorf("the span has a secret: %v", s)
		}
		if i < len(seen) {
			flags := []string{"03", "01"}[i] // an ID made here is random
			want := fmt.Sprintf("00-%x-%x-%s", s.TraceId, s.SpanId, flags)
			must.Equal(t, strings.Join(seen[i].Fields["traceparent"], " AND "), want, "what the upstream got")
		}
	}
	parents := fmt.Sprintf("%x %x %x", spans[0].ParentSpanId, spans[1].TraceId, spans[1].ParentSpanId)
	must.Equal(t, parents, " "+callersTrace+" "+callersSpan, "the parents")
	f := func(s testkit.ExportedSpan, of string, want map[string]string) {
		t.Helper()
		texts, entry := s.Texts(), entryOf(of)
		want["url.scheme"] = "http"
		want["petgate.tenant"], want["petgate.key"] = entry.Tenant.String(), entry.Key.String()
		for key, value := range want {
			must.Equal(t, texts[key], value, "%s", key)
		}
		if s.Service != "gateway" || texts["petgate.request_id"] == "" || s.Status != nil {
			t.Errorf("%v", s)
		}
	}
	f(spans[0], token, map[string]string{"petgate.operation": "listPets", "petgate.outcome": "ok"})
	f(spans[2], usedUpToken, map[string]string{"petgate.operation": "", "petgate.outcome": "minute_quota_exceeded"})
}

// The names and the paths of spans are those of OpenTelemetry's conventions for HTTP servers, also
// if the request was refused. A path with a token is withheld.
func TestNamesOfSpans(t *testing.T) {
	r := newRig(t, traces(t, "1", false))
	cases := []struct{ request, name, method, original, route, path string }{
		{rawGet(), "GET /v1/pets", "GET", "", "/v1/pets", "/v1/pets"},
		{rawTarget("/v1/pets/7"), "GET /v1/pets/{petId}", "GET", "", "/v1/pets/{petId}", "/v1/pets/7"},
		{keyless("POST /v1/pets?a=secret HTTP/1.1"), "POST /v1/pets", "POST", "", "/v1/pets", "/v1/pets"}, // without a key
		{rawTarget("/v1/cats"), "GET", "GET", "", "", "/v1/cats"},
		{rawStart("OPTIONS /v1/pets HTTP/1.1"), "OPTIONS", "OPTIONS", "", "", "/v1/pets"},
		{rawStart("BREW /v1/pets HTTP/1.1"), "HTTP", "_OTHER", "BREW", "", "/v1/pets"},
		{rawTarget("/v1/" + token), "GET", "GET", "", "", "withheld"},
		{rawStart(token[:20] + " /v1/pets HTTP/1.1"), "HTTP", "_OTHER", "", "", "/v1/pets"},
		{rawTarget(longTarget(targetMax + 1)), "GET", "GET", "", "", ""},
	}
	for _, c := range cases {
		r.ask(t, c.request)
	}
	spans := r.spans(t, len(cases))
	for i, c := range cases {
		texts := spans[i].Texts()
		got := [5]string{
			spans[i].Name, texts["http.request.method"], texts["http.request.method_original"],
			texts["http.route"], texts["url.path"],
		}
		must.Equal(t, got, [5]string{c.name, c.method, c.original, c.route, c.path}, "the span of %.60q", c.request)
		must.Equal(t, strings.Contains(spans[i].String(), "secret"), false, "whether %v has the query", spans[i])
	}
}

// The fields tracestate of a request are one list (RFC 9110, section 5.3). Without a valid
// traceparent, it is not passed on.
func TestStateIsJoined(t *testing.T) {
	r := newRig(t)
	client := r.dial(t)
	for _, c := range []struct {
		fields []string
		want   string
	}{
		{[]string{sampledField, "tracestate: a=1"}, "a=1"},
		{[]string{sampledField, "tracestate: a=1", "TraceState: b=2,c=3"}, "a=1,b=2,c=3"},
		{[]string{sampledField, "tracestate: ", "tracestate: a=1"}, ",a=1"},
		{[]string{"tracestate: a=1"}, ""},
		{[]string{sampledField, sampledField, "tracestate: a=1"}, ""},
	} {
		client.ask(t, rawGet(c.fields...))
		must.Equal(t, strings.Join(r.upstream.Seen()[0].Fields["tracestate"], " AND "), c.want, "the state of %q",
			c.fields)
	}
}

// Only a trusted proxy's flag samples. A refusal has a span too.
func TestWhoSamples(t *testing.T) {
	f := func(name, ratio string, trusted bool, field string, sampled bool) {
		t.Helper()
		r := newRig(t, traces(t, ratio, trusted))
		client := r.dial(t)
		client.ask(t, rawGet(field, "tracestate: kept=1"))
		client.ask(t, rawKey(field))
		seen, spans := r.upstream.Seen(), r.spans(t, 2)
		flags, want := "-00", 0
		if sampled {
			flags, want = "-01", 2
		}
		if len(spans) != want || len(seen) != 1 || !strings.HasSuffix(seen[0].Fields["traceparent"][0], flags) ||
			!strings.Contains(
				seen[0].Head, "tracestate: kept=1",
			) || strings.Contains(r.accessLog.String(), "traceId") != sampled ||
			strings.Contains(fmt.Sprint(must.Get[[]*dto.MetricFamily](t)(r.registry.Gather())), "trace_id") != sampled {
			t.Errorf("%s: %d spans, %v, %s", name, len(spans), seen, r.accessLog)
		}
	}
	f("a client's flag", "0", false, sampledField, false)
	f("a trusted proxy's flag", "0", true, sampledField, true)
	f("a trusted proxy without the flag", "1", true, droppedField, false)
}

// A failure of the gateway or of the upstream is a failed span, with the code or the status.
func TestFailedSpan(t *testing.T) {
	r := newRig(t, traces(t, "1", false))
	client := r.dial(t)
	failed := rawBare("HTTP/1.1 500 Internal Server Error", "Content-Length: 0")
	for _, answer := range []string{failed, "nonsense\r\n\r\n"} {
		r.upstream.Answer(saying(answer))
		client.ask(t, rawGet())
	}
	spans := r.spans(t, 2)
	for i, want := range []string{"500", "upstream_failed"} {
		if len(spans) != 2 || spans[i].Texts()["error.type"] != want || spans[i].Status == nil {
			t.Errorf("%v, want %s", spans, want)
		}
	}
}

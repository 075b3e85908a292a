package edge

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"petgate/gateway/front"
	"petgate/gateway/routing"
	"petgate/shared/api"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/service"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
	"petgate/shared/trace"
)

// took is how long the exchanges of these tests took.
const took = 1234 * time.Microsecond

// newLogged returns an exchange that has every field of the access log.
func newLogged() *exchange {
	x := &exchange{Call: &front.Call{}}
	x.now = instant.Of(time.Date(2026, 11, 21, 9, 8, 7, 65_000_000, time.UTC))
	x.id = []byte("00112233445566778899aabbccddeeff")
	x.trace = trace.Context{Trace: trace.TraceID{1, 0xab}, Sampled: true}
	x.client = netip.MustParseAddr("192.0.2.7")
	x.Request.Method, x.Request.Path = []byte("GET"), []byte(`/v1/pets/"7\`)
	x.route = &route{Route: &routing.Route{Operation: api.Operation{ID: "getPet"}}}
	x.hasEntry, x.entry.Tenant, x.entry.Key = true, id.Tenant{1}, id.Key{2}
	x.Response.Status, x.Response.Body = 200, []byte("twelve bytes")
	return x
}

// A line is what slog writes for the same fields.
func TestLineIsLikeSlogs(t *testing.T) {
	f := func(name string, change func(*exchange), want ...any) {
		t.Helper()
		x := newLogged()
		change(x)
		record := slog.NewRecord(x.now.Time(), slog.LevelInfo, "request", 0)
		record.Add(want...)
		var slogs bytes.Buffer
		must.Do(t,
			service.NewLog(&slogs, false, slog.LevelInfo, "gateway").Handler().Handle(context.Background(), record))
		if got := string(appendAccess(nil, x, took)); got != slogs.String() {
			t.Errorf("%s:\n got %swant %s", name, got, slogs.String())
		}
	}
	f("everything", func(*exchange) {}, "requestId", "00112233445566778899aabbccddeeff", "traceId",
		"01ab0000000000000000000000000000", "client", "192.0.2.7", "method", "GET", "path", `/v1/pets/"7\`, "operation",
		"getPet", "tenant", "ten_0400000000000000", "key", "key_0800000000000000", "status", 200, "outcome", "ok",
		"bytes", 12, "micros", 1234)
	f("a request that could not be read", func(x *exchange) {
		x.trace.Sampled, x.hasEntry, x.route = false, false, nil
		x.Request.Method, x.Request.Path = nil, nil
		x.client, x.refusal.reason = netip.Addr{}, badRequest
		x.Response.Status, x.Response.Body = 400, nil
	}, "requestId", "00112233445566778899aabbccddeeff", "status", 400, "outcome", "bad_request",
		"bytes", 0, "micros", 1234)
	f("a token at the wrong place, a long path, IPv6", func(x *exchange) {
		x.id = []byte("client's own\tID")
		x.trace.Sampled, x.hasEntry, x.route = false, false, nil
		x.Request.Method = []byte("acme_live_0123abcD")
		x.Request.Path = []byte("/" + strings.Repeat("é", 200))
		x.client, x.refusal.reason = netip.MustParseAddr("2001:db8::7"), noSuchRoute
	}, "requestId", "client's own\tID", "client", "2001:db8::7", "path", "/"+strings.Repeat("é", 127)+"\ufffd",
		"status", 200, "outcome", "no_such_route", "bytes", 12, "micros", 1234)
	f("a token in the path", func(x *exchange) {
		x.trace.Sampled, x.hasEntry, x.route = false, false, nil
		x.Request.Path = []byte("/" + strings.Repeat("x", 300) + "/acme_live_0123abcD")
	}, "requestId", "00112233445566778899aabbccddeeff", "client", "192.0.2.7", "method", "GET", "path", "withheld",
		"status", 200, "outcome", "ok", "bytes", 12, "micros", 1234)
}

// gone is a reader of the access log that has gone away.
type gone struct{}

func (gone) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// What cannot be written is counted, and logged once a minute.
func TestDroppedLinesAreCounted(t *testing.T) {
	dropped := prometheus.NewCounter(prometheus.CounterOpts{Name: "dropped"})
	var log testkit.Output
	l := newAccessLog(gone{}, slog.New(slog.NewTextHandler(&log, nil)), dropped)
	for n := range 2 {
		_, _ = l.lines.Write([]byte("{}\n"))
		testkit.Eventually(t, time.Minute, "the line is counted",
			func() bool { return testutil.ToFloat64(dropped) == float64(n+1) })
	}
	l.close()
	must.Equal(t, strings.Count(log.String(), "broken pipe"), 1, "how often it is logged, in\n%s", &log)
	_, _ = l.lines.Write([]byte("{}\n"))
	must.Equal(t, testutil.ToFloat64(dropped), 3, "how many lines are counted")
}

// Refusals without a key have a hundred lines a second. Other requests always have a line.
func TestStrangersHaveFewLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testkit.Output
		l := newAccessLog(&log, slog.New(slog.DiscardHandler),
			prometheus.NewCounter(prometheus.CounterOpts{Name: "dropped"}))
		x := newLogged()
		for n := range 8 * strangersLinesMax {
			x.hasEntry, x.refusal.reason = n%2 == 0, reason(n/2%2)
			l.write(x, took)
		}
		l.close()
		must.Equal(t, len(log.Lines()), 7*strangersLinesMax, "how many lines")
	})
}

// All requests are among the latencies, also sampled ones that took longer than the last bound.
func TestLatencies(t *testing.T) {
	e := &Edge{}
	e.metrics = newMetrics(prometheus.NewRegistry(), e)
	x := newLogged()
	x.route.metrics = e.metrics.of("getPet")
	e.metrics.observe(x, took)
	e.metrics.observe(x, 11*time.Second)
	x.route, x.trace.Sampled = nil, false
	e.metrics.observe(x, 12*time.Second)
	within, requests := e.Latencies()
	if n := len(within); n != 16 || len(requests) != n || within[5] != .005 || requests[3] != 0 || requests[5] != 1 ||
		requests[n-2] != 1 ||
		requests[n-1] != 3 {
		t.Errorf("%v within %v", requests, within)
	}
}

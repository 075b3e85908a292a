package pets_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"petgate/petsvc/pets"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
	"petgate/shared/trace"
)

// A sampled request has a span under the gateway's. Others have none.
func TestSpans(t *testing.T) {
	const (
		gatewaysTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
		gatewaysSpan  = "00f067aa0ba902b7"
		sampled       = "traceparent: 00-" + gatewaysTrace + "-" + gatewaysSpan + "-01"
		unsampled     = "traceparent: 00-" + gatewaysTrace + "-" + gatewaysSpan + "-00"
		pet           = `{"name":"Rex","categoryId":1,"status":"sold"}`
		key           = `Idempotency-Key: "one"`
		status        = " http.response.status_code="
	)
	var log testkit.Output
	collector := testkit.StartCollector(t)
	tracer := must.Get[*trace.Tracer](t)(trace.Open(trace.Config{
		Settings: trace.Settings{Endpoint: collector.URL, Ratio: "0"},
		Program:  "petsvc", Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
	}))
	r := start(t, testkit.SQLite(t),
		pets.Config{Secret: "s", Tracer: tracer, AccessLog: slog.New(slog.NewJSONHandler(&log, nil))})
	secret, asked := "X-Gateway-Secret: s", 0
	ask := func(method, target, body string, header ...string) {
		// Again, if the database seemed to be away on a busy machine.
		testkit.Eventually(t, patience, "the database is available", func() bool {
			asked++
			return r.do(t, method, target, body, header...).status != 503
		})
	}
	ask("GET", "/v1/pets", "", secret, sampled)
	ask("GET", "/v1/pets/1", "", secret, sampled)
	ask("POST", "/v1/pets", pet, secret, sampled)
	ask("POST", "/v1/pets", pet, secret, sampled, key)
	ask("POST", "/v1/pets", pet, secret, sampled, key)
	ask("POST", "/v1/none", "", secret, sampled)
	ask("GET", "/v1/pets", "", secret, unsampled)
	ask("GET", "/v1/pets", "", secret) // the ratio is 0
	ask("GET", "/v1/pets", "", sampled)
	testkit.Eventually(t, patience, "the access log", func() bool { return len(log.Lines()) == asked })
	tracer.Close(patience)

	var got []string
	away := 0
	for _, s := range collector.Spans() {
		if fmt.Sprintf("%x", s.TraceId) != gatewaysTrace || s.Service != "petsvc" ||
			fmt.Sprintf("%x", s.ParentSpanId) != gatewaysSpan {
			t.Errorf("%v", s)
		}
		outcome := s.Texts()["petgate.outcome"]
		if outcome == "database_unavailable" {
			away++
			continue
		}
		must.Equal(t, s.Status == nil, true, "%v has no status", s)
		for _, a := range s.Attributes { // the status is the only number
			if n := a.Value.GetIntValue(); n != 0 {
				outcome += fmt.Sprintf(" %s=%d", a.Key, n)
			}
		}
		got = append(got, s.Name+" "+outcome)
	}
	want := []string{
		"GET /v1/pets ok" + status + "200", "GET /v1/pets/{petId} pet_not_found" + status + "404",
		"POST /v1/pets created" + status + "201", "POST /v1/pets created" + status + "201",
		"POST /v1/pets replayed" + status + "201", "POST no_such_route" + status + "404",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	must.Equal(t, strings.Count(log.String(), `"traceId":"`+gatewaysTrace+`"`), len(want)+away,
		"lines with the trace in %s", &log)
}

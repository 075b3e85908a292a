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
	"petgate/shared/trace"
)

// A sampled request has a span under the gateway's, and under it one for each statement, in their order. Others have none.
func TestSpans(t *testing.T) {
	const (
		gatewaysTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
		gatewaysSpan  = "00f067aa0ba902b7"
		sampled       = "traceparent: 00-" + gatewaysTrace + "-" + gatewaysSpan + "-01"
		unsampled     = "traceparent: 00-" + gatewaysTrace + "-" + gatewaysSpan + "-00"
		pet           = `{"name":"Rex","categoryId":1,"status":"sold"}`
		key           = `Idempotency-Key: "one"`
	)
	f := func(t *testing.T, url string) {
		var log testkit.Output
		collector := testkit.StartCollector(t)
		tracer, err := trace.Open(trace.Config{
			Settings: trace.Settings{Endpoint: collector.URL, Ratio: "0"}, Program: "petsvc", Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
		})
		if err != nil {
			t.Fatal(err)
		}
		r := start(t, url, pets.Config{Secret: "s", Tracer: tracer, AccessLog: slog.New(slog.NewJSONHandler(&log, nil))})
		secret, asked := "X-Gateway-Secret: s", 0
		ask := func(method, target, body string, header ...string) { // again if the database seemed to be away on a busy machine
			testkit.Eventually(t, patience, "the database is available", func() bool {
				asked++
				return r.do(t, method, target, body, header...).status != 503
			})
		}
		ask("GET", "/v1/pets", "", secret, sampled)
		ask("GET", "/v1/pets?status=sold", "", secret, sampled)
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
		statements := map[string][]string{}
		for _, s := range collector.Spans() {
			if fmt.Sprintf("%x", s.TraceId) != gatewaysTrace || s.Service != "petsvc" {
				t.Errorf("%v", s)
			}
			if parent := fmt.Sprintf("%x", s.ParentSpanId); parent != gatewaysSpan {
				statements[parent] = append(statements[parent], s.Name)
				if texts := s.Texts(); !strings.HasPrefix(texts["db.query.text"], strings.Fields(s.Name)[0]) || texts["db.system.name"] == "" {
					t.Errorf("%s: %v", s.Name, texts)
				}
				continue
			}
			if s.Texts()["petgate.outcome"] == "database_unavailable" {
				away++
				delete(statements, fmt.Sprintf("%x", s.SpanId))
				continue
			}
			if s.Status != nil {
				t.Errorf("%v", s)
			}
			own := statements[fmt.Sprintf("%x", s.SpanId)]
			got = append(got, s.Name+" "+s.Texts()["petgate.outcome"]+": "+strings.Join(own, ", "))
			delete(statements, fmt.Sprintf("%x", s.SpanId))
		}
		want := []string{
			"GET /v1/pets ok: SELECT pets",
			"GET /v1/pets ok: SELECT pets",
			"GET /v1/pets/{petId} pet_not_found: SELECT pets",
			"POST /v1/pets created: BEGIN, INSERT pets, COMMIT",
			"POST /v1/pets created: BEGIN, SELECT pet_requests, INSERT pets, INSERT pet_requests, COMMIT",
			"POST /v1/pets replayed: BEGIN, SELECT pet_requests, ROLLBACK",
			"HTTP no_such_route: ",
		}
		if !slices.Equal(got, want) || len(statements) != 0 {
			t.Errorf("got\n%s\nwant\n%s\nwithout a request: %v", strings.Join(got, "\n"), strings.Join(want, "\n"), statements)
		}
		if n := strings.Count(log.String(), `"traceId":"`+gatewaysTrace+`"`); n != len(want)+away {
			t.Errorf("%d lines of the access log have the trace: %s", n, &log)
		}
	}
	for name, url := range map[string]func(testing.TB) string{"postgres": testkit.Postgres, "sqlite": testkit.SQLite} {
		t.Run(name, func(t *testing.T) { f(t, url(t)) })
	}
}

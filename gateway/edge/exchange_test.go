package edge_test

import (
	"cmp"
	"encoding/json"
	"strings"
	"testing"

	"petgate/gateway/usage"
	"petgate/shared/core/apikey"
	"petgate/shared/testkit/must"
)

// exchange is one request, with everything that must be said about it.
type exchange struct {
	request   string
	want      string // the status and the code of the response, such as "200" or "404 no_such_route"
	operation string // empty: it was not known
	counts    countedFor
	outcome   string // if it is neither the code nor ok
	cost      int64  // in units; 0: one
}

// countedFor says for whom an exchange counts.
type countedFor int

const (
	nobody  countedFor = iota // no key is known
	named                     // the tenant's usage has it, and the access log names the key
	metered                   // the quota was asked too
	charged                   // and has charged it
)

// exchange plays an exchange, and compares the response, the access log, the metrics, the usage and
// the charge with what they must be.
func (r *rig) exchange(t testing.TB, c *rawClient, e exchange) answer {
	t.Helper()
	status, code, _ := strings.Cut(e.want, " ")
	outcome := cmp.Or(e.outcome, code, "ok")
	metrics := func() [3]float64 {
		return [3]float64{
			r.metric(t, "petgate_gateway_requests_total", outcome),
			r.metric(t, "petgate_gateway_responses_total", cmp.Or(e.operation, "none"), status[:1]+"xx"),
			r.metric(t, "petgate_gateway_request_seconds", cmp.Or(e.operation, "none")),
		}
	}
	before, lines, admitted := metrics(), len(r.accessLog.Lines()), r.admitted.Load()
	r.last.set(usage.Request{})

	got := c.ask(t, e.request)
	what := clip(e.request)
	got.expect(t, what, e.want)
	r.awaitLines(t, lines+1)

	for i, after := range metrics() {
		must.Equal(t, after, before[i]+1, "metric %d of %s", i, what)
	}
	_, token, _ := strings.Cut(e.request, "Bearer ")
	token, _, _ = strings.Cut(token, "\r\n")
	entry, want := entryOf(token), usage.Request{}
	if e.counts >= named {
		want = usage.Request{
			Tenant: entry.Tenant, Key: entry.Key, Operation: e.operation, Outcome: outcome,
			Charged: e.counts == charged, Metered: e.counts >= metered, IsTest: entry.Environment == apikey.Test,
		}
	}
	if e.counts >= metered {
		want.Cost = uint16(max(1, e.cost))
	}
	counted := r.last.get()
	counted.At = 0
	must.Equal(t, counted, want, "the usage of %s", what)
	must.Equal(t, r.admitted.Load() > admitted, e.counts == charged, "whether %s is charged", what)
	r.checkLine(t, r.accessLog.Lines()[lines], e, outcome, want)
	return got
}

// checkLine compares a line of the access log with the response and the usage.
func (r *rig) checkLine(t testing.TB, text string, e exchange, outcome string, counted usage.Request) {
	t.Helper()
	var line struct{ Operation, Outcome, Tenant, Key string }
	must.Do(t, json.Unmarshal([]byte(text), &line))
	tenant, key := "", ""
	if e.counts >= named {
		tenant, key = counted.Tenant.String(), counted.Key.String()
	}
	want := []string{e.operation, outcome, tenant, key}
	must.Equal(t, strings.Join([]string{line.Operation, line.Outcome, line.Tenant, line.Key}, " "),
		strings.Join(want, " "), "the line %s", text)
	status, _, _ := strings.Cut(e.want, " ")
	must.Equal(t, strings.Contains(text, `"status":`+status+","), true, "the status in %s", text)
}

//go:build e2e

package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// A trusted proxy samples a request, and a collector gets the whole tree: proxy, gateway, pet service. The metrics name
// its trace.
func TestTraceTree(t *testing.T) {
	t.Parallel()
	const (
		proxysTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
		proxysSpan  = "00f067aa0ba902b7"
		sampled     = "traceparent: 00-" + proxysTrace + "-" + proxysSpan + "-01"
	)
	collector := testkit.StartCollector(t)
	env := []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL, "OTEL_TRACES_SAMPLER_ARG=0"}
	f := fleet.Start(t, fleet.Spec{
		Gateways:   1,
		GatewayEnv: append(slices.Clone(env), "GATEWAY_TRUSTED_PROXIES=127.0.0.1/32"),
		PetsEnv:    env,
	})
	gateway, token := f.Gateways[0], f.NewTenant("acme").Token
	gateway.MustAsk(t, token) // its trace is not sampled
	gateway.MustAsk(t, token, sampled)
	said := map[string]testkit.ExportedSpan{}
	for _, one := range collector.Await(t, 2) {
		said[one.Service+": "+one.Name] = one
	}
	ofGateway, ofPets := said["gateway: GET /v1/pets"], said["petsvc: GET /v1/pets"]
	if len(said) != 2 || fmt.Sprintf("%x", ofGateway.ParentSpanId) != proxysSpan || !bytes.Equal(ofPets.ParentSpanId, ofGateway.SpanId) {
		t.Errorf("the spans are no tree: %+v", said)
	}
	for _, p := range []*fleet.Program{gateway, f.Pets} {
		request := must.Get[*http.Request](t)(http.NewRequestWithContext(t.Context(), http.MethodGet, p.Admin+"/metrics", nil))
		request.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
		response := must.Get[*http.Response](t)(http.DefaultClient.Do(request))
		defer response.Body.Close()
		exemplar := `# {trace_id="` + proxysTrace + `"}`
		open, plain := string(must.Get[[]byte](t)(io.ReadAll(response.Body))), p.AdminPage(t, "/metrics")
		if !strings.Contains(open, exemplar) || strings.Contains(plain, exemplar) {
			t.Errorf("%s: an exemplar in OpenMetrics: %t, in text: %t", p.URL, strings.Contains(open, exemplar), strings.Contains(plain, exemplar))
		}
	}
}

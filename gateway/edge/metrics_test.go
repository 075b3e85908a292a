package edge_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// Requests are counted by operation, and the figures of the upstreams by upstream.
func TestMetricsOfOperationsAndUpstreams(t *testing.T) {
	registry := prometheus.NewRegistry()
	upstream := newRawUpstream(t, "tcp", "127.0.0.1:0")
	dead := "127.0.0.1:1"
	r := newRig(t, func(s *setup) {
		s.Metrics = registry
		s.Upstreams = []string{upstream.URL(), upstream.URL(), "http://" + dead} // one is named twice
	})
	live := strings.TrimPrefix(upstream.URL(), "http://")

	value := func(name string, labels ...string) (sum float64) {
		families, err := registry.Gather()
		must.Do(t, err)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				text := m.String()
				matches := f.GetName() == name
				for _, label := range labels {
					matches = matches && strings.Contains(text, `"`+label+`"`)
				}
				if matches {
					sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
				}
			}
		}
		return sum
	}
	client, asked := r.dial(t), 0
	for asked == 0 || value("petgate_gateway_upstream_ejections_total", dead) == 0 {
		if asked++; asked > 1000 {
			t.Fatal("the dead upstream is not ejected")
		}
		client.ask(t, rawGet())
	}
	client.ask(t, strings.Replace(rawGet(), "/v1/pets", "/v1/none", 1))
	client.ask(t, rawKey("Authorization: Bearer "+usedUpToken))
	counted := func() bool { // a request is counted after its response
		return value("petgate_gateway_responses_total", "none", "4xx") == 2
	}
	testkit.Eventually(t, patience, "all requests are counted", counted)
	for _, c := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"petgate_gateway_responses_total", []string{"listPets", "2xx"}, float64(asked)},
		{"petgate_gateway_responses_total", []string{"none", "4xx"}, 2},
		{"petgate_gateway_responses_total", nil, float64(asked + 2)},
		{"petgate_gateway_request_seconds", []string{"listPets"}, float64(asked)},
		{"petgate_gateway_request_seconds", []string{"none"}, 2},
		{"petgate_gateway_upstream_connections", []string{dead}, 0},
		{"petgate_gateway_upstream_failures_total", []string{live}, 0},
		{"petgate_gateway_upstream_ejected", []string{live}, 0},
	} {
		if got := value(c.name, c.labels...); got != c.want {
			t.Errorf("%s %q: %v, want %v", c.name, c.labels, got, c.want)
		}
	}
	open, idle := value("petgate_gateway_upstream_connections", live), value("petgate_gateway_upstream_idle_connections", live)
	if open == 0 || idle != open {
		t.Errorf("%v connections, %v of them idle, although no request runs", open, idle)
	}
	if value("petgate_gateway_upstream_failures_total", dead) < 3 {
		t.Error("the failures of the dead upstream are not counted")
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) != 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}

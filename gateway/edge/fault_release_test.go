package edge_test

import (
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// However a request with a body ends, its memory, its slot and its connection are given back, and the upstream saw exactly the
// admitted requests.
func TestEverythingIsGivenBack(t *testing.T) {
	registry := prometheus.NewRegistry()
	r := newRig(t, func(s *setup) {
		s.ReadTimeout, s.IdleTimeout, s.Metrics, s.BodyBytesMax = 200*time.Millisecond, 200*time.Millisecond, registry, 1<<20
	})
	length := rawPost("Content-Length: 60000")
	chunks := rawPost("Transfer-Encoding: chunked") + "ea60\r\n"
	for name, start := range map[string]string{
		"ends early":        length + repeat("a", 100),
		"ends late":         length + repeat("a", 50_000),
		"complete":          length + repeat("a", 60_000),
		"pipelined":         length + repeat("a", 60_000) + length + repeat("a", 60_000) + rawGet() + length,
		"ends in a chunk":   chunks + repeat("a", 50_000),
		"longer than chunk": chunks + repeat("a", 60_005),
		"past the maximum":  chunks + repeat("a", 60_000) + "\r\nffffff\r\n",
		"bad trailer":       chunks + repeat("a", 60_000) + "\r\n0\r\nHost: b\r\n\r\n",
		"continue":          rawPost("Content-Length: 60000", "Expect: 100-continue"),
		"no key":            rawBare("POST /v1/pets HTTP/1.1", "Host: a", "Content-Length: 60000") + repeat("a", 40_000),
	} {
		for _, hangs := range []bool{false, true} {
			c, err := net.Dial("tcp", r.address)
			must.Do(t, err)
			_ = c.SetDeadline(time.Now().Add(patience))
			if _, err := io.WriteString(c, start); err != nil {
				t.Logf("%s: %v", name, err) // the request was refused before all of it was sent
			}
			if hangs {
				defer c.Close()
			} else {
				_ = c.Close()
			}
		}
	}
	testkit.Eventually(t, patience, "nothing held", func() bool {
		return r.admitted.Load() > 0 && gauges(t, registry, "petgate_gateway_requests_in_flight", "petgate_gateway_connections", "petgate_gateway_body_bytes") == 0
	})
	if seen, admitted := len(r.upstream.Seen()), int(r.admitted.Load()); seen != admitted || seen == 0 {
		t.Errorf("%d requests were admitted, and the upstream saw %d", admitted, seen)
	}
}

// gauges returns the sum of gauges.
func gauges(t *testing.T, registry *prometheus.Registry, names ...string) (sum float64) {
	t.Helper()
	families, err := registry.Gather()
	must.Do(t, err)
	for _, f := range families {
		if slices.Contains(names, f.GetName()) {
			sum += f.GetMetric()[0].GetGauge().GetValue() + f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return sum
}

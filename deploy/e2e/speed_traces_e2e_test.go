//go:build e2e

package e2e_test

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// What traces cost: gateways that differ only in them take turns under the same load. The times are printed and not judged, because
// neighbours on the machine change them. A collector that does not answer costs spans, which are counted, and fails no request.
func TestSpeedOfTraces(t *testing.T) {
	const (
		rounds   = 5
		warm     = 200 * time.Millisecond
		measured = time.Second
	)
	collector, hole := testkit.StartCollector(t), blackHole(t)
	f := fleet.Start(t, fleet.Spec{
		Redis: testkit.StartRedis(t).URL, Upstreams: fleet.FixedUpstream(t), GatewayEnv: []string{"GATEWAY_ACCESS_LOG=false"},
	})
	request := fleet.GetPets(f.NewTenant("acme", fleet.Unlimited...).Token)
	variants := []struct {
		name, endpoint, ratio string
		gateway               *fleet.Program
		costs, ratios         []float64 // µs of processor time for a request, and relative to the first variant, one a round
		medians, tails        []time.Duration
	}{
		{name: "off"},
		{name: "at ratio 0", endpoint: collector.URL, ratio: "0"},
		{name: "at 1 %", endpoint: collector.URL, ratio: "0.01"},
		{name: "all, to a collector that does not answer", endpoint: hole, ratio: "1"},
	}
	for i := range variants {
		v := &variants[i]
		v.gateway = f.AddGateway("OTEL_EXPORTER_OTLP_ENDPOINT="+v.endpoint, "OTEL_TRACES_SAMPLER_ARG="+v.ratio)
	}
	for round := range rounds {
		for i := range variants {
			v := &variants[(i+round)%len(variants)]
			send(t, v.gateway, request, warm)
			before := v.gateway.ProcessorTime(t)
			took := sendTimed(t, v.gateway, request, measured)
			v.costs = append(v.costs, float64((v.gateway.ProcessorTime(t)-before).Microseconds())/float64(len(took)))
			v.medians, v.tails = append(v.medians, took[len(took)/2]), append(v.tails, took[len(took)*99/100])
		}
		for i := range variants {
			v := &variants[i]
			v.ratios = append(v.ratios, 100*(v.costs[round]/variants[0].costs[round]-1))
		}
	}
	for _, v := range variants {
		slices.Sort(v.costs)
		slices.Sort(v.ratios)
		slices.Sort(v.medians)
		slices.Sort(v.tails)
		t.Logf("figure: traces %s: %.1f µs of the gateway's processor time a request, %+.1f %% (median of %d rounds, %+.1f to %+.1f); "+
			"median %v, 99th percentile %v", v.name, v.costs[rounds/2], v.ratios[rounds/2], rounds, v.ratios[0], v.ratios[rounds-1],
			v.medians[rounds/2].Round(time.Microsecond), v.tails[rounds/2].Round(time.Microsecond))
	}
	testkit.Eventually(t, fleet.ReplyWithin, "a span is counted as dropped", func() bool { // a slow machine has not filled the queue yet
		send(t, variants[3].gateway, request, warm)
		return variants[3].gateway.Metric(t, "petgate_trace_spans_total", `result="unqueued"`) > 0
	})
	if n := variants[2].gateway.Metric(t, "petgate_trace_spans_total", `result="un`); n != 0 {
		t.Errorf("%v spans are dropped although the collector answers", n)
	}
}

// blackHole returns the URL of a server that takes connections and never answers.
func blackHole(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return fmt.Sprintf("http://%s", ln.Addr())
}

// sendTimed is send with the times of all requests, in ascending order. Each client sends at least one.
func sendTimed(t testing.TB, p *fleet.Program, request string, span time.Duration) []time.Duration {
	t.Helper()
	end := time.Now().Add(span)
	times := make([][]time.Duration, speedClients)
	var all sync.WaitGroup
	for i := range times {
		all.Go(func() {
			c := p.Client()
			defer c.Close()
			for first := true; first || time.Now().Before(end); first = false {
				got, err := c.Do(request)
				if err != nil || got.Status != 200 {
					t.Errorf("%v, %v", got, err)
					return
				}
				times[i] = append(times[i], got.Took)
			}
		})
	}
	all.Wait()
	flat := slices.Concat(times...)
	slices.Sort(flat)
	return flat
}

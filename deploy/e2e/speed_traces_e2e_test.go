//go:build e2e

package e2e_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// What traces cost: gateways that differ only in them take turns. A collector that does not answer costs spans, which are counted, and fails no request.
func TestSpeedOfTraces(t *testing.T) {
	collector, hole := testkit.StartCollector(t), blackHole(t)
	f := fleet.Start(t, fleet.Spec{
		Redis: testkit.StartRedis(t).URL, Upstreams: fleet.FixedUpstream(t), GatewayEnv: []string{"GATEWAY_ACCESS_LOG=false"},
	})
	request := fleet.GetPets(f.NewTenant("acme", fleet.Unlimited...).Token)
	var contenders []*contender
	for _, v := range []struct{ name, endpoint, ratio string }{
		{name: "no traces"},
		{name: "traces at ratio 0", endpoint: collector.URL, ratio: "0"},
		{name: "traces at 1 %", endpoint: collector.URL, ratio: "0.01"},
		{name: "all traces, to a collector that does not answer", endpoint: hole, ratio: "1"},
	} {
		gateway := f.AddGateway("OTEL_EXPORTER_OTLP_ENDPOINT="+v.endpoint, "OTEL_TRACES_SAMPLER_ARG="+v.ratio)
		contenders = append(contenders, &contender{name: v.name, gateway: gateway})
	}
	takeTurns(t, request, contenders)
	testkit.Eventually(t, fleet.ReplyWithin, "a span is counted as dropped", func() bool { // a slow machine has not filled the queue yet
		sendTimed(t, contenders[3].gateway, request, 200*time.Millisecond)
		return contenders[3].gateway.Metric(t, "petgate_trace_spans_total", `result="unqueued"`) > 0
	})
	if n := contenders[2].gateway.Metric(t, "petgate_trace_spans_total", `result="un`); n != 0 {
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

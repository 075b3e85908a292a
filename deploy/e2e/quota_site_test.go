package e2e_test

import (
	"encoding/json"
	"sync"
	"sync/atomic"
	"testing"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// quotaSite is gateways whose quotas a test uses up.
type quotaSite struct {
	*fleet.Fleet
	t      *testing.T
	server *testkit.Server // Redis; nil for in-process quotas
}

// newQuotaSite starts gateways on a private Redis, with an upstream that always answers.
func newQuotaSite(t *testing.T, gateways int, env ...string) *quotaSite {
	t.Helper()
	server := testkit.StartRedis(t)
	s := openQuotaSite(t, fleet.Spec{Redis: server.URL, Gateways: gateways}, env...)
	s.server = server
	return s
}

// openQuotaSite starts gateways with an upstream that always answers, on SQLite unless the spec has a database.
func openQuotaSite(t *testing.T, spec fleet.Spec, env ...string) *quotaSite {
	t.Helper()
	if spec.Database == "" {
		spec.Database = testkit.SQLite(t)
	}
	spec.Upstreams = fleet.FixedUpstream(t)
	spec.GatewayEnv = append([]string{
		"GATEWAY_ACCESS_LOG=false", "GATEWAY_LOG_LEVEL=warn", "GATEWAY_DRAIN_DELAY=0s",
	}, env...)
	return &quotaSite{Fleet: fleet.Start(t, spec), t: t}
}

// burst sends count requests from a few clients to all gateways in turn, and counts the answers by status.
func (s *quotaSite) burst(token string, count int) map[int]int {
	var mu sync.Mutex
	var next atomic.Int64
	var all sync.WaitGroup
	statuses := map[int]int{}
	for range 8 {
		all.Go(func() {
			for n := int(next.Add(1)); n <= count; n = int(next.Add(1)) {
				got := s.Gateways[n%len(s.Gateways)].Ask(token)
				mu.Lock()
				statuses[got.Status]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return statuses
}

// explained is what `keyadmin usage explain` says of a token.
type explained struct {
	Passes      bool
	Code, Until string
	Mode        string
	Minute, Day struct{ Limit, Used, Remaining int64 }
}

func (s *quotaSite) explain(token string) (e explained) {
	s.t.Helper()
	done := s.KeyadminWith(token, "usage", "explain", "--output", "json")
	if err := json.Unmarshal([]byte(done.Stdout), &e); err != nil || done.Code != 0 {
		s.t.Fatalf("keyadmin usage explain: exit code %d, %v\n%s%s", done.Code, err, done.Stdout, done.Stderr)
	}
	return e
}

// decidedAlone is how many decisions were made without Redis, or may have been.
func (s *quotaSite) decidedAlone() (sum int) {
	for _, g := range s.Gateways {
		metrics := g.Metrics()
		for _, name := range []string{
			`decisions_total{outcome="local_admitted"}`, `decisions_total{outcome="local_refused"}`,
			`trips_total{result="failed"}`, `trips_total{result="unsure"}`,
		} {
			sum += int(metrics["petgate_gateway_limits_"+name])
		}
	}
	return sum
}

// exactly reports whether a count differs from the wanted one by at most the number of requests that were decided without Redis.
// There are such requests only if Redis gets no processor for 50 ms; the test then logs how many. So every run is a valid test:
// each admitted request was granted by Redis or by a gateway's share.
func (s *quotaSite) exactly(count, want int) bool {
	alone := s.decidedAlone()
	if alone > 0 {
		s.t.Logf("%d requests and calls were decided without Redis", alone)
	}
	return max(count-want, want-count) <= alone
}

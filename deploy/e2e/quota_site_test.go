package e2e_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

func openQuotaSite(t *testing.T, spec fleet.Spec, env ...string) *quotaSite {
	t.Helper()
	spec.Database, spec.Upstreams = testkit.SQLite(t), fleet.FixedUpstream(t)
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

// quotaPatience limits how long a test is repeated if the machine disturbs it. A gateway that is delayed for longer than its
// budget of 50 ms has an outage, and then does not count only in Redis.
const quotaPatience = 5 * time.Minute

// undisturbed runs a test in which Redis must make every decision. It repeats the test if the machine disturbed it. The test
// reports a disturbance before it checks its results.
func undisturbed(t *testing.T, run func(t *testing.T) (disturbed bool)) {
	t.Helper()
	began := time.Now()
	for attempt := 1; ; attempt++ {
		var disturbed bool
		passed := t.Run(fmt.Sprintf("run %d", attempt), func(t *testing.T) { disturbed = run(t) })
		switch {
		case !passed || !disturbed:
			return
		case time.Since(began) > quotaPatience:
			t.Fatalf("this machine held the gateways up for longer than 50 ms in each of %d runs", attempt)
		}
		t.Logf("run %d: this machine held a gateway up for longer than 50 ms; again", attempt)
	}
}

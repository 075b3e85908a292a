//go:build e2e

package e2e_test

import (
	"encoding/json"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// report is what these tests read of a report.
type report struct {
	Degraded bool
	Policies []struct{ Used, Remaining int64 }
	Ban      *struct{ EndsAt time.Time }
}

func readReport(t *testing.T, c *fleet.Client, token string) (r report) {
	t.Helper()
	got := c.Must(t, fleet.Request("GET /v1/quota", token, ""))
	if err := json.Unmarshal([]byte(got.Body), &r); err != nil || got.Status != http.StatusOK || len(r.Policies) != 2 {
		t.Fatalf("%v: %v", got, err)
	}
	return r
}

// 100,000 reports of one key change nothing, bring no ban, and cost Redis one call a second for each gateway. A banned key
// learns the end of its ban. Without Redis, the report says that it is degraded.
func TestReportsCostNothing(t *testing.T) {
	const asked, used, clients = 100_000, 7, 4
	const probes = 10 // script calls that an outage of 0.5 s may add
	s := newQuotaSite(t, 3)
	key := s.NewTenant("t", "--minute", "60", "--day", "1000")
	s.burst(key.Token, used)
	calls, began := s.scriptCalls(), time.Now()
	var next, reports, wrong atomic.Int64
	var all sync.WaitGroup
	for _, gateway := range s.Gateways {
		for range clients {
			all.Go(func() {
				c := gateway.Client()
				defer c.Close()
				for next.Add(1) <= asked {
					got, err := c.Do(fleet.Request("GET /v1/quota", key.Token, ""))
					switch {
					case err == nil && got.Status == http.StatusOK:
						reports.Add(1)
					case err != nil || got.Code() != "quota_polling" || got.RetryAfter() != time.Second:
						wrong.Add(1)
					}
				}
			})
		}
	}
	all.Wait()
	took := time.Since(began)
	calls = s.scriptCalls() - calls
	c := s.Gateways[0].Client()
	defer c.Close()
	testkit.Eventually(t, 3*time.Second, "the key may ask again", func() bool {
		return c.Must(t, fleet.Request("GET /v1/quota", key.Token, "")).Status == http.StatusOK
	})
	after := s.explain(key.Token)
	t.Logf("figure: %d calls of /v1/quota with one key at 3 gateways in %v: %d reports, %d refused; %d calls of Redis; used is %d before and %d after",
		asked, took.Round(time.Millisecond), reports.Load(), asked-reports.Load(), calls, used, after.Minute.Used)
	if most := 3 * int(took.Seconds()+2); calls > most+probes*s.decidedAlone() || wrong.Load() != 0 || after.Day.Used != used || !after.Passes {
		t.Errorf("%d calls of Redis, at most %d wanted; %d other answers; then %+v", calls, most, wrong.Load(), after)
	}

	s.MustKeyadmin("ban", "add", key.ID, "--for", "1h", "--reason", "a test", "--yes")
	end := time.Now().Add(time.Hour)
	banned := readReport(t, s.Gateways[1].Client(), key.Token)
	if banned.Ban == nil || banned.Ban.EndsAt.Sub(end).Abs() > 10*time.Second || banned.Policies[1].Used != used {
		t.Errorf("the report of a banned key: %+v", banned)
	}
	s.MustKeyadmin("ban", "lift", key.ID)
	s.server.Kill(t)
	testkit.Eventually(t, 10*time.Second, "the gateway decides alone", func() bool {
		return readReport(t, s.Gateways[2].Client(), key.Token).Degraded
	})
}

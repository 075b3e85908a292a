//go:build e2e

package e2e_test

import (
	"encoding/json"
	"math"
	"net/http"
	"os"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// keyadmin top shows the load of all gateways. One that hangs is named, and delays no refresh by more than a second.
func TestTopShowsTheLoad(t *testing.T) {
	const (
		refreshes = 10
		tolerance = 0.02
		patience  = 1200 * time.Millisecond // of a refresh: a second for the gateway that hangs, and the rest
	)
	f := fleet.Start(t, fleet.Spec{Redis: testkit.StartRedis(t).URL, Upstreams: fleet.FixedUpstream(t), Gateways: 3})
	key := f.NewTenant("acme", fleet.Unlimited...)
	load := startLoad(t, key.Token, 20, 50*time.Millisecond, f.Gateways[0], f.Gateways[1])
	f.Gateways[2].Pause(t)
	defer f.Gateways[2].Resume()

	top := testkit.Start(t, testkit.Build(t, "petgate/keyadmin"), []string{"DATABASE_URL=" + f.Database}, "top", "--every", "1s", "-o", "json")
	var shownAt []time.Time
	for len(shownAt) < refreshes+1 {
		testkit.Eventually(t, 10*time.Second, "the next refresh", func() bool { return len(top.Stdout.Lines()) > len(shownAt) })
		shownAt = append(shownAt, time.Now())
	}
	top.Signal(os.Interrupt)
	if code := top.ExitCode(t); code != 0 {
		t.Errorf("exit %d after an interrupt: %s", code, top.Stderr.String())
	}
	load.end()

	var sum float64
	var longest time.Duration
	for i, line := range top.Stdout.Lines()[:refreshes+1] {
		var view struct {
			Gateways []struct{ ID, Error string }
			Tenants  []struct {
				Tenant            string
				RequestsPerSecond float64
				DayUsed           int64
			}
		}
		if err := json.Unmarshal([]byte(line), &view); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if len(view.Gateways) != 3 || view.Gateways[0].Error != "" || view.Gateways[1].Error != "" || view.Gateways[2].Error != "no answer within 1 s" {
			t.Errorf("the gateways of refresh %d: %+v", i, view.Gateways)
		}
		if len(view.Tenants) != 1 || view.Tenants[0].Tenant != "acme" || view.Tenants[0].DayUsed == 0 {
			t.Fatalf("the tenants of refresh %d: %s", i, line)
		}
		if i > 0 {
			sum += view.Tenants[0].RequestsPerSecond
			longest = max(longest, shownAt[i].Sub(shownAt[i-1]))
		}
	}
	if longest > patience {
		t.Errorf("%v between two refreshes, at most %v is promised", longest, patience)
	}
	// The gateways answer at once. The line is printed about a second later, when the patience with the third one ends.
	from, to := shownAt[0].Add(-time.Second), shownAt[refreshes].Add(-time.Second)
	sent := 0
	for _, s := range load.shots {
		if s.At.After(from) && !s.At.After(to) && s.Status == http.StatusOK {
			sent++
		}
	}
	shown, own := sum/refreshes, float64(sent)/to.Sub(from).Seconds()
	if math.Abs(shown-own) > tolerance*own {
		t.Errorf("top shows %.1f requests a second, the load has sent %.1f", shown, own)
	}
	t.Logf("figure: top: %.1f requests a second shown, %.1f sent; one of three gateways hangs: at most %v between refreshes",
		shown, own, longest.Round(time.Millisecond))
}

//go:build e2e

package e2e_test

import (
	"encoding/json"
	"math"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// topLine is what the test reads of a refresh of keyadmin top.
type topLine struct {
	Gateways []struct{ ID, Error string }
	Tenants  []struct {
		Tenant            string
		RequestsPerSecond float64
		DayUsed           int64
	}
	shownAt time.Time
}

// isWhole reports whether the first two gateways have answered. A busy machine can delay an answer for more than a second.
func (l *topLine) isWhole() bool {
	return len(l.Gateways) == 3 && l.Gateways[0].Error == "" && l.Gateways[1].Error == "" && len(l.Tenants) == 1
}

// keyadmin top shows the load of all gateways. One that hangs is named, and delays a refresh by a second. A pause of the machine
// makes single refreshes late or incomplete, so the median of the times is judged, and rates only between refreshes that are whole.
func TestTopShowsTheLoad(t *testing.T) {
	const (
		refreshes = 10
		tolerance = 1. / 3          // of the rates: a pause changes them by less, and one of two gateways is a half
		missing   = 0.02            // of the count: calls of Redis whose result a gateway does not know
		patience  = 2 * time.Second // of the usual refresh, which takes the second for the gateway that hangs
	)
	f := fleet.Start(t, fleet.Spec{Redis: testkit.StartRedis(t).URL, Upstreams: fleet.FixedUpstream(t), Gateways: 3})
	key := f.NewTenant("acme", fleet.Unlimited...)
	load := startLoad(t, key.Token, 20, 50*time.Millisecond, f.Gateways[0], f.Gateways[1])
	f.Gateways[2].Pause(t)
	defer f.Gateways[2].Resume()

	top := testkit.Start(t, testkit.Build(t, "petgate/keyadmin"), []string{"DATABASE_URL=" + f.Database}, "top", "--every", "1s", "-o", "json")
	shown := 0
	next := func() (line topLine) {
		t.Helper()
		testkit.Eventually(t, fleet.ReplyWithin, "the next refresh", func() bool { return len(top.Stdout.Lines()) > shown })
		text := top.Stdout.Lines()[shown]
		line.shownAt = time.Now()
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if len(line.Gateways) != 3 || line.Gateways[2].Error != "no answer within 1 s" {
			t.Errorf("the gateways of refresh %d: %+v", shown, line.Gateways)
		}
		if line.isWhole() && (line.Tenants[0].Tenant != "acme" || line.Tenants[0].DayUsed == 0) {
			t.Fatalf("the tenants of refresh %d: %s", shown, text)
		}
		shown++
		return line
	}
	var rated, counted, seconds float64
	var took []time.Duration
	for last, pairs := next(), 0; pairs < refreshes; {
		line := next()
		between := line.shownAt.Sub(last.shownAt)
		took = append(took, between)
		if last.isWhole() && line.isWhole() {
			pairs++
			seconds += between.Seconds()
			rated += line.Tenants[0].RequestsPerSecond * between.Seconds()
			counted += float64(line.Tenants[0].DayUsed - last.Tenants[0].DayUsed)
		}
		if last = line; shown > 5*refreshes {
			t.Fatalf("of %d refreshes, only %d have the answers of two gateways and follow one that has them", shown, pairs)
		}
	}
	load.end()
	sent := int64(load.count(http.StatusOK))
	testkit.Eventually(t, 2*fleet.ReplyWithin, "top counts all requests", func() bool {
		line := next()
		if !line.isWhole() {
			return false
		}
		used := line.Tenants[0].DayUsed
		if math.Abs(float64(used-sent)) <= missing*float64(sent) {
			t.Logf("figure: top counts %d of %d requests", used, sent)
			return true
		}
		for _, g := range f.Gateways[:2] { // the next request charges what a gateway admitted while Redis was late
			g.Want(t, key.Token, http.StatusOK, "")
			sent++
		}
		return false
	})
	top.Signal(os.Interrupt)
	if code := top.ExitCode(t); code != 0 {
		t.Errorf("exit %d after an interrupt: %s", code, top.Stderr.String())
	}

	if math.Abs(rated-counted) > tolerance*counted {
		t.Errorf("top shows %.1f requests a second and counts %.1f", rated/seconds, counted/seconds)
	}
	slices.Sort(took)
	if median(took) > patience {
		t.Errorf("%v between two refreshes (median), want at most %v", median(took), patience)
	}
	t.Logf("figure: top: %.1f requests a second shown, %.1f counted; one of three gateways hangs: "+
		"%v between refreshes (median), at most %v", rated/seconds, counted/seconds, median(took).Round(time.Millisecond),
		slices.Max(took).Round(time.Millisecond))
}

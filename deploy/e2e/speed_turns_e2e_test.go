//go:build e2e

package e2e_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"petgate/shared/testkit/fleet"
)

// contender is a gateway that differs from others in one thing.
type contender struct {
	name    string
	gateway *fleet.Program

	answered       int       // requests
	costs, ratios  []float64 // µs of processor time for a request, and relative to the first contender's, one a round
	medians, tails []time.Duration
}

// takeTurns puts the same load on one gateway after the other, in many short rounds, and prints what a request costs each of them. The
// times are not judged, because neighbours on the machine change them.
func takeTurns(t *testing.T, request string, contenders []*contender) {
	t.Helper()
	const (
		rounds   = 5
		warm     = 200 * time.Millisecond
		measured = time.Second
	)
	for round := range rounds {
		for i := range contenders {
			c := contenders[(i+round)%len(contenders)]
			c.answered += len(sendTimed(t, c.gateway, request, warm))
			before := c.gateway.ProcessorTime(t)
			took := sendTimed(t, c.gateway, request, measured)
			if t.Failed() {
				t.Fatalf("%s: requests of round %d failed", c.name, round+1) // without responses there is no median
			}
			c.answered += len(took)
			c.costs = append(c.costs, float64((c.gateway.ProcessorTime(t)-before).Microseconds())/float64(len(took)))
			c.medians, c.tails = append(c.medians, took[len(took)/2]), append(c.tails, took[len(took)*99/100])
		}
		for _, c := range contenders {
			c.ratios = append(c.ratios, c.costs[round]/contenders[0].costs[round])
		}
	}
	for _, c := range contenders {
		slices.Sort(c.costs)
		slices.Sort(c.ratios)
		slices.Sort(c.medians)
		slices.Sort(c.tails)
		t.Logf("figure: %s: %.1f µs of the gateway's processor time a request, %.3f of %q (median of %d rounds, %.3f to %.3f); "+
			"median %v, 99th percentile %v", c.name, c.costs[rounds/2], c.ratios[rounds/2], contenders[0].name, rounds, c.ratios[0], c.ratios[rounds-1],
			c.medians[rounds/2].Round(time.Microsecond), c.tails[rounds/2].Round(time.Microsecond))
	}
}

// sendTimed sends requests on many connections for the given time, and returns the times of all of them, in ascending order. Each client
// sends at least one.
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

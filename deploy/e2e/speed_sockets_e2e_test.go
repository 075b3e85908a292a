//go:build e2e

package e2e_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// What each saving of shared/socket saves: gateways that differ only in these savings take turns under the same load. The times are
// printed and not judged, because neighbours on the machine change them; the system calls of a request are judged elsewhere.
func TestSpeedOfSockets(t *testing.T) {
	const (
		rounds   = 3
		warm     = 500 * time.Millisecond
		measured = 2 * time.Second
	)
	redis := testkit.StartRedis(t)
	f := fleet.Start(t, fleet.Spec{
		Redis: redis.URL, Upstreams: fleet.FixedUpstream(t), GatewayEnv: []string{"GATEWAY_ACCESS_LOG=false"},
	})
	request := fleet.GetPets(f.NewTenant("acme", fleet.Unlimited...).Token)
	variants := []struct {
		savings string
		gateway *fleet.Program
		costs   []float64 // µs of processor time for a request, one a round
	}{
		{savings: "none"},
		{savings: "quiet"},
		{savings: "exchange"},
		{savings: "deadlines"},
		{savings: "exchange,deadlines"},
		{savings: "quiet,exchange"},
		{savings: "quiet,deadlines"},
		{savings: "quiet,exchange,deadlines"},
	}
	for i := range variants {
		variants[i].gateway = f.AddGateway("PETGATE_SOCKETS=" + variants[i].savings)
	}
	for range rounds {
		for i := range variants {
			v := &variants[i]
			send(t, v.gateway, request, warm)
			before := v.gateway.ProcessorTime(t)
			n := send(t, v.gateway, request, measured)
			v.costs = append(v.costs, float64((v.gateway.ProcessorTime(t)-before).Microseconds())/float64(n))
		}
	}
	for _, v := range variants {
		slices.Sort(v.costs)
		t.Logf("figure: sockets save %s: %.1f µs of the gateway's processor time a request (median of %d rounds, %.1f to %.1f)",
			v.savings, v.costs[rounds/2], rounds, v.costs[0], v.costs[rounds-1])
	}
}

// send sends requests on many connections for the given time, and returns how many were answered.
func send(t testing.TB, p *fleet.Program, request string, span time.Duration) (answered int) {
	t.Helper()
	end := time.Now().Add(span)
	counts := make([]int, speedClients)
	var all sync.WaitGroup
	for i := range counts {
		all.Go(func() {
			c := p.Client()
			defer c.Close()
			for time.Now().Before(end) {
				if got, err := c.Do(request); err != nil || got.Status != 200 {
					t.Errorf("%v, %v", got, err)
					return
				}
				counts[i]++
			}
		})
	}
	all.Wait()
	for _, n := range counts {
		answered += n
	}
	return answered
}

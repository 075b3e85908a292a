//go:build e2e

package e2e_test

import (
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// While somebody watches a gateway, a request makes as many system calls and allocations as before.
func TestWatchingCostsNoCalls(t *testing.T) {
	const (
		rounds = 5
		slack  = 0.5 // a request that costs one more is noticed; background work is less
	)
	s := startSpeed(t, countable)
	type cost struct{ reads, writes, allocations float64 }
	measure := func(f func()) cost {
		mallocs := s.gateway.Metric(t, "go_memstats_mallocs_total", "")
		before := countCalls(t, s.gateway)
		f()
		after := countCalls(t, s.gateway)
		return cost{after.reads - before.reads, after.writes - before.writes, s.gateway.Metric(t, "go_memstats_mallocs_total", "") - mallocs}
	}
	requests := func() { s.send(t, 1, speedRequests) }
	ask := func() { s.gateway.AdminPage(t, "/live?n=1000") }
	// Background work only adds. So the least of the rounds is the cost of the requests.
	least := func(f func()) cost {
		c := measure(f)
		for range rounds - 1 {
			again := measure(f)
			c = cost{min(c.reads, again.reads), min(c.writes, again.writes), min(c.allocations, again.allocations)}
		}
		return c
	}
	requests() // pools and buffers for this kind of load
	alone := least(requests)
	ask() // the gateway counts from here on
	asking, watched := least(ask), least(func() { requests(); ask() })
	extra := func(of func(cost) float64) float64 { // for a request
		return (of(watched) - of(asking) - of(alone)) / speedRequests
	}
	reads, writes := extra(func(c cost) float64 { return c.reads }), extra(func(c cost) float64 { return c.writes })
	mallocs := extra(func(c cost) float64 { return c.allocations })
	t.Logf("figure: watched, a request makes %+.3f reads, %+.3f writes and %+.2f allocations more", reads, writes, mallocs)
	if reads > slack || writes > slack || mallocs > slack {
		t.Errorf("watching costs a request %.3f reads, %.3f writes and %.2f allocations", reads, writes, mallocs)
	}
}

// How watching shows in the processor time: two gateways take turns, and only one is watched.
func TestSpeedWhileWatched(t *testing.T) {
	f := fleet.Start(t, fleet.Spec{
		Redis: testkit.StartRedis(t).URL, Upstreams: fleet.FixedUpstream(t), Gateways: 2, GatewayEnv: []string{"GATEWAY_ACCESS_LOG=false"},
	})
	request := fleet.GetPets(f.NewTenant("acme", fleet.Unlimited...).Token)
	watched := f.Gateways[1]
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				if page := watched.AdminPage(t, "/live?n=1000"); len(page) < 100 {
					t.Errorf("GET /live: %s", page)
				}
			}
		}
	}()
	takeTurns(t, request, []*contender{{name: "unwatched", gateway: f.Gateways[0]}, {name: "watched", gateway: watched}})
	close(stop)
	<-stopped
}

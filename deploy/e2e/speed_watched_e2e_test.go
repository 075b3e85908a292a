//go:build e2e

package e2e_test

import (
	"slices"
	"testing"
)

// While somebody watches a gateway, a request makes as many system calls and allocations as before.
func TestWatchingCostsNoCalls(t *testing.T) {
	const (
		count = 5   // of rounds
		slack = 0.5 // a request that costs one more is noticed; background work is less
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
	// Background work adds to a round. A busy machine takes from it: data that is there before the first read saves the second, and while
	// Redis has no processor, there are no calls of it. So the least of the watched rounds is compared with the most of the others.
	least, most := slices.Min[[]float64], slices.Max[[]float64]
	rounds := func(f func(), of func([]float64) float64) cost {
		var reads, writes, allocations []float64
		for range count {
			c := measure(f)
			reads, writes, allocations = append(reads, c.reads), append(writes, c.writes), append(allocations, c.allocations)
		}
		return cost{of(reads), of(writes), of(allocations)}
	}
	requests() // pools and buffers for this kind of load
	alone := rounds(requests, most)
	ask() // the gateway counts from here on
	asking, watched := rounds(ask, least), rounds(func() { requests(); ask() }, least)
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

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// specials loads the gateway with requests that it refuses: those of a key over its quota, and those without a key.
func (l *lab) specials(ctx context.Context, rounds int, duration time.Duration) ([]Run, error) {
	redis, err := find("Petgate, quotas in Redis")
	if err != nil {
		return nil, err
	}
	var runs []Run
	for round := range rounds {
		for _, s := range []struct{ name, keysPath string }{
			{"admitted", l.keysPath}, {"over its quota, then banned (429)", l.smallKeyPath}, {"without a key (401)", ""},
		} {
			run, err := l.load(ctx, redis, 128, duration, s.keysPath)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
			run.System, run.Round = s.name, round
			runs = append(runs, run)
		}
	}
	return runs, nil
}

// table is the result as Markdown: medians, and ratios of processor time within one round, with the smallest and the
// largest of them.
func (r Result) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s cores, Linux %s; %d rounds of %s a row, taken in turns\n\n", r.Machine["cpu"], r.Machine["cores"],
		r.Machine["kernel"], r.Rounds, r.Duration)
	const head = "| %s | req/s | p50 µs | p99 µs | CPU µs per request: gateway | Redis | ÷ first row | Redis calls per request | MB |\n" +
		"|---|---|---|---|---|---|---|---|---|\n"
	for _, connections := range connectionsOf(r.Runs) {
		fmt.Fprintf(&b, head, fmt.Sprintf("c=%d", connections))
		writeRows(&b, slices.DeleteFunc(slices.Clone(r.Runs), func(run Run) bool { return run.Connections != connections }))
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, head, "Petgate, quotas in Redis, c=128")
	writeRows(&b, r.Specials)
	return b.String()
}

func writeRows(b *strings.Builder, runs []Run) {
	var names []string
	for _, run := range runs {
		if !slices.Contains(names, run.System) {
			names = append(names, run.System)
		}
	}
	sum := func(run Run) float64 { return run.GatewayMicros + run.RedisMicros }
	base := map[int]float64{} // of the first row, by round
	for _, run := range runs {
		if run.System == names[0] {
			base[run.Round] = sum(run)
		}
	}
	for _, name := range names {
		row := slices.DeleteFunc(slices.Clone(runs), func(run Run) bool { return run.System != name })
		of := func(f func(Run) float64) spread { return spreadOf(row, f) }
		ratio := of(func(run Run) float64 { return sum(run) / base[run.Round] })
		fmt.Fprintf(b, "| %s | %.0f | %.0f | %.0f | %.1f | %.1f | %.2f (%.2f–%.2f) | %.3f | %.0f |\n", name,
			of(func(run Run) float64 { return run.PerSecond }).median,
			of(func(run Run) float64 { return float64(run.P50Micros) }).median,
			of(func(run Run) float64 { return float64(run.P99Micros) }).median,
			of(func(run Run) float64 { return run.GatewayMicros }).median,
			of(func(run Run) float64 { return run.RedisMicros }).median,
			ratio.median, ratio.min, ratio.max,
			of(func(run Run) float64 { return run.RedisCalls }).median,
			of(func(run Run) float64 { return run.ResidentMB }).median)
	}
}

type spread struct{ min, median, max float64 }

func spreadOf(runs []Run, f func(Run) float64) spread {
	values := make([]float64, len(runs))
	for i, run := range runs {
		values[i] = f(run)
	}
	slices.Sort(values)
	return spread{values[0], values[len(values)/2], values[len(values)-1]}
}

func connectionsOf(runs []Run) []int {
	var counts []int
	for _, run := range runs {
		if !slices.Contains(counts, run.Connections) {
			counts = append(counts, run.Connections)
		}
	}
	return counts
}

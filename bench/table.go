package main

import (
	"fmt"
	"strings"
)

// tables is the result as Markdown: medians over the rounds; of ratios also the smallest and the largest.
func (r Result) tables() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s cores, %s, Linux %s; %s; %s; %s; %s. Taken %s at commit %s: %d rounds of %s a row, in turns; load average %s "+
		"before, %s after.\n\n", r.Machine["cpu"], r.Machine["cores"], r.Machine["memory"], r.Machine["kernel"], r.Machine["nginx"],
		r.Machine["haproxy"], r.Machine["redis"], r.Machine["go"], r.At.Format("2006-01-02 15:04 UTC"), r.Machine["commit"],
		r.Rounds, r.Duration, r.Machine["load at the start"], r.Machine["load at the end"])
	r.writeFigures(&b)
	for _, connections := range r.connections() {
		fmt.Fprintf(&b, "### Connections: %d\n\n| what ran | req/s | p50 µs | p99 µs | CPU µs per request: gateway | Redis | sum ÷ %s | "+
			"÷ %s | Redis calls per request | MB |\n|---|---|---|---|---|---|---|---|---|---|\n", connections, nginxPlain, policyIsOff)
		for _, name := range r.rows("gateways") {
			runs := r.of("gateways", name, connections)
			fmt.Fprintf(&b, "| %s | %.0f | %.0f | %.0f | %.1f | %.1f | %v | %v | %.3f | %.0f |\n", name,
				over(runs, perSecond).median, over(runs, latency(p50)).median, over(runs, latency(p99)).median,
				over(runs, func(r Run) float64 { return r.GatewayMicros }).median,
				over(runs, func(r Run) float64 { return r.RedisMicros }).median,
				ratio(runs, r.of("gateways", nginxPlain, connections), Run.micros),
				ratio(runs, r.of("gateways", policyIsOff, connections), Run.micros),
				over(runs, redisCalled).median, over(runs, func(r Run) float64 { return r.ResidentMB }).median)
		}
		b.WriteByte('\n')
	}
	var requests, refused int64
	for _, run := range r.Runs {
		if run.Section == "gateways" {
			requests, refused = requests+run.Requests, refused+run.Refused
		}
	}
	if requests > 0 {
		fmt.Fprintf(&b, "Of %d requests in these tables %d were answered with another status than 200.\n\n", requests, refused)
	}
	r.writeSmall(&b, "refusals", fmt.Sprintf("Refused requests, %s, %d connections", petgateRedis, manyConnections), admitted)
	r.writeSmall(&b, "pets", fmt.Sprintf("The pet service, %d connections to Postgres", databaseConnections), pgbenchRow)
	r.writeSmall(&b, "scale", fmt.Sprintf("Gateways on one Redis, %d connections each", someConnections), gatewaysOnOne(1))
	return b.String()
}

// writeSmall writes a section of a few rows.
func (r Result) writeSmall(b *strings.Builder, section, title, base string) {
	if len(r.rows(section)) == 0 {
		return
	}
	fmt.Fprintf(b, "### %s\n\n| what ran | req/s | ÷ %s | CPU µs per request: program | Redis | Redis calls per request | a second | "+
		"cores of Postgres |\n|---|---|---|---|---|---|---|---|\n", title, base)
	for _, name := range r.rows(section) {
		runs := r.of(section, name, 0)
		fmt.Fprintf(b, "| %s | %.0f | %v | %.1f | %.1f | %.3f | %.0f | %.2f |\n", name, over(runs, perSecond).median,
			ratio(runs, r.of(section, base, 0), perSecond),
			over(runs, func(r Run) float64 { return r.GatewayMicros }).median,
			over(runs, func(r Run) float64 { return r.RedisMicros }).median, over(runs, redisCalled).median,
			over(runs, callsPerSecond).median, over(runs, func(r Run) float64 { return r.PostgresShare }).median)
	}
	b.WriteByte('\n')
}

func callsPerSecond(r Run) float64 { return r.RedisCalls * r.PerSecond }

// furtherCallsPerSecond leaves the first call out: between so many calls and one more lie so many seconds.
func furtherCallsPerSecond(r Run) float64 {
	return max(0, r.RedisCalls*float64(r.Requests)-1) / (float64(r.Requests) / r.PerSecond)
}

// connections lists those of the main table in their order.
func (r Result) connections() (counts []int) {
	for _, run := range r.Runs {
		if run.Section == "gateways" && (len(counts) == 0 || counts[len(counts)-1] < run.Connections) {
			counts = append(counts, run.Connections)
		}
	}
	return counts
}

// writeFigures writes the figures that the project holds itself to, each with its goal.
func (r Result) writeFigures(b *strings.Builder) {
	row := func(name string) []Run { return r.of("gateways", name, manyConnections) }
	ours := row(petgateRedis)
	refused := func(name string) []Run { return r.of("refusals", name, 0) }
	fmt.Fprint(b, "| figure | goal | measured: median (least–most) | |\n|---|---|---|---|\n")
	for _, f := range []struct {
		name     string
		goal     float64
		atLeast  bool
		measured spread
	}{
		{"CPU of an admitted request, gateway and Redis, ÷ " + nginxPlain, 1.5, false, ratio(ours, row(nginxPlain), Run.micros)},
		{"the same ÷ our own path with policy off", 1.35, false, ratio(ours, row(policyIsOff), Run.micros)},
		{"the same ÷ " + nginxLuaRedis, 0.55, false, ratio(ours, row(nginxLuaRedis), Run.micros)},
		{"the same ÷ " + haproxyTables, 1.35, false, ratio(ours, row(haproxyTables), Run.micros)},
		{"Redis calls for an admitted request", 0.1, false, over(ours, redisCalled)},
		{
			fmt.Sprintf("p99 of %d connections ÷ %s", someConnections, nginxPlain), 1.5, false,
			ratio(r.of("gateways", petgateRedis, someConnections), r.of("gateways", nginxPlain, someConnections), latency(p99)),
		},
		{"what policy adds to a lone client's p50 ÷ a trip of redis-benchmark's with the same script", 1.2, false, r.addedTrips()},
		{"CPU of a request over its quota ÷ an admitted one", 0.5, false, ratio(refused(overQuota), refused(admitted), Run.micros)},
		{"Redis calls a second, after the first, for one tenant that is over its quota", 1, false, over(refused(overQuota), furtherCallsPerSecond)},
		{"CPU of a banned key's request ÷ an admitted one", 0.5, false, ratio(refused(banned), refused(admitted), Run.micros)},
		{"CPU of a request without a key ÷ an admitted one", 0.5, false, ratio(refused(keyless), refused(admitted), Run.micros)},
		{
			"lists of 20 a second from petsvc, with as many clients as connections to Postgres, ÷ pgbench's", 0.6, true,
			ratio(r.of("pets", petsvcFewRow, 0), r.of("pets", pgbenchRow, 0), perSecond),
		},
		{
			"the same with 32 clients", 0.6, true,
			ratio(r.of("pets", petsvcRow, 0), r.of("pets", pgbenchRow, 0), perSecond),
		},
		{
			"lists through a gateway with quotas in memory ÷ from petsvc, 32 clients", 0.7, true,
			ratio(r.of("pets", chainRow, 0), r.of("pets", petsvcRow, 0), perSecond),
		},
		{
			"the same with quotas in Redis", 0.7, true,
			ratio(r.of("pets", chainRedisRow, 0), r.of("pets", petsvcRow, 0), perSecond),
		},
	} {
		if f.measured == (spread{}) {
			continue // not part of this result
		}
		sign, reached := "≤", f.measured.median <= f.goal
		if f.atLeast {
			sign, reached = "≥", f.measured.median >= f.goal
		}
		fmt.Fprintf(b, "| %s | %s %v | %v | %s |\n", f.name, sign, f.goal, f.measured, map[bool]string{true: "reached", false: "not reached"}[reached])
	}
	b.WriteByte('\n')
}

// addedTrips is what a lone client waits longer because quotas are in Redis, in trips.
func (r Result) addedTrips() spread {
	var values []float64
	off, trips := r.of("trip", policyIsOff, 0), r.of("trip", redisTrip, 0)
	for i, run := range r.of("trip", petgateRedis, 0) {
		values = append(values, (latency(p50)(run)-latency(p50)(off[i]))/latency(p50)(trips[i]))
	}
	return spreadOf(values)
}

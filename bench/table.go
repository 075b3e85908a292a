package main

import (
	"fmt"
	"strings"
)

// tables formats the result as Markdown: medians over the rounds, and for ratios also the least and the most.
func (r Result) tables() string {
	var b strings.Builder
	m := r.Machine
	fmt.Fprintf(&b, "Machine: %s, %s cores, %s, Linux %s, shared by all programs. nginx %s, haproxy %s, Redis %s, Go %s. Taken %s at commit %s: "+
		"%d rounds, %s for each row of a round.\n\n", m["cpu"], m["cores"], m["memory"], m["kernel"], m["nginx"], m["haproxy"], m["redis"],
		m["go"], r.At.Format("2006-01-02"), m["commit"], r.Rounds, r.Duration)
	r.writeFigures(&b)
	for _, connections := range r.connections("gateways") {
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
		fmt.Fprintf(&b, "Requests in these tables: %d. Responses with a status other than 200: %d.\n\n", requests, refused)
	}
	r.writeSmall(&b, "refusals", fmt.Sprintf("Refused requests, %s, %d connections", petgateRedis, manyConnections), admitted)
	r.writeSmall(&b, "pets", fmt.Sprintf("The pet service, %d connections to Postgres", databaseConnections), pgbenchRow)
	r.writeSmall(&b, "scale", fmt.Sprintf("Gateways on one Redis, %d connections each", someConnections), gatewaysOnOne(1))
	r.writeComparison(&b)
	return b.String()
}

// writeSmall writes a section of a few rows.
func (r Result) writeSmall(b *strings.Builder, section, title, base string) {
	if len(r.rows(section)) == 0 {
		return
	}
	fmt.Fprintf(b, "### %s\n\n| load | req/s | ÷ %s | CPU µs per request: program | Redis | Redis calls per request | a second | "+
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

// furtherCallsPerSecond does not count the first call: n calls have n-1 intervals between them.
func furtherCallsPerSecond(r Run) float64 {
	return max(0, r.RedisCalls*float64(r.Requests)-1) / (float64(r.Requests) / r.PerSecond)
}

// connections lists a section's numbers of connections in ascending order.
func (r Result) connections(section string) (counts []int) {
	for _, run := range r.Runs {
		if run.Section == section && (len(counts) == 0 || counts[len(counts)-1] < run.Connections) {
			counts = append(counts, run.Connections)
		}
	}
	return counts
}

// writeFigures writes the figures that summarise the tables below it.
func (r Result) writeFigures(b *strings.Builder) {
	row := func(name string) []Run { return r.of("gateways", name, manyConnections) }
	ours := row(petgateRedis)
	some := func(name string) []Run { return r.of("gateways", name, someConnections) }
	refused := func(name string) []Run { return r.of("refusals", name, 0) }
	pets := func(name string) []Run { return r.of("pets", name, 0) }
	head := "| figure | median (least–most) |\n|---|---|\n"
	for _, f := range []struct {
		name     string
		measured spread
	}{
		{"CPU of an admitted request, gateway and Redis, ÷ " + nginxPlain, ratio(ours, row(nginxPlain), Run.micros)},
		{"the same ÷ Petgate with policy off", ratio(ours, row(policyIsOff), Run.micros)},
		{"the same ÷ " + nginxLuaRedis, ratio(ours, row(nginxLuaRedis), Run.micros)},
		{"the same ÷ " + haproxyTables, ratio(ours, row(haproxyTables), Run.micros)},
		{"Redis calls per admitted request", over(ours, redisCalled)},
		{fmt.Sprintf("p99 with %d connections ÷ %s", someConnections, nginxPlain), ratio(some(petgateRedis), some(nginxPlain), latency(p99))},
		{"p50 that policy adds with one connection ÷ p50 of the same script in redis-benchmark", r.addedTrips()},
		{"CPU of a request over its quota ÷ an admitted one", ratio(refused(overQuota), refused(admitted), Run.micros)},
		{"Redis calls per second, after the first, for one tenant over its quota", over(refused(overQuota), furtherCallsPerSecond)},
		{"CPU of a banned key's request ÷ an admitted one", ratio(refused(banned), refused(admitted), Run.micros)},
		{"CPU of a request without a key ÷ an admitted one", ratio(refused(keyless), refused(admitted), Run.micros)},
		{"lists of 20 per second from petsvc, 8 clients, ÷ pgbench, 8 connections", ratio(pets(petsvcFewRow), pets(pgbenchRow), perSecond)},
		{"the same with 32 clients", ratio(pets(petsvcRow), pets(pgbenchRow), perSecond)},
		{"lists through a gateway, quotas in memory, ÷ directly from petsvc, 32 clients", ratio(pets(chainRow), pets(petsvcRow), perSecond)},
		{"the same with quotas in Redis", ratio(pets(chainRedisRow), pets(petsvcRow), perSecond)},
	} {
		if f.measured != (spread{}) {
			fmt.Fprintf(b, "%s| %s | %v |\n", head, f.name, f.measured)
			head = ""
		}
	}
	if head == "" {
		b.WriteByte('\n')
	}
}

// addedTrips is how much longer a single client waits because quotas are in Redis. The unit is a trip of redis-benchmark.
func (r Result) addedTrips() spread {
	var values []float64
	off, trips := r.of("trip", policyIsOff, 0), r.of("trip", redisTrip, 0)
	for i, run := range r.of("trip", petgateRedis, 0) {
		values = append(values, (latency(p50)(run)-latency(p50)(off[i]))/latency(p50)(trips[i]))
	}
	return spreadOf(values)
}

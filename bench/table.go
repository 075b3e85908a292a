package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// tables formats the result as Markdown: medians over the rounds, and for ratios also the least and
// the most.
func (r Result) tables() string {
	var b strings.Builder
	r.writeMachine(&b)
	r.writeFigures(&b, 0, math.MaxInt)
	for _, connections := range r.connections("gateways") {
		r.writeTable(
			&b,
			fmt.Sprintf("Connections: %d", connections),
			r.rowsOf("gateways", connections),
			append(loadColumns,
				ratioTo(nginxPlain, Run.micros, func(at row) row { at.system = nginxPlain; return at }),
				ratioTo(policyIsOff, Run.micros, func(at row) row { at.system = policyIsOff; return at }),
				callsColumn, memoryColumn),
		)
	}
	var requests, refused int64
	for _, run := range r.Runs {
		if run.Section == "gateways" {
			requests, refused = requests+run.Requests, refused+run.Refused
		}
	}
	if requests > 0 {
		fmt.Fprintf(&b, "Requests in these tables: %d. Responses with a status other than 200: %d.\n\n", requests,
			refused)
	}
	for _, s := range suites {
		r.writeTable(&b, s.title, r.rowsOf(s.name, 0), append(loadColumns,
			ratioTo(s.base+", same load", Run.micros, func(at row) row { at.system = s.base; return at }),
			callsColumn, refusedColumn, idleColumn), r.Notes[s.name]...)
	}
	r.writeSmall(&b, "refusals", fmt.Sprintf("Refused requests, %s, %d connections", petgateRedis, manyConnections),
		admitted)
	r.writeSmall(&b, "pets", fmt.Sprintf("The pet service, %d connections to Postgres", databaseConnections),
		pgbenchRow)
	r.writeComparison(&b)
	return b.String()
}

// summary is the part of the tables that docs/performance.md shows.
func (r Result) summary() string {
	var b strings.Builder
	r.writeMachine(&b)
	rates := suites[0]
	r.writeTable(&b, rates.title, r.rowsOf(rates.name, 0), []column{
		loadColumns[1], loadColumns[2], loadColumns[4], loadColumns[5],
		ratioTo(nginxPlain, Run.micros, func(at row) row { at.system = nginxPlain; return at }),
		ratioTo(rates.base, Run.micros, func(at row) row { at.system = rates.base; return at }),
		callsColumn,
	})
	r.writeFigures(&b, briefFrom, briefTo)
	r.writeTable(
		&b,
		fmt.Sprintf("Saturation, %d connections, with an access log", manyConnections),
		r.rowsOf("gateways", manyConnections),
		[]column{
			loadColumns[0], loadColumns[1], loadColumns[2], loadColumns[4], loadColumns[5],
			ratioTo(nginxPlain, Run.micros, func(at row) row { at.system = nginxPlain; return at }),
		},
	)
	b.WriteString(
		"### Saturation, few and many connections\n\n| connections | " + petgateRedis + ": req/s | p50 µs | CPU µs per request | " +
			nginxLuaRedis + ": req/s | p50 µs | CPU µs per request | CPU, Petgate ÷ " + nginxLuaRedis + " |\n|---|---|---|---|---|---|---|---|\n",
	)
	for _, connections := range r.connections("gateways") {
		ours, peer := r.of("gateways", petgateRedis, connections), r.of("gateways", nginxLuaRedis, connections)
		fmt.Fprintf(&b, "| %d |", connections)
		for _, runs := range [][]Run{ours, peer} {
			fmt.Fprintf(&b, " %.0f | %.0f | %.1f |", over(runs, perSecond).median, over(runs, latency(p50)).median,
				over(runs, Run.micros).median)
		}
		fmt.Fprintf(&b, " %v |\n", ratio(ours, peer, Run.micros))
	}
	return b.String() + "\n"
}

func (r Result) writeMachine(b *strings.Builder) {
	m := r.Machine
	fmt.Fprintf(
		b,
		"Machine: %s, %s cores, %s, Linux %s, shared by all programs. nginx %s, haproxy %s, Redis %s, Go %s. Taken %s at commit %s: "+
			"%d rounds of %s.\n\n",
		m["cpu"],
		m["cores"],
		m["memory"],
		m["kernel"],
		m["nginx"],
		m["haproxy"],
		m["redis"],
		m["go"],
		r.At.Format("2006-01-02"),
		m["commit"],
		r.Rounds,
		r.Duration,
	)
}

// column is a figure of each row of a table.
type column struct {
	name   string
	format string // of the median; empty: the median with the least and the most
	of     func(r Result, at row) spread
}

// median is a column with the median of a figure.
func median(name, format string, figure func(Run) float64) column {
	return column{name, format, func(r Result, at row) spread { return over(r.runs(at), figure) }}
}

// ratioTo is a column with a figure divided by that of another row in the same round.
func ratioTo(name string, figure func(Run) float64, base func(row) row) column {
	return column{"÷ " + name, "", func(r Result, at row) spread { return ratio(r.runs(at), r.runs(base(at)), figure) }}
}

func (c column) text(s spread) string {
	switch {
	case s == spread{}:
		return "–"
	case c.format == "":
		return s.String()
	}
	return fmt.Sprintf(c.format, s.median)
}

var (
	loadColumns = []column{
		median("req/s", "%.0f", perSecond),
		median("p50 µs", "%.0f", latency(p50)),
		median("p99 µs", "%.0f", latency(p99)),
		median("p99.9 µs", "%.0f", latency(p999)),
		median("CPU µs per request: program", "%.1f", func(r Run) float64 { return r.GatewayMicros }),
		median("Redis", "%.1f", func(r Run) float64 { return r.RedisMicros }),
	}
	callsColumn   = median("Redis calls per request", "%.3f", redisCalled)
	memoryColumn  = median("MB", "%.0f", func(r Run) float64 { return r.ResidentMB })
	refusedColumn = median("% not 2xx", "%.2f",
		func(r Run) float64 { return 100 * float64(r.Refused) / float64(max(1, r.Requests)) })
	idleColumn = median("kB per connection", "%.1f", func(r Run) float64 { return r.IdleKB })
)

// writeTable writes the rows that were measured, and notes below them. Columns that are always 0
// are left out.
func (r Result) writeTable(b *strings.Builder, title string, rows []row, columns []column, notes ...string) {
	if len(rows) == 0 {
		return
	}
	columns = slices.DeleteFunc(slices.Clone(columns), func(c column) bool {
		return !slices.ContainsFunc(rows, func(at row) bool { return c.of(r, at).max > 0 })
	})
	head, rule := "| what ran |", "|---|"
	if rows[0].load != "" {
		head, rule = "| load | what ran |", "|---|---|"
	}
	for _, c := range columns {
		head, rule = head+" "+c.name+" |", rule+"---|"
	}
	fmt.Fprintf(b, "### %s\n\n%s\n%s\n", title, head, rule)
	for _, at := range rows {
		line := "| "
		if at.load != "" {
			line += at.load + " | "
		}
		line += at.system + " |"
		for _, c := range columns {
			line += " " + c.text(c.of(r, at)) + " |"
		}
		b.WriteString(line + "\n")
	}
	b.WriteByte('\n')
	for _, note := range notes {
		b.WriteString(note + "\n\n")
	}
}

// writeSmall writes a section of a few rows.
func (r Result) writeSmall(b *strings.Builder, section, title, base string) {
	r.writeTable(b, title, r.rowsOf(section, 0), []column{
		median("req/s", "%.0f", perSecond),
		ratioTo(base, perSecond, func(at row) row { at.system, at.connections = base, 0; return at }),
		median("CPU µs per request: program", "%.1f", func(r Run) float64 { return r.GatewayMicros }),
		median("Redis", "%.1f", func(r Run) float64 { return r.RedisMicros }),
		callsColumn,
		median("Redis calls a second", "%.0f", callsPerSecond),
		median("cores of Postgres", "%.2f", func(r Run) float64 { return r.PostgresShare }),
	})
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

// The figures that docs/performance.md shows: those that its other tables do not have.
const (
	briefFrom = 4
	briefTo   = 8
)

// writeFigures writes some of the figures that summarise the tables below it.
func (r Result) writeFigures(b *strings.Builder, from, to int) {
	row := func(name string) []Run { return r.of("gateways", name, manyConnections) }
	ours := row(petgateRedis)
	some := func(name string) []Run { return r.of("gateways", name, someConnections) }
	refused := func(name string) []Run { return r.of("refusals", name, 0) }
	pets := func(name string) []Run { return r.of("pets", name, 0) }
	head := "| figure | median (least–most) |\n|---|---|\n"
	figures := []struct {
		name     string
		measured spread
	}{
		{"CPU of an admitted request, gateway and Redis, ÷ " + nginxPlain, ratio(ours, row(nginxPlain), Run.micros)},
		{"the same ÷ Petgate with policy off", ratio(ours, row(policyIsOff), Run.micros)},
		{"the same ÷ " + nginxLuaRedis, ratio(ours, row(nginxLuaRedis), Run.micros)},
		{"the same ÷ " + haproxyTables, ratio(ours, row(haproxyTables), Run.micros)},
		{"Redis calls per admitted request", over(ours, redisCalled)},
		{"CPU of a request over its quota ÷ an admitted one", ratio(refused(overQuota), refused(admitted), Run.micros)},
		{
			"Redis calls per second, after the first, for one tenant over its quota",
			over(refused(overQuota), furtherCallsPerSecond),
		},
		{"CPU of a banned key's request ÷ an admitted one", ratio(refused(banned), refused(admitted), Run.micros)},
		{"CPU of a request without a key ÷ an admitted one", ratio(refused(keyless), refused(admitted), Run.micros)},
		{
			fmt.Sprintf("p99 with %d connections ÷ %s", someConnections, nginxPlain),
			ratio(some(petgateRedis), some(nginxPlain), latency(p99)),
		},
		{"the same for p99.9", ratio(some(petgateRedis), some(nginxPlain), latency(p999))},
		{
			"lists of 20 per second from petsvc, 8 clients, ÷ pgbench, 8 connections",
			ratio(pets(petsvcFewRow), pets(pgbenchRow), perSecond),
		},
		{"the same with 32 clients", ratio(pets(petsvcRow), pets(pgbenchRow), perSecond)},
		{
			"pets by id per second from petsvc, 8 clients, ÷ pgbench, 8 connections",
			ratio(pets(petsvcGetRow), pets(pgbenchGetRow), perSecond),
		},
		{
			"lists through a gateway, quotas in memory, ÷ directly from petsvc, 32 clients",
			ratio(pets(chainRow), pets(petsvcRow), perSecond),
		},
		{"the same with quotas in Redis", ratio(pets(chainRedisRow), pets(petsvcRow), perSecond)},
	}
	for _, f := range figures[from:min(to, len(figures))] {
		if f.measured != (spread{}) {
			fmt.Fprintf(b, "%s| %s | %v |\n", head, f.name, f.measured)
			head = ""
		}
	}
	if head == "" {
		b.WriteByte('\n')
	}
}

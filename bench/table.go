package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// tables formats the result as Markdown: medians over the rounds, and for ratios also the least and
// the most.
func (r Result) tables() string {
	var b strings.Builder
	r.writeMachine(&b)
	writeFigures(&b, r.figures())
	for _, connections := range r.connections("gateways") {
		r.writeRows(
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
		r.writeRows(&b, s.title, r.rowsOf(s.name, 0), append(loadColumns,
			ratioTo(s.base+", same load", Run.micros, func(at row) row { at.system = s.base; return at }),
			callsColumn, refusedColumn, idleColumn), r.Notes[s.name]...)
	}
	r.writeSmall(&b, "refusals", fmt.Sprintf("Refused requests, %s, %d connections", petgateRedis, manyConnections),
		admitted)
	r.writeSmall(&b, "pets", fmt.Sprintf("The pet service, %d connections to Postgres", databaseConnections),
		pgbenchRow)
	return b.String()
}

// summary is the part of the tables that docs/performance.md shows.
func (r Result) summary() string {
	var b strings.Builder
	r.writeMachine(&b)
	rates := suites[0]
	r.writeRows(&b, rates.title, r.rowsOf(rates.name, 0), []column{
		loadColumns[1], loadColumns[2], loadColumns[4], loadColumns[5],
		ratioTo(nginxPlain, Run.micros, func(at row) row { at.system = nginxPlain; return at }),
		ratioTo(rates.base, Run.micros, func(at row) row { at.system = rates.base; return at }),
		callsColumn,
	})
	writeFigures(&b, slices.DeleteFunc(r.figures(), func(f figure) bool { return !f.isOnPage }))
	r.writeRows(
		&b,
		fmt.Sprintf("Saturation, %d connections, with an access log", manyConnections),
		r.rowsOf("gateways", manyConnections),
		[]column{
			loadColumns[0], loadColumns[1], loadColumns[2], loadColumns[4], loadColumns[5],
			ratioTo(nginxPlain, Run.micros, func(at row) row { at.system = nginxPlain; return at }),
		},
	)
	r.writeConnections(&b)
	return b.String()
}

// writeConnections compares the gateway with its nearest peer, with few and with many connections.
func (r Result) writeConnections(b *strings.Builder) {
	const cpu = "CPU µs per request"
	heads := []string{
		"connections", petgateRedis + ": req/s", "p50 µs", cpu, nginxLuaRedis + ": req/s", "p50 µs", cpu,
		"CPU, Petgate ÷ " + nginxLuaRedis,
	}
	var lines [][]string
	for _, connections := range r.connections("gateways") {
		ours := r.of("gateways", petgateRedis, connections)
		peer := r.of("gateways", nginxLuaRedis, connections)
		line := []string{strconv.Itoa(connections)}
		for _, runs := range [][]Run{ours, peer} {
			line = append(line,
				fmt.Sprintf("%.0f", over(runs, perSecond).median),
				fmt.Sprintf("%.0f", over(runs, latency(p50)).median),
				fmt.Sprintf("%.1f", over(runs, Run.micros).median))
		}
		lines = append(lines, append(line, ratio(ours, peer, Run.micros).String()))
	}
	b.WriteString("### Saturation, few and many connections\n\n")
	writeTable(b, heads, lines)
}

func (r Result) writeMachine(b *strings.Builder) {
	m := r.Machine
	fmt.Fprintf(
		b,
		"Machine: %s, %s cores, %s, Linux %s, shared by all programs. "+
			"nginx %s, haproxy %s, Redis %s, Go %s. Taken %s at commit %s: "+
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
	of := func(r Result, at row) spread { return ratio(r.runs(at), r.runs(base(at)), figure) }
	return column{"÷ " + name, "", of}
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

// writeRows writes the rows that were measured, and notes below them. Columns that are always 0
// are left out.
func (r Result) writeRows(b *strings.Builder, title string, rows []row, columns []column, notes ...string) {
	if len(rows) == 0 {
		return
	}
	columns = slices.DeleteFunc(slices.Clone(columns), func(c column) bool {
		return !slices.ContainsFunc(rows, func(at row) bool { return c.of(r, at).max > 0 })
	})
	heads := []string{"what ran"}
	hasLoads := rows[0].load != ""
	if hasLoads {
		heads = []string{"load", "what ran"}
	}
	for _, c := range columns {
		heads = append(heads, c.name)
	}
	var lines [][]string
	for _, at := range rows {
		line := []string{at.system}
		if hasLoads {
			line = []string{at.load, at.system}
		}
		for _, c := range columns {
			line = append(line, c.text(c.of(r, at)))
		}
		lines = append(lines, line)
	}
	fmt.Fprintf(b, "### %s\n\n", title)
	writeTable(b, heads, lines)
	for _, note := range notes {
		b.WriteString(note + "\n\n")
	}
}

// writeTable writes a table in Markdown.
func writeTable(b *strings.Builder, heads []string, lines [][]string) {
	rule := slices.Repeat([]string{"---"}, len(heads))
	fmt.Fprintf(b, "| %s |\n|%s|\n", strings.Join(heads, " | "), strings.Join(rule, "|"))
	for _, line := range lines {
		fmt.Fprintf(b, "| %s |\n", strings.Join(line, " | "))
	}
	b.WriteByte('\n')
}

// writeSmall writes a section of a few rows.
func (r Result) writeSmall(b *strings.Builder, section, title, base string) {
	r.writeRows(b, title, r.rowsOf(section, 0), []column{
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

// figure is one line that summarises tables.
type figure struct {
	name     string
	measured spread
	isOnPage bool // docs/performance.md shows it: its other tables do not have it
}

// figures summarise the tables.
func (r Result) figures() []figure {
	row := func(name string) []Run { return r.of("gateways", name, manyConnections) }
	some := func(name string) []Run { return r.of("gateways", name, someConnections) }
	refused := func(name string) []Run { return r.of("refusals", name, 0) }
	pets := func(name string) []Run { return r.of("pets", name, 0) }
	toPeer := func(name string) spread { return ratio(row(petgateRedis), row(name), Run.micros) }
	toAdmitted := func(name string) spread { return ratio(refused(name), refused(admitted), Run.micros) }
	tail := func(at int) spread { return ratio(some(petgateRedis), some(nginxPlain), latency(at)) }
	rates := func(name, base string) spread { return ratio(pets(name), pets(base), perSecond) }
	const onPage = true
	return []figure{
		{"CPU of an admitted request, gateway and Redis, ÷ " + nginxPlain, toPeer(nginxPlain), false},
		{"the same ÷ Petgate with policy off", toPeer(policyIsOff), false},
		{"the same ÷ " + nginxLuaRedis, toPeer(nginxLuaRedis), false},
		{"the same ÷ " + haproxyTables, toPeer(haproxyTables), false},
		{"Redis calls per admitted request", over(row(petgateRedis), redisCalled), onPage},
		{"CPU of a request over its quota ÷ an admitted one", toAdmitted(overQuota), onPage},
		{
			"Redis calls per second, after the first, for one tenant over its quota",
			over(refused(overQuota), furtherCallsPerSecond), onPage,
		},
		{"CPU of a banned key's request ÷ an admitted one", toAdmitted(banned), onPage},
		{"CPU of a request without a key ÷ an admitted one", toAdmitted(keyless), false},
		{fmt.Sprintf("p99 with %d connections ÷ %s", someConnections, nginxPlain), tail(p99), false},
		{"the same for p99.9", tail(p999), false},
		{"lists of 20 a second by petsvc, 8 clients, ÷ pgbench", rates(petsvcFewRow, pgbenchRow), false},
		{"the same with 32 clients", rates(petsvcRow, pgbenchRow), false},
		{"pets by id a second by petsvc, 8 clients, ÷ pgbench", rates(petsvcGetRow, pgbenchGetRow), false},
		{"lists by a gateway, quotas in memory, ÷ by petsvc, 32 clients", rates(chainRow, petsvcRow), false},
		{"the same with quotas in Redis", rates(chainRedisRow, petsvcRow), false},
	}
}

// writeFigures writes the figures that were measured.
func writeFigures(b *strings.Builder, all []figure) {
	var lines [][]string
	for _, f := range all {
		if f.measured != (spread{}) {
			lines = append(lines, []string{f.name, f.measured.String()})
		}
	}
	if len(lines) > 0 {
		writeTable(b, []string{"figure", "median (least–most)"}, lines)
	}
}

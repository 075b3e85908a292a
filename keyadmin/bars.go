package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"petgate/shared/core/apikey"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/operate"
)

// bars is usage over time, drawn with characters: a line for each period, the oldest first.
type bars struct {
	period string // of a line: hour or day
	rows   []barRow
	limit  string // of a period; empty: none
}

// barRow is one period.
type barRow struct {
	from             string // its start
	charged, refused int64
}

// The characters of a bar. Charged and refused differ without colour.
const (
	chargedSign, refusedSign = "█", "░"

	barsWidth    = 100 // if the width is not known
	barsWidthMin = 10  // of the longest bar
)

// lines draws the bars in the given width; 0: a width of 100. style highlights the head and the refused part.
func (b bars) lines(width int, style func(code, text string) string) []string {
	t, highest := table{head: []string{strings.ToUpper(b.period) + " (UTC)", "CHARGED", "REFUSED"}}, int64(1)
	for _, r := range b.rows {
		t.rows = append(t.rows, []string{r.from, count(r.charged), count(r.refused)})
		highest = max(highest, r.charged+r.refused)
	}
	widths, _ := t.sizes()
	long := max(int64(cmp.Or(width, barsWidth)-total(widths)-len(gap)), barsWidthMin)
	// A small number has a sign, too. So a bar can have one more than its share.
	signs := func(n int64) int { return int((n*(long-1) + highest - 1) / highest) }
	line := func(cells []string) string {
		return fmt.Sprintf("%-*s%s%*s%s%*s", widths[0], cells[0], gap, widths[1], cells[1], gap, widths[2], cells[2])
	}
	lines := []string{style(bold, line(t.head))}
	for i, r := range b.rows {
		bar := strings.Repeat(chargedSign, signs(r.charged))
		if r.refused > 0 {
			bar += style(yellow, strings.Repeat(refusedSign, signs(r.refused)))
		}
		lines = append(lines, strings.TrimRight(line(t.rows[i])+gap+bar, " "))
	}
	return append(lines, "", fmt.Sprintf("%s charged  %s refused%s", chargedSign, refusedSign, operate.Either(b.limit == "", "", "  limit: "+b.limit)))
}

// checkPlot refuses flags that say how to print a table.
func (c *usageShow) checkPlot(a *app) error {
	switch {
	case !c.Plot:
	case a.asData():
		return usageErrorf("--plot draws for people: do not combine it with -o %s", a.cli.Output)
	case c.By.Period < time.Hour:
		return usageErrorf("--plot draws hours or days: use --by hour or --by day")
	}
	return nil
}

// plot draws the usage of a tenant, with its limit.
func (a *app) plotUsage(t operate.Owner, in apikey.Environment, rows []keystore.UsageRow, period time.Duration) error {
	if len(rows) == 0 {
		return nil
	}
	return a.writeLines(barsOf(rows, period, t.LimitsIn(in)).lines(a.width(), a.styleOut))
}

// barsOf adds up hours by hour or day. Between the first and the last one, periods without requests have rows too. A request that
// is neither charged nor refused, a report of the quota, is left out.
func barsOf(rows []keystore.UsageRow, period time.Duration, limits plan.Limits) bars {
	b, perHour := bars{period: "day"}, 60*limits.Minute
	if limits.Day != 0 {
		b.limit = count(limits.Day) + " in each day"
	}
	if period == time.Hour {
		b.period = "hour"
		// One hour may use up the day's limit, which is then named instead of the limit of an hour.
		if perHour != 0 && (limits.Day == 0 || perHour <= limits.Day) {
			b.limit = count(perHour) + " in each hour"
		}
	}
	first, last := rows[0].Hour.Truncate(period), rows[0].Hour.Truncate(period)
	sums := map[instant.Millis]barRow{}
	for _, r := range rows {
		at := r.Hour.Truncate(period)
		first, last = min(first, at), max(last, at)
		sum := sums[at]
		switch {
		case r.Charged:
			_, units := r.Taken()
			sum.charged += units
		case r.Outcome != "report":
			sum.refused += r.Requests
		}
		sums[at] = sum
	}
	for at := first; at <= last; at = at.Add(period) {
		row := sums[at]
		row.from = at.String()
		b.rows = append(b.rows, row)
	}
	return b
}

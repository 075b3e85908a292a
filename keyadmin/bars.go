package main

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"petgate/shared/core/apikey"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/plot"
)

// bars is usage over time, drawn with characters: a line for each period, the oldest first.
type bars struct {
	period string // of a line: hour or day
	rows   []barRow
	limit  int64 // the most requests that a period admits; 0: none

	dayLimit int64 // if the bars are hours: the day's limit, if it is below 60 minutes' limit; it is named, not drawn
}

// barRow is one period.
type barRow struct {
	from             string // its start
	charged, refused int64
}

// The characters of a bar. Charged and refused differ without colour.
const (
	chargedSign, refusedSign = "█", "░"
	limitSign, overLimitSign = "│", "┃" // the line of the limit, beside a bar and on it
)

// partSigns are for a character that charged requests fill in part, in eighths.
var partSigns = []string{"▏", "▎", "▍", "▌", "▋", "▊", "▉"}

const (
	barsWidth    = 100 // if the width is not known
	barsWidthMin = 10  // of the longest bar
)

// lines draws the bars in the given width; 0: a width of 100. style highlights the head and the refused part.
func (b bars) lines(width int, style func(code, text string) string) []string {
	if width == 0 {
		width = barsWidth
	}
	head := []string{strings.ToUpper(b.period) + " (UTC)", "CHARGED", "REFUSED"}
	widths := []int{utf8.RuneCountInString(head[0]), len(head[1]), len(head[2])}
	var highest int64
	for _, r := range b.rows {
		widths[0] = max(widths[0], utf8.RuneCountInString(r.from))
		widths[1] = max(widths[1], len(count(r.charged)))
		widths[2] = max(widths[2], len(count(r.refused)))
		highest = max(highest, r.charged+r.refused)
	}
	long := max(width-total(widths)-len(gap), barsWidthMin)
	most, line := max(highest, 1), -1
	if b.limit > 0 && b.limit <= plot.LimitInView*highest {
		most = max(most, b.limit)
		line = min(int(b.limit*int64(long)/most), long-1)
	}
	prefix := func(from, charged, refused string) string {
		return fmt.Sprintf("%-*s%s%*s%s%*s%s", widths[0], from, gap, widths[1], charged, gap, widths[2], refused, gap)
	}
	out := []string{strings.TrimRight(style(bold, strings.TrimRight(prefix(head[0], head[1], head[2]), " ")), " ")}
	for _, r := range b.rows {
		bar := r.draw(long, most, line, style)
		out = append(out, strings.TrimRight(prefix(r.from, count(r.charged), count(r.refused))+bar, " "))
	}
	return append(out, b.legend(line >= 0)...)
}

// draw returns a bar of at most long characters, for at most most requests. line is the place of the limit; -1: it is not shown.
func (r barRow) draw(long int, most int64, line int, style func(code, text string) string) string {
	eighths := r.charged * int64(long) * 8 / most
	cells := make([]string, 0, long)
	for range eighths / 8 {
		cells = append(cells, chargedSign)
	}
	if part := eighths % 8; part > 0 {
		cells = append(cells, partSigns[part-1])
	} else if r.charged > 0 && len(cells) == 0 { // a small number is shown, too
		cells = append(cells, partSigns[0])
	}
	if r.refused > 0 && len(cells) == long { // the last character is for them
		cells = cells[:long-1]
	}
	end := min(max(int((r.charged+r.refused)*int64(long)/most), len(cells)), long)
	if r.refused > 0 && end == len(cells) && end < long {
		end++
	}
	charged := len(cells)
	for len(cells) < end {
		cells = append(cells, refusedSign)
	}
	for len(cells) <= line {
		cells = append(cells, " ")
	}
	if line >= 0 {
		if cells[line] == " " {
			cells[line] = limitSign
		} else {
			cells[line] = overLimitSign
		}
	}
	text := strings.Join(cells[:charged], "")
	if end > charged {
		text += style(yellow, strings.Join(cells[charged:end], ""))
	}
	return text + strings.Join(cells[end:], "")
}

// legend explains the signs.
func (b bars) legend(limitShown bool) []string {
	lines := []string{"", fmt.Sprintf("%s charged  %s refused", chargedSign, refusedSign)}
	switch {
	case limitShown:
		lines[1] += fmt.Sprintf("  %s limit: %s in each %s", limitSign, count(b.limit), b.period)
	case b.limit > 0:
		lines[1] += fmt.Sprintf("  limit: %s in each %s, beyond the edge", count(b.limit), b.period)
	case b.dayLimit > 0:
		lines[1] += "  limit of the day: " + count(b.dayLimit)
	}
	return lines
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
func (a *app) plotUsage(ctx context.Context, t keystore.Tenant, in apikey.Environment, rows []keystore.UsageRow, period time.Duration) error {
	if len(rows) == 0 {
		return nil
	}
	owner, err := a.operator.Owner(ctx, t)
	if err != nil {
		return err
	}
	return a.writeLines(barsOf(rows, period, owner.LimitsIn(in)).lines(a.width(), a.styleOut))
}

// barsOf adds up hours by hour or day. Between the first and the last one, periods without requests have rows too. A request that
// is neither charged nor refused, a report of the quota, is left out.
func barsOf(rows []keystore.UsageRow, period time.Duration, limits plan.Limits) bars {
	b := bars{period: "day", limit: limits.Day}
	if period == time.Hour {
		b = bars{period: "hour", limit: 60 * limits.Minute}
		if limits.Day < b.limit { // one hour may use up the day's limit, which is no limit of an hour
			b.limit, b.dayLimit = 0, limits.Day
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

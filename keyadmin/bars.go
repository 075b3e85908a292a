package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"petgate/shared/core/apikey"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/keystore/usage"
	"petgate/shared/operate"
)

// The characters of a bar. Charged and refused differ without colour.
const (
	chargedSign, refusedSign = "█", "░"

	barsWidth    = 100 // if the width is not known
	barsWidthMin = 10  // of the longest bar
)

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

// plotUsage draws the usage of a tenant, with its limit.
func (a *app) plotUsage(t operate.Owner, in apikey.Environment, rows []usage.Row, period time.Duration) error {
	if len(rows) == 0 {
		return nil
	}
	bars := barsOf(rows, period, cmp.Or(a.width(), barsWidth))
	if err := a.print(nil, bars); err != nil {
		return err
	}
	limit := limitOf(t.LimitsIn(in), period)
	a.note("%s charged  %s refused%s", chargedSign, refusedSign, operate.Either(limit == "", "", "  limit: "+limit))
	return nil
}

// limitOf describes the limit of a period; empty: none.
func limitOf(limits plan.Limits, period time.Duration) string {
	perHour := 60 * limits.Minute
	switch {
	// One hour may use up the day's limit, which is then named instead of the limit of an hour.
	case period == time.Hour && perHour != 0 && (limits.Day == 0 || perHour <= limits.Day):
		return count(perHour) + " in each hour"
	case limits.Day != 0:
		return count(limits.Day) + " in each day"
	}
	return ""
}

// barsOf draws hours added up by hour or day: a row for each period, the oldest first. Between the
// first and the last one, periods without requests have rows too. A request that is neither charged
// nor refused, a report of the quota, is left out.
func barsOf(rows []usage.Row, period time.Duration, width int) table {
	t := table{head: []string{operate.Either(period == time.Hour, "HOUR (UTC)", "DAY (UTC)"), "CHARGED", "REFUSED"}}
	first, last, highest := rows[0].Hour.Truncate(period), rows[0].Hour.Truncate(period), int64(1)
	charged, refused := map[instant.Millis]int64{}, map[instant.Millis]int64{}
	for _, r := range rows {
		at := r.Hour.Truncate(period)
		first, last = min(first, at), max(last, at)
		switch {
		case r.Charged:
			_, units := r.Taken()
			charged[at] += units
		case r.Outcome != "report":
			refused[at] += r.Requests
		}
		highest = max(highest, charged[at]+refused[at])
	}
	for at := first; at <= last; at = at.Add(period) {
		t.rows = append(t.rows,
			[]string{at.String(), fmt.Sprintf("%7s", count(charged[at])), fmt.Sprintf("%7s", count(refused[at]))})
	}
	widths, _ := t.sizes()
	long := max(int64(width-total(widths)-len(gap)), barsWidthMin)
	// A small number has a sign, too. So a bar can have one more than its share.
	signs := func(n int64) int { return int((n*(long-1) + highest - 1) / highest) }
	t.head = append(t.head, "")
	for i, at := 0, first; at <= last; i, at = i+1, at.Add(period) {
		t.rows[i] = append(t.rows[i],
			strings.Repeat(chargedSign, signs(charged[at]))+strings.Repeat(refusedSign, signs(refused[at])))
	}
	return t
}

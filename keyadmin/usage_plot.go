package main

import (
	"context"
	"time"

	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
)

// checkPlot refuses flags that say how to print a table.
func (c *usageShow) checkPlot(a *app) error {
	switch {
	case !c.Plot:
	case a.asData():
		return usageErrorf("--plot draws for people: do not combine it with -o %s", a.cli.Output)
	case c.By.period < time.Hour:
		return usageErrorf("--plot draws hours or days: use --by hour or --by day")
	}
	return nil
}

// plot draws the usage of a tenant, with its limit.
func (a *app) plotUsage(ctx context.Context, t keystore.Tenant, rows []keystore.UsageRow, period time.Duration) error {
	if len(rows) == 0 {
		return nil
	}
	owner, err := a.operator.Owner(ctx, t)
	if err != nil {
		return err
	}
	return a.writeLines(barsOf(rows, period, owner.Limits).lines(a.width(), a.styleOut))
}

// barsOf adds up hours by hour or day. Between the first and the last one, periods without requests have rows too. A request that
// is neither charged nor refused, a report of the quota, is left out.
func barsOf(rows []keystore.UsageRow, period time.Duration, limits plan.Limits) bars {
	b := bars{period: "day", limit: limits.Day}
	if period == time.Hour {
		b = bars{period: "hour", limit: 60 * limits.Minute}
		if limits.Day < b.limit { // one hour may use it up, but it is the limit of no hour
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
			sum.charged += r.Requests
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

package main

import (
	"context"
	"fmt"
	"time"

	"petgate/shared/core/apikey"
	"petgate/shared/core/instant"
	"petgate/shared/keystore/usage"
	"petgate/shared/operate"
)

const day = 24 * time.Hour

type usageCommands struct {
	Show       usageShow                 `cmd:"" help:"Show the requests with a tenant's live keys by day or hour, operation, key and outcome."`
	Top        usageTop                  `cmd:"" help:"List the tenants whose live keys used most, and what share of their limits."`
	Deprecated usageDeprecated           `cmd:"" help:"List who still calls operations that are deprecated."`
	Export     usageExport               `cmd:"" help:"Write or send the usage of live keys in closed hours, for billing."`
	Reset      asked[operate.ResetUsage] `cmd:"" help:"Set a tenant's usage back to zero."`
	Explain    usageExplain              `cmd:"" help:"Would the next request of a key or a tenant pass? If not, why, and until when?"`
}

// between describes a period: `since 2026-11-01T00:00:00Z`.
func between(since, until instant.Millis) string {
	if until == operate.Forever {
		return "since " + since.String()
	}
	return "from " + since.String() + " until " + until.String()
}

type usageShow struct {
	Tenant string `arg:"" help:"ID or name; of a deleted tenant its ID."`
	operate.UsagePeriod
	By   operate.Grouping `default:"day,key,outcome" placeholder:"GROUPS" help:"Group by hour or day (both in UTC), operation, key, outcome, or several of them with commas. By minute, only attempts are shown."`
	Test bool             `help:"Show what test keys have used, instead of live keys. It is on no bill."`
	Plot bool             `help:"Draw charged units and refused requests by hour or day, with the limit."`
}

func (c *usageShow) Run(ctx context.Context, a *app, _ operate.Operator) error {
	if err := c.checkPlot(a); err != nil {
		return err
	}
	t, err := a.operator.AnyTenant(ctx, c.Tenant)
	if err != nil {
		return err
	}
	now, in := a.now(), operate.Either(c.Test, apikey.Test, apikey.Live)
	since, until, err := c.Of(now)
	if err != nil {
		return err
	}
	kept := now.Add(-usage.MinutesKept)
	if c.By.Period == time.Minute && until <= kept {
		return usageErrorf("--until: minutes are kept for 35 days, since %s: use --by hour or --by day", kept)
	}
	if c.By.Period == time.Minute {
		return a.showMinutes(ctx, t, in, since, until, kept)
	}
	views, total, rows, err := a.operator.Usage(ctx, t.ID, in, since, until, c.By)
	if err != nil {
		return err
	}
	if c.Plot {
		err = a.plotUsage(t, in, rows, c.By.Period)
	} else {
		err = a.printUsage(views, c.By)
	}
	if err != nil {
		return err
	}
	late := ""
	if until > now.Add(-usageLate) {
		late = " Counts of the last 3 s may be missing."
	}
	a.note("%s with %s keys of tenant %s %s, %s charged, %s.%s", operate.Plural(total.Requests, "request"), in, t.Name,
		between(since, until), count(total.Charged), operate.Plural(total.Units, "unit"), late)
	return nil
}

// usageLate is how late the counts of a gateway usually are.
const usageLate = 3 * time.Second

// printUsage prints the views with a column for each group.
func (a *app) printUsage(views []operate.UsageView, g operate.Grouping) error {
	t := table{}
	for _, column := range []struct {
		isShown bool
		heads   []string
	}{
		{g.Period == time.Hour, []string{"HOUR (UTC)"}},
		{g.Period == day, []string{"DAY (UTC)"}},
		{g.Operation, []string{"OPERATION"}},
		{g.Key, []string{"KEY", "NAME"}},
		{g.Outcome, []string{"OUTCOME"}},
		{true, []string{"REQUESTS", "CHARGED", "UNITS"}},
	} {
		if column.isShown {
			t.head = append(t.head, column.heads...)
		}
	}
	if g.Key {
		t.spare = []string{"KEY", "NAME"}
	}
	return printViews(a, views, t, func(v operate.UsageView) (row []string) {
		for _, cell := range []*string{v.Start, v.Operation, v.Key, v.KeyName, v.Outcome} {
			if cell != nil {
				row = append(row, operate.OrDash(*cell))
			}
		}
		return append(row, count(v.Requests), count(v.Charged), count(v.Units))
	})
}

// showMinutes prints the attempts of a tenant by minute. It leaves out minutes before kept, which
// may be deleted.
func (a *app) showMinutes(
	ctx context.Context, t operate.Owner, in apikey.Environment, since, until, kept instant.Millis,
) error {
	isCut := since < kept
	since = max(since, kept)
	views, err := a.operator.Minutes(ctx, t.ID, in, since, until)
	if err != nil {
		return err
	}
	shown := table{head: []string{"MINUTE (UTC)", "ATTEMPTS"}}
	var sum int64
	var busiest operate.MinuteView
	for _, v := range views {
		shown.rows = append(shown.rows, []string{v.Start, count(v.Attempts)})
		sum += v.Attempts
		if v.Attempts > busiest.Attempts {
			busiest = v
		}
	}
	if err := a.print(views, shown); err != nil {
		return err
	}
	text := fmt.Sprintf("%s attempts with %s keys of tenant %s %s.", count(sum), in, t.Name, between(since, until))
	if sum > 0 {
		text += fmt.Sprintf(" The busiest minute: %s with %s. Limit per minute: %s.", busiest.Start,
			count(busiest.Attempts), operate.LimitText(t.LimitsIn(in).Minute, t.Override.Minute))
	}
	if isCut {
		text += " Older minutes are not kept: use --by hour or --by day."
	}
	a.note("%s", text)
	return nil
}

type usageTop struct {
	operate.UsagePeriod
	Limit int `aliases:"number" short:"n" default:"20" placeholder:"N" help:"Show the first N tenants."`
}

func (c *usageTop) Run(ctx context.Context, a *app, _ operate.Operator) error {
	if c.Limit < 1 {
		return usageErrorf("--limit: %d is out of range: use 1 or more", c.Limit)
	}
	since, until, err := c.Of(a.now())
	if err != nil {
		return err
	}
	views, err := a.operator.TopUsage(ctx, since, until, c.Limit)
	if err != nil {
		return err
	}
	t := table{
		head: []string{
			"TENANT", "PLAN", "REQUESTS", "CHARGED", "UNITS", "DAY LIMIT", "BUSIEST DAY",
		}, spare: []string{"PLAN", "DAY LIMIT", "REQUESTS", "CHARGED"},
		none: "No requests " + between(since, until) + ".",
	}
	return printViews(a, views, t, func(v operate.TopView) []string {
		limit := v.Owner.Limits.Day
		return []string{
			v.Tenant, v.Plan, count(v.Requests), count(v.Charged), count(v.Units), operate.LimitText(limit, 0),
			share(v.BusiestDay, limit),
		}
	})
}

// share writes a part of a limit in per cent.
func share(n, limit int64) string {
	if limit <= 0 {
		return "-"
	}
	return count(n*100/limit) + " %"
}

type usageDeprecated struct{}

func (usageDeprecated) Run(ctx context.Context, a *app, operator operate.Operator) error {
	views, operations, err := operator.ViewDeprecated(ctx)
	if err != nil {
		return err
	}
	t := table{
		head: []string{
			"OPERATION", "TENANT", "KEY", "NAME", "LAST 7 DAYS", "TREND", "ENDS IN",
		}, spare: []string{"KEY", "NAME"},
		none: fmt.Sprintf("No key has called a deprecated operation since %s. Deprecated: %s.", a.now().Add(-14*day),
			operate.Listed(operations)),
	}
	return printViews(a, views, t, func(v operate.DeprecatedView) []string {
		return []string{
			v.Operation, v.Tenant, v.Key, operate.OrDash(v.KeyName), count(v.Requests), v.Trend(), v.EndsIn(),
		}
	})
}

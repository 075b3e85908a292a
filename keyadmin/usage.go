package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/operate"
)

type usageCommands struct {
	Show       usageShow       `cmd:"" help:"Show the requests of a tenant by day or hour, operation, key and outcome."`
	Top        usageTop        `cmd:"" help:"List the tenants that used most, and what share of their limits."`
	Deprecated usageDeprecated `cmd:"" help:"List who still calls operations that are deprecated."`
	Export     usageExport     `cmd:"" help:"Write or send the usage of closed hours, for billing."`
	Reset      usageReset      `cmd:"" help:"Set a tenant's usage back to zero."`
	Explain    usageExplain    `cmd:"" help:"Would the next request of a key or a tenant pass? If not, why, and until when?"`
}

// usageView is a number of requests as JSON; scripts rely on its fields. It has the fields by which it is grouped.
type usageView struct {
	Start     *string `json:"start,omitempty"`     // of the hour or UTC day
	Operation *string `json:"operation,omitempty"` // empty: refused before the operation was known
	Key       *string `json:"key,omitempty"`       // its ID
	KeyName   *string `json:"keyName,omitempty"`
	Outcome   *string `json:"outcome,omitempty"`
	Requests  int64   `json:"requests"`
	Charged   int64   `json:"charged"` // of the requests: taken from the quota
}

// grouping says by which fields usage is added up.
type grouping struct {
	period                  time.Duration // a minute, an hour or a UTC day; 0: the whole time
	operation, key, outcome bool
}

// groupings are the names of what usage can be grouped by.
var groupings = []string{"minute", "hour", "day", "operation", "key", "outcome"}

func (g *grouping) UnmarshalText(text []byte) error {
	*g = grouping{}
	for name := range strings.SplitSeq(string(text), ",") {
		switch name {
		case "minute":
			if name != string(text) {
				return errors.New("minute stands alone: by minute, only attempts are kept")
			}
			g.period = time.Minute
		case "hour":
			g.period = time.Hour
		case "day":
			g.period = max(g.period, day)
		case "operation":
			g.operation = true
		case "key":
			g.key = true
		case "outcome":
			g.outcome = true
		default:
			return fmt.Errorf("%q is not a group: use %s, or several of them with commas", name, strings.Join(groupings, ", "))
		}
	}
	return nil
}

// usagePeriod are the flags for the time that is looked at.
type usagePeriod struct {
	Since moment `default:"7d" placeholder:"AGE" help:"How far back: 24h, 1w, or from a date: 2026-11-20."`
	Until moment `placeholder:"AGE" help:"Leave out what is later: 24h, 1w, or from a date on: 2026-12-01."`
}

// forever is later than every hour of usage.
const forever = instant.Millis(math.MaxInt64)

// of returns the period. Without --until, until is forever: the clock of a gateway may be ahead.
func (p usagePeriod) of(now instant.Millis) (since, until instant.Millis, err error) {
	since, until = p.Since.before(now), forever
	if p.Until != (moment{}) {
		if until = p.Until.before(now); until <= since {
			return 0, 0, usageErrorf("--until: %s is not later than --since, %s", until, since)
		}
	}
	return since, until, nil
}

// between describes a period: `since 2026-11-01T00:00:00Z`.
func between(since, until instant.Millis) string {
	if until == forever {
		return "since " + since.String()
	}
	return "from " + since.String() + " until " + until.String()
}

type usageShow struct {
	ofTenant
	usagePeriod
	By   grouping `default:"day,key,outcome" placeholder:"GROUPS" help:"Group by hour or day (both in UTC), operation, key, outcome, or several of them with commas. Or by minute: then only attempts are shown."`
	Plot bool     `help:"Draw charged and refused requests by hour or day, with the limit."`
}

func (c *usageShow) Run(ctx context.Context, a *app, t keystore.Tenant) error {
	if err := c.checkPlot(a); err != nil {
		return err
	}
	now := a.now()
	since, until, err := c.of(now)
	if err != nil {
		return err
	}
	kept := now.Add(-keystore.MinutesKept)
	if c.By.period == time.Minute && until <= kept {
		return usageErrorf("--until: minutes are kept for 35 days, since %s: use --by hour or --by day", kept)
	}
	if c.By.period == time.Minute {
		return a.showMinutes(ctx, t, since, until, kept)
	}
	rows, err := a.store.Usage(ctx, t.ID, since)
	if err != nil {
		return err
	}
	rows = slices.DeleteFunc(rows, func(r keystore.UsageRow) bool { return r.Hour >= until })
	names := map[id.Key]string{}
	for k, err := range a.store.Keys(ctx, t.ID) {
		if err != nil {
			return err
		}
		names[k.ID] = k.Name
	}
	views, total := groupUsage(rows, names, c.By)
	if c.Plot {
		err = a.plotUsage(ctx, t, rows, c.By.period)
	} else {
		err = c.By.print(a, views)
	}
	if err != nil {
		return err
	}
	a.note("%s of tenant %s %s, %s charged.", operate.Plural(total.Requests, "request"), t.Name, between(since, until), count(total.Charged))
	return nil
}

// of returns the fields by which a row is grouped, and in which order its group comes.
func (g grouping) of(r keystore.UsageRow, names map[id.Key]string) (v usageView, order [5]string) {
	if g.period != 0 {
		order[0] = r.Hour.Truncate(g.period).String()
		v.Start = &order[0]
	}
	if g.operation {
		v.Operation, order[1] = &r.Operation, r.Operation
	}
	if g.key {
		if !r.Key.IsZero() {
			order[2], order[3] = names[r.Key], r.Key.String()
		}
		v.KeyName, v.Key = &order[2], &order[3]
	}
	if g.outcome {
		v.Outcome, order[4] = &r.Outcome, r.Outcome
	}
	return v, order
}

// groupUsage adds up rows of hours, ordered by time, operation, key and outcome.
func groupUsage(rows []keystore.UsageRow, names map[id.Key]string, by grouping) (views []usageView, total usageView) {
	sums := map[[5]string]*usageView{}
	for _, r := range rows {
		v, order := by.of(r, names)
		if sums[order] == nil {
			sums[order] = &v
		}
		for _, sum := range []*usageView{sums[order], &total} {
			sum.Requests += r.Requests
			if r.Charged {
				sum.Charged += r.Requests
			}
		}
	}
	for _, order := range slices.SortedFunc(maps.Keys(sums), func(a, b [5]string) int { return slices.Compare(a[:], b[:]) }) {
		views = append(views, *sums[order])
	}
	return views, total
}

// print prints the views with a column for each group.
func (g grouping) print(a *app, views []usageView) error {
	t := table{}
	for _, column := range []struct {
		isShown bool
		heads   []string
	}{
		{g.period == time.Hour, []string{"HOUR (UTC)"}},
		{g.period == day, []string{"DAY (UTC)"}},
		{g.operation, []string{"OPERATION"}},
		{g.key, []string{"KEY", "NAME"}},
		{g.outcome, []string{"OUTCOME"}},
		{true, []string{"REQUESTS", "CHARGED"}},
	} {
		if column.isShown {
			t.head = append(t.head, column.heads...)
		}
	}
	if g.key {
		t.spare = []string{"KEY", "NAME"}
	}
	return printViews(a, views, t, func(v usageView) (row []string) {
		for _, cell := range []*string{v.Start, v.Operation, v.Key, v.KeyName, v.Outcome} {
			if cell != nil {
				row = append(row, operate.OrDash(*cell))
			}
		}
		return append(row, count(v.Requests), count(v.Charged))
	})
}

// showMinutes prints the attempts of a tenant by minute. What is older than kept may be deleted already, or soon: it is left out.
func (a *app) showMinutes(ctx context.Context, t keystore.Tenant, since, until, kept instant.Millis) error {
	isCut := since < kept
	since = max(since, kept)
	views, err := a.operator.Minutes(ctx, t.ID, since, until)
	if err != nil {
		return err
	}
	owner, err := a.operator.Owner(ctx, t)
	if err != nil {
		return err
	}
	shown := table{head: []string{"MINUTE (UTC)", "ATTEMPTS"}}
	var sum int64
	var busiest operate.MinuteView
	for _, v := range views {
		shown.rows = append(shown.rows, []string{v.Start, count(v.Attempts)})
		if sum += v.Attempts; v.Attempts > busiest.Attempts {
			busiest = v
		}
	}
	if err := a.print(views, shown); err != nil {
		return err
	}
	text := fmt.Sprintf("%s attempts of tenant %s %s.", count(sum), t.Name, between(since, until))
	if sum > 0 {
		text += fmt.Sprintf(" The busiest minute: %s with %s. Limit per minute: %s.", busiest.Start, count(busiest.Attempts),
			operate.LimitText(owner.Limits.Minute, t.Override.Minute))
	}
	if isCut {
		text += " Older minutes are not kept: use --by hour or --by day."
	}
	a.note("%s", text)
	return nil
}

type usageReset struct {
	ofTenant
	asking
	waiting
}

func (c *usageReset) Run(ctx context.Context, a *app, t keystore.Tenant) error {
	return a.changeTenant(ctx, operation{Operation: a.operator.ResetUsage(t), yes: c.Yes, wait: c.Wait})
}

// usageTopView is a tenant's usage as JSON; scripts rely on its fields.
type usageTopView struct {
	TenantID   string             `json:"tenantId"`
	Tenant     string             `json:"tenant"` // its name
	Plan       string             `json:"plan"`
	Limits     operate.LimitsView `json:"limits"`
	Requests   int64              `json:"requests"`
	Charged    int64              `json:"charged"`
	BusiestDay int64              `json:"busiestDay"` // charged in the busiest UTC day
}

type usageTop struct {
	usagePeriod
	Limit int `aliases:"number" short:"n" default:"20" placeholder:"N" help:"Show the first N tenants."`
}

func (c *usageTop) Run(ctx context.Context, a *app, store *keystore.Store) error {
	if c.Limit < 1 {
		return usageErrorf("--limit: %d is out of range: use 1 or more", c.Limit)
	}
	since, until, err := c.of(a.now())
	if err != nil {
		return err
	}
	rows, err := store.TopUsage(ctx, since, until, c.Limit)
	if err != nil {
		return err
	}
	ids := make([]id.Tenant, len(rows))
	for i, r := range rows {
		ids[i] = r.Tenant
	}
	tenants, err := a.operator.Owners(ctx, ids)
	if err != nil {
		return err
	}
	t := table{
		head: []string{"TENANT", "PLAN", "REQUESTS", "CHARGED", "DAY LIMIT", "BUSIEST DAY"}, spare: []string{"PLAN", "DAY LIMIT", "REQUESTS"},
		none: "No requests " + between(since, until) + ".",
	}
	view := func(r keystore.TenantUsage) usageTopView {
		o := tenants[r.Tenant]
		return usageTopView{
			TenantID: r.Tenant.String(), Tenant: cmp.Or(o.Name, r.Tenant.String()), Plan: o.Plan, Limits: operate.ViewLimits(o.Limits),
			Requests: r.Requests, Charged: r.Charged, BusiestDay: r.BusiestDay,
		}
	}
	return printRows(a, rows, view, t, func(r keystore.TenantUsage, v usageTopView) []string {
		limit := tenants[r.Tenant].Limits.Day
		return []string{v.Tenant, v.Plan, count(v.Requests), count(v.Charged), operate.LimitText(limit, 0), share(v.BusiestDay, limit)}
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
	views, operations, err := operator.ViewDeprecated(ctx, 0, math.MaxInt32)
	if err != nil {
		return err
	}
	t := table{
		head: []string{"OPERATION", "TENANT", "KEY", "NAME", "LAST 7 DAYS", "TREND", "ENDS IN"}, spare: []string{"KEY", "NAME"},
		none: fmt.Sprintf("No key has called a deprecated operation since %s. Deprecated: %s.", a.now().Add(-14*day), listed(operations)),
	}
	return printViews(a, views, t, func(v operate.DeprecatedView) []string {
		return []string{v.Operation, v.Tenant, v.Key, operate.OrDash(v.KeyName), count(v.Requests), v.Trend(), v.EndsIn()}
	})
}

func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

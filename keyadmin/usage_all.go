package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strings"

	"petgate/shared/core/id"
	"petgate/shared/operate"
)

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

func (usageTop) Help() string {
	return `Lists the tenants whose requests were charged most often. BUSIEST DAY is the share of the limit of a day that was used on the
UTC day on which most was charged. --since and --until count whole hours.

Examples:

    # The ten that used most this month
    keyadmin usage top --since 2026-11-01 -n 10

    # Who used most in October
    keyadmin usage top --since 2026-10-01 --until 2026-11-01`
}

func (c *usageTop) Run(ctx context.Context, a *app) error {
	if c.Limit < 1 {
		return usageErrorf("--limit: %d is out of range: use 1 or more", c.Limit)
	}
	since, until, err := c.of(a.now())
	if err != nil {
		return err
	}
	if err := a.open(ctx); err != nil {
		return err
	}
	rows, err := a.store.TopUsage(ctx, since, until, c.Limit)
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
	views := make([]usageTopView, 0, len(rows))
	t := table{
		head: []string{"TENANT", "PLAN", "REQUESTS", "CHARGED", "DAY LIMIT", "BUSIEST DAY"}, spare: []string{"PLAN", "DAY LIMIT", "REQUESTS"},
		none: "No requests " + between(since, until) + ".",
	}
	for _, r := range rows {
		o := tenants[r.Tenant]
		v := usageTopView{
			TenantID: r.Tenant.String(), Tenant: cmp.Or(o.Name, r.Tenant.String()), Plan: o.Plan, Limits: operate.ViewLimits(o.Limits), Requests: r.Requests, Charged: r.Charged,
			BusiestDay: r.BusiestDay,
		}
		views = append(views, v)
		t.rows = append(t.rows, []string{
			v.Tenant, v.Plan, count(v.Requests), count(v.Charged), operate.LimitText(o.Limits.Day, 0), share(v.BusiestDay, o.Limits.Day),
		})
	}
	return a.print(views, t)
}

// share writes a part of a limit in per cent.
func share(n, limit int64) string {
	if limit <= 0 {
		return "-"
	}
	return count(n*100/limit) + " %"
}

type usageDeprecated struct{}

func (usageDeprecated) Help() string {
	return `Lists the keys that called an operation that is deprecated, within the last seven days or the seven days before. A gateway
says which operations are deprecated, and when they end.

Examples:

    # Whom to warn before getPet ends
    keyadmin usage deprecated -o json | jq -r '.[] | select(.operation == "getPet") | .tenant' | sort -u`
}

func (usageDeprecated) Run(ctx context.Context, a *app) error {
	if err := a.open(ctx); err != nil {
		return err
	}
	views, operations, err := a.operator.ViewDeprecated(ctx, 0, math.MaxInt32)
	if err != nil {
		return err
	}
	t := table{
		head: []string{"OPERATION", "TENANT", "KEY", "NAME", "LAST 7 DAYS", "TREND", "ENDS IN"}, spare: []string{"KEY", "NAME"},
		none: fmt.Sprintf("No key has called a deprecated operation since %s. Deprecated: %s.", a.now().Add(-14*day), listed(operations)),
	}
	for _, v := range views {
		t.rows = append(t.rows, []string{v.Operation, v.Tenant, v.Key, operate.OrDash(v.KeyName), count(v.Requests), v.Trend(), v.EndsIn()})
	}
	return a.print(views, t)
}

func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

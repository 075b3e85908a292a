package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strings"

	"petgate/shared/core/id"
	"petgate/shared/keystore"
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

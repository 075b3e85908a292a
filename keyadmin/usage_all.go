package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"petgate/shared/core/id"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
)

// usageTopView is a tenant's usage as JSON; scripts rely on its fields.
type usageTopView struct {
	TenantID   string      `json:"tenantId"`
	Tenant     string      `json:"tenant"` // its name
	Plan       string      `json:"plan"`
	Limits     plan.Limits `json:"limits"`
	Requests   int64       `json:"requests"`
	Charged    int64       `json:"charged"`
	BusiestDay int64       `json:"busiestDay"` // charged in the busiest UTC day
}

type usageTop struct {
	usagePeriod
	Count int `name:"number" short:"n" default:"20" placeholder:"N" help:"How many tenants."`
}

func (usageTop) Help() string {
	return `Lists the tenants whose requests were charged most often. BUSIEST DAY is the share of the limit of a day that was used on the
UTC day on which most was charged.

Examples:

    # The ten that used most this month
    keyadmin usage top --since 2026-11-01 -n 10

    # Who used most in October
    keyadmin usage top --since 2026-10-01 --until 2026-11-01`
}

func (c *usageTop) Run(ctx context.Context, a *app) error {
	if c.Count < 1 {
		return usageErrorf("--number: %d is out of range: use 1 or more", c.Count)
	}
	since, until, err := c.of(a.now())
	if err != nil {
		return err
	}
	if err := a.open(ctx); err != nil {
		return err
	}
	rows, err := a.store.TopUsage(ctx, since, until, c.Count)
	if err != nil {
		return err
	}
	tenants, err := a.tenantsByID(ctx)
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
			TenantID: r.Tenant.String(), Tenant: cmp.Or(o.Name, r.Tenant.String()), Plan: o.Plan, Limits: o.limits, Requests: r.Requests, Charged: r.Charged,
			BusiestDay: r.BusiestDay,
		}
		views = append(views, v)
		t.rows = append(t.rows, []string{
			v.Tenant, v.Plan, count(v.Requests), count(v.Charged), limitText(v.Limits.Day, 0), share(v.BusiestDay, v.Limits.Day),
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

// tenantsByID returns all tenants with their limits.
func (a *app) tenantsByID(ctx context.Context) (map[id.Tenant]owner, error) {
	tenants, err := a.store.Tenants(ctx)
	if err != nil {
		return nil, err
	}
	owners, err := a.owners(ctx, tenants...)
	if err != nil {
		return nil, err
	}
	byID := make(map[id.Tenant]owner, len(owners))
	for _, o := range owners {
		byID[o.ID] = o
	}
	return byID, nil
}

// deprecatedView is a key that calls a deprecated operation, as JSON; scripts rely on its fields.
type deprecatedView struct {
	Operation    string `json:"operation"`
	DeprecatedAt string `json:"deprecatedAt"`
	SunsetAt     string `json:"sunsetAt,omitempty"` // empty: it does not end
	DaysLeft     *int64 `json:"daysLeft,omitempty"` // until then; 0: less than a day, or it has ended
	Successor    string `json:"successor,omitempty"`
	TenantID     string `json:"tenantId"`
	Tenant       string `json:"tenant"` // its name
	Key          string `json:"key"`    // its ID
	KeyName      string `json:"keyName"`
	Requests     int64  `json:"requests"` // in the last seven days
	Before       int64  `json:"before"`   // in the seven days before
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
	operations, err := a.deprecated(ctx)
	if err != nil {
		return err
	}
	now := a.now()
	rows, err := a.store.OperationUsage(ctx, operationIDs(operations), now.Add(-14*day), now.Add(-7*day))
	if err != nil {
		return err
	}
	tenants, err := a.tenantsByID(ctx)
	if err != nil {
		return err
	}
	views := make([]deprecatedView, 0, len(rows))
	t := table{
		head: []string{"OPERATION", "TENANT", "KEY", "NAME", "LAST 7 DAYS", "TREND", "ENDS IN"}, spare: []string{"KEY", "NAME"},
		none: fmt.Sprintf("No key has called a deprecated operation since %s. Deprecated: %s.", now.Add(-14*day), listed(operationIDs(operations))),
	}
	for _, r := range rows {
		k, err := a.store.Key(ctx, r.Key)
		if err != nil && !errors.Is(err, keystore.ErrNotFound) {
			return err
		}
		o := operations[slices.IndexFunc(operations, func(o aboutOperation) bool { return o.ID == r.Operation })]
		v := deprecatedView{
			Operation: r.Operation, DeprecatedAt: o.DeprecatedAt.String(), SunsetAt: o.SunsetAt.String(), Successor: o.Successor,
			TenantID: r.Tenant.String(), Tenant: cmp.Or(tenants[r.Tenant].Name, r.Tenant.String()), Key: r.Key.String(), KeyName: k.Name,
			Requests: r.Recent, Before: r.Before,
		}
		ends := "never"
		if o.SunsetAt != 0 {
			left := max(0, int64(o.SunsetAt.Sub(now)/day))
			v.DaysLeft, ends = &left, plural(int(left), "day")
		}
		views = append(views, v)
		t.rows = append(t.rows, []string{v.Operation, v.Tenant, v.Key, orDash(v.KeyName), count(v.Requests), trend(v.Before, v.Requests), ends})
	}
	return a.print(views, t)
}

// deprecated asks the gateways which operations are deprecated. One answer is enough.
func (a *app) deprecated(ctx context.Context) ([]aboutOperation, error) {
	gateways, err := a.store.Gateways(ctx)
	if err != nil {
		return nil, err
	}
	err = errors.New("no gateway is registered")
	for _, g := range gateways {
		var answer about
		if answer, err = askAbout(ctx, g); err == nil {
			return slices.DeleteFunc(answer.Operations, func(o aboutOperation) bool { return o.DeprecatedAt == 0 && o.SunsetAt == 0 }), nil
		}
	}
	return nil, fmt.Errorf("only a gateway knows which operations are deprecated: %w", err)
}

func operationIDs(operations []aboutOperation) []string {
	ids := make([]string, len(operations))
	for i, o := range operations {
		ids[i] = o.ID
	}
	return ids
}

func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// trend compares two numbers of requests.
func trend(before, now int64) string {
	switch {
	case before == 0:
		return "new"
	case now == 0:
		return "stopped"
	}
	change := (now - before) * 100 / before
	if change > 0 {
		return "+" + count(change) + " %"
	}
	return count(change) + " %"
}

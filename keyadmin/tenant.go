package main

import (
	"context"
	"fmt"
	"slices"

	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/operate"
)

type tenantCommands struct {
	Create   tenantCreate                 `cmd:"" help:"Create a tenant."`
	List     tenantList                   `cmd:"" help:"List all tenants."`
	Show     tenantShow                   `cmd:"" help:"Show one tenant."`
	Rename   change[operate.RenameTenant] `cmd:"" help:"Give a tenant another name."`
	Suspend  asked[operate.SuspendTenant] `cmd:"" help:"Refuse all requests of a tenant until it is resumed."`
	Resume   change[operate.ResumeTenant] `cmd:"" help:"End a suspension."`
	SetPlan  tenantSetPlan                `cmd:"" help:"Put a tenant on another plan."`
	SetQuota asked[setQuota]              `cmd:"" help:"Set limits for one tenant, or remove them."`
	Delete   asked[operate.DeleteTenant]  `cmd:"" help:"Delete a tenant whose keys have ended; its usage and its audit log stay."`
}

func (a *app) noteQuota(v operate.TenantView) {
	if why := v.NoQuota(); why != "" {
		a.warn("%s\nSet its limits: keyadmin tenant set-quota %s --minute N --day N", why, operate.ShellWord(v.Name))
	}
}

type tenantCreate struct {
	operate.CreateTenant
	waiting
}

func (c *tenantCreate) Run(ctx context.Context, a *app, operator operate.Operator) error {
	op, err := c.Prepare(ctx, operator)
	if err != nil {
		return err
	}
	return a.carryOut(ctx, operation{
		Operation: op, wait: c.Wait,
		table: func(r operate.Outcome) table { return table{rows: [][]string{{r.View.(operate.TenantView).ID}}} },
		add: func(r operate.Outcome) string {
			return operate.Either(r.Existed, "", " Its first key: keyadmin key create "+operate.ShellWord(string(c.Name)))
		},
	})
}

type tenantList struct{ limiting }

func (c *tenantList) Run(ctx context.Context, a *app, store *keystore.Store) error {
	tenants := store.Tenants(ctx)
	if n := c.rows(a); n > 0 {
		tenants = first(&c.limiting, n, asList(store.FindTenants(ctx, keystore.TenantFilter{}, "", n+1)))
	}
	t := table{
		head:  []string{"ID", "NAME", "PLAN", "PER MINUTE", "PER DAY", "PER MONTH", "STATUS", "CREATED"},
		spare: []string{"CREATED", "ID", "PER MONTH", "PER DAY"},
		none:  "There are no tenants. The first: `keyadmin tenant create NAME`",
	}
	return printList(a, &c.limiting, a.operator.ViewTenants(ctx, tenants), t, func(v operate.TenantView) []string {
		return slices.Concat([]string{v.ID, v.Name, v.Plan}, v.LimitTexts(), []string{v.Status(), v.CreatedAt})
	})
}

type tenantShow struct{ operate.TenantRef }

func (c *tenantShow) Run(ctx context.Context, a *app, operator operate.Operator) error {
	t, err := operator.Tenant(ctx, c.Tenant)
	if err != nil {
		return err
	}
	owner, err := a.operator.Owner(ctx, t)
	if err != nil {
		return err
	}
	v := owner.View()
	sheet := table{rows: [][]string{{"ID", v.ID}, {"Name", v.Name}, {"Plan", v.Plan}}}
	for i, text := range v.LimitTexts() {
		sheet.rows = append(sheet.rows, []string{"Requests per " + plan.Policies[i], text})
	}
	sheet.rows = append(sheet.rows, []string{"Month begins on", fmt.Sprintf("day %d, UTC", v.MonthStarts)}, []string{"Status", v.Status()}, []string{"Created", v.CreatedAt})
	return a.print(v, sheet)
}

type tenantSetPlan struct {
	operate.MoveTenant
	asking
	waiting
}

func (c *tenantSetPlan) Run(ctx context.Context, a *app, operator operate.Operator) error {
	t, err := operator.Tenant(ctx, c.Tenant)
	if err != nil {
		return err
	}
	to, own := string(c.Plan), c.Limits()
	op, err := operator.MoveTenant(ctx, t, to, own, "add --minute N --day N")
	if err != nil {
		return err
	}
	return a.carryOut(ctx, operation{
		Operation: op, yes: c.Yes, wait: c.Wait,
		add: func(operate.Outcome) string {
			keepsOwn := t.Override != (plan.Limits{}) && own == (plan.Limits{}) && to != t.Plan
			return operate.Either(keepsOwn, "\nTo clear them: keyadmin tenant set-quota "+operate.ShellWord(t.Name)+" --clear", "")
		},
	})
}

// setQuota can also remove all limits.
type setQuota struct {
	operate.SetLimits
	Clear bool `help:"Remove all of them: the plan's limits apply again."`
}

// Check finds out whether there is something to change, and whether the flags contradict each other.
func (c setQuota) Check() error {
	err := c.SetLimits.Check()
	switch {
	case c.Clear && c.Limits().IsSet():
		return operate.ArgumentError("--clear removes all limits: do not combine it with --minute, --day or --month")
	case err != nil && !c.Clear:
		return operate.ArgumentError(err.Error() + ", or --clear to remove the limits")
	}
	return nil
}

// Prepare prepares the limits.
func (c setQuota) Prepare(ctx context.Context, operator operate.Operator) (operate.Operation, error) {
	if c.Clear {
		c.LimitChanges = operate.NoLimits
	}
	return c.SetLimits.Prepare(ctx, operator)
}

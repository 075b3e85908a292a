package main

import (
	"context"
	"fmt"
	"slices"

	"petgate/shared/core/plan"
	"petgate/shared/operate"
)

type tenantCommands struct {
	Create   change[operate.CreateTenant] `cmd:"" help:"Create a tenant."`
	List     tenantList                   `cmd:"" help:"List all tenants."`
	Show     tenantShow                   `cmd:"" help:"Show one tenant."`
	Rename   change[operate.RenameTenant] `cmd:"" help:"Give a tenant another name."`
	Suspend  asked[operate.SuspendTenant] `cmd:"" help:"Refuse all requests of a tenant until it is resumed."`
	Resume   change[operate.ResumeTenant] `cmd:"" help:"End a suspension."`
	SetPlan  asked[operate.MoveTenant]    `cmd:"" help:"Put a tenant on another plan."`
	SetQuota asked[operate.SetLimits]     `cmd:"" help:"Set limits for one tenant, or remove them."`
	Delete   asked[operate.DeleteTenant]  `cmd:"" help:"Delete a tenant whose keys have ended; its usage and its audit log stay."`
}

type tenantList struct{ limiting }

func (c *tenantList) Run(ctx context.Context, a *app, operator operate.Operator) error {
	t := table{
		head:  []string{"ID", "NAME", "PLAN", "PER MINUTE", "PER DAY", "PER MONTH", "STATUS", "CREATED"},
		spare: []string{"CREATED", "ID", "PER MONTH", "PER DAY"},
		none:  "There are no tenants. The first: `keyadmin tenant create NAME`",
	}
	return printList(
		a,
		&c.limiting,
		rowsOf(ctx, operator, operate.FindTenants{}, c.rows(a)),
		t,
		func(v operate.TenantView) []string {
			return slices.Concat([]string{v.ID, v.Name, v.Plan}, v.LimitTexts(), []string{v.Status(), v.CreatedAt})
		},
	)
}

type tenantShow struct{ operate.TenantRef }

func (c *tenantShow) Run(ctx context.Context, a *app, operator operate.Operator) error {
	t, err := operator.Tenant(ctx, c.Tenant)
	if err != nil {
		return err
	}
	v := t.View()
	sheet := table{rows: [][]string{{"ID", v.ID}, {"Name", v.Name}, {"Plan", v.Plan}}}
	for i, text := range v.LimitTexts() {
		sheet.rows = append(sheet.rows, []string{"Requests per " + plan.Policies[i], text})
	}
	sheet.rows = append(sheet.rows, []string{"Month begins on", fmt.Sprintf("day %d, UTC", v.MonthStarts)},
		[]string{"Status", v.Status()}, []string{"Created", v.CreatedAt})
	return a.print(v, sheet)
}

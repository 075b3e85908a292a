package main

import (
	"context"
	"fmt"
	"slices"

	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/operate"
	"petgate/shared/service"
)

type tenantCommands struct {
	Create   tenantCreate   `cmd:"" help:"Create a tenant."`
	List     tenantList     `cmd:"" help:"List all tenants."`
	Show     tenantShow     `cmd:"" help:"Show one tenant."`
	Rename   tenantRename   `cmd:"" help:"Give a tenant another name."`
	Suspend  tenantSuspend  `cmd:"" help:"Refuse all requests of a tenant until it is resumed."`
	Resume   tenantResume   `cmd:"" help:"End a suspension."`
	SetPlan  tenantSetPlan  `cmd:"" help:"Put a tenant on another plan."`
	SetQuota tenantSetQuota `cmd:"" help:"Set limits for one tenant, or remove them."`
	Delete   tenantDelete   `cmd:"" help:"Delete a tenant whose keys have ended; its usage and its audit log stay."`
}

// changeTenant carries out a change of a tenant, and says if the tenant has no quota afterwards.
func (a *app) changeTenant(ctx context.Context, o operation) error {
	o.after = func(r operate.Outcome) {
		if v, ok := r.View.(operate.TenantView); ok {
			a.noteQuota(v)
		}
	}
	return a.carryOut(ctx, o)
}

func (a *app) noteQuota(v operate.TenantView) {
	if why := v.NoQuota(); why != "" {
		a.warn("%s\nSet its limits: keyadmin tenant set-quota %s --minute N --day N", why, operate.ShellWord(v.Name))
	}
}

type tenantCreate struct {
	Name tenantName `arg:"" help:"The tenant's name; must be unique."`
	Plan planName   `default:"free" placeholder:"PLAN" help:"Its plan."`
	ownLimitFlags
	monthStartsFlag
	ifNotExists
	waiting
}

// ownLimitFlags are limits of one tenant.
type ownLimitFlags struct {
	Minute limit `placeholder:"N" help:"Its own limit of requests in any 60 seconds, instead of the plan's."`
	Day    limit `placeholder:"N" help:"Its own limit of requests in a UTC day, instead of the plan's."`
	Month  limit `placeholder:"N" help:"Its own limit of requests in a month, instead of the plan's."`
}

type monthStartsFlag struct {
	MonthStarts operate.MonthStarts `placeholder:"DAY" help:"The day, 1 to 28, of the UTC month on which its month begins (default: 1)."`
}

func (f ownLimitFlags) limits() plan.Limits { return limitFlags(f).limits() }

func (c *tenantCreate) Run(ctx context.Context, a *app, operator operate.Operator) error {
	spec := keystore.TenantSpec{
		Name: string(c.Name), Plan: string(c.Plan), Override: c.limits(), MonthStarts: uint8(c.MonthStarts),
	}
	err := a.changeTenant(ctx, operation{
		Operation: operator.CreateTenant(spec, c.IfNotExists), wait: c.Wait,
		table: func(r operate.Outcome) table { return table{rows: [][]string{{r.View.(operate.TenantView).ID}}} },
		add: func(r operate.Outcome) string {
			return operate.Either(r.Existed, "", " Its first key: keyadmin key create "+operate.ShellWord(spec.Name))
		},
	})
	return a.explainPlan(ctx, spec.Plan, err)
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

type tenantShow struct {
	ofTenant
}

func (c *tenantShow) Run(ctx context.Context, a *app, t keystore.Tenant) error {
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

type tenantRename struct {
	ofTenant
	Name tenantName `arg:"" help:"The new name; must be unique."`
	waiting
}

func (c *tenantRename) Run(ctx context.Context, a *app, t keystore.Tenant) error {
	return a.carryOut(ctx, operation{Operation: a.operator.RenameTenant(t, string(c.Name)), wait: c.Wait})
}

type tenantSuspend struct {
	ofTenant
	asking
	waiting
}

func (c *tenantSuspend) Run(ctx context.Context, a *app, t keystore.Tenant) error {
	return a.changeTenant(ctx, operation{Operation: a.operator.SuspendTenant(t), yes: c.Yes, wait: c.Wait})
}

type tenantDelete tenantSuspend

func (c *tenantDelete) Run(ctx context.Context, a *app, t keystore.Tenant) error {
	return a.carryOut(ctx, operation{Operation: a.operator.DeleteTenant(t), yes: c.Yes, wait: c.Wait})
}

type tenantResume struct {
	ofTenant
	waiting
}

func (c *tenantResume) Run(ctx context.Context, a *app, t keystore.Tenant) error {
	return a.changeTenant(ctx, operation{Operation: a.operator.ResumeTenant(t), wait: c.Wait})
}

type tenantSetPlan struct {
	ofTenant
	Plan planName `arg:"" help:"The plan's name."`
	ownLimitFlags
	asking
	waiting
}

func (c *tenantSetPlan) Run(ctx context.Context, a *app, t keystore.Tenant) error {
	to := string(c.Plan)
	op, err := a.operator.MoveTenant(ctx, t, to, c.limits(), "add --minute N --day N")
	if err != nil {
		return err
	}
	err = a.changeTenant(ctx, operation{
		Operation: op, yes: c.Yes, wait: c.Wait,
		add: func(operate.Outcome) string {
			keepsOwn := t.Override != (plan.Limits{}) && c.limits() == (plan.Limits{}) && to != t.Plan
			return operate.Either(keepsOwn, "\nTo clear them: keyadmin tenant set-quota "+operate.ShellWord(t.Name)+" --clear", "")
		},
	})
	return a.explainPlan(ctx, to, err)
}

type tenantSetQuota struct {
	ofTenant
	limitChangeFlags
	monthStartsFlag
	Clear bool `help:"Remove all of them: the plan's limits apply again."`
	asking
	waiting
}

// BadSettings checks that there is something to change, and that the flags do not contradict each other.
func (c *tenantSetQuota) BadSettings() service.BadSettings {
	var bad service.BadSettings
	given := c.limits().IsSet()
	bad.Require(!c.Clear || !given, "", "--clear removes all limits: do not combine it with --minute, --day or --month")
	bad.Require(c.Clear || given || c.MonthStarts != 0, "", "give --minute, --day, --month or --month-starts, or --clear to remove the limits")
	return bad
}

func (c *tenantSetQuota) Run(ctx context.Context, a *app, t keystore.Tenant) error {
	own := c.limits()
	if c.Clear {
		own = plan.NoLimits
	}
	op, err := a.operator.SetQuota(ctx, t, own, uint8(c.MonthStarts))
	if err != nil {
		return err
	}
	return a.changeTenant(ctx, operation{Operation: op, yes: c.Yes, wait: c.Wait})
}

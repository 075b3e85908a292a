package main

import (
	"context"

	"petgate/shared/operate"
	"petgate/shared/service"
)

type planCommands struct {
	List   planList   `cmd:"" help:"List all plans."`
	Create planCreate `cmd:"" help:"Create a plan."`
	Update planUpdate `cmd:"" help:"Change a plan's limits, for all its tenants."`
}

type planList struct{}

func (planList) Help() string {
	return `A plan without limits is for tenants with limits of their own (tenant set-quota).

Examples:

    keyadmin plan list`
}

func (planList) Run(ctx context.Context, a *app) error {
	if err := a.open(ctx); err != nil {
		return err
	}
	plans, err := a.store.Plans(ctx)
	if err != nil {
		return err
	}
	views := make([]operate.PlanView, 0, len(plans))
	t := table{
		head: []string{"NAME", "PER MINUTE", "PER DAY", "CREATED"}, spare: []string{"CREATED"},
		none: "There are no plans.",
	}
	for _, p := range plans {
		v := operate.ViewPlan(p)
		views = append(views, v)
		t.rows = append(t.rows, []string{v.Name, operate.LimitText(p.Limits.Minute, 0), operate.LimitText(p.Limits.Day, 0), operate.OrDash(v.CreatedAt)})
	}
	return a.print(views, t)
}

type planCreate struct {
	Name planName `arg:"" help:"Lower-case letters, digits and hyphens."`
	limitFlags
	ifNotExists
	waiting
}

func (planCreate) Help() string {
	return `A plan without limits, such as enterprise, is for tenants with limits of their own.

Examples:

    # Between free and pro
    keyadmin plan create team --minute 120 --day 4000`
}

// BadSettings checks that both limits are given or neither.
func (c *planCreate) BadSettings() service.BadSettings {
	var bad service.BadSettings
	bad.Require((c.Minute == 0) == (c.Day == 0), "",
		"give both --minute and --day, or neither for a plan whose tenants have limits of their own")
	return bad
}

func (c *planCreate) Run(ctx context.Context, a *app) error {
	if err := a.open(ctx); err != nil {
		return err
	}
	return a.carryOut(ctx, operation{Operation: a.operator.CreatePlan(string(c.Name), c.limits(), c.IfNotExists), wait: c.Wait})
}

type planUpdate struct {
	Name planName `arg:"" help:"The plan's name."`
	limitFlags
	asking
	waiting
}

func (planUpdate) Help() string {
	return `A limit that is not given stays as it is. The new limits hold from the next request on. Before it lowers a limit of
tenants, keyadmin asks.

Examples:

    # A higher daily limit for all tenants on free
    keyadmin plan update free --day 2000`
}

// BadSettings checks that there is something to change.
func (c *planUpdate) BadSettings() service.BadSettings {
	var bad service.BadSettings
	bad.Require(c.Minute != 0 || c.Day != 0, "", "give --minute, --day or both")
	return bad
}

func (c *planUpdate) Run(ctx context.Context, a *app) error {
	if err := a.open(ctx); err != nil {
		return err
	}
	op, err := a.operator.UpdatePlan(ctx, string(c.Name), c.limits())
	if err != nil {
		return a.explainPlan(ctx, string(c.Name), err)
	}
	return a.carryOut(ctx, operation{Operation: op, yes: c.Yes, wait: c.Wait})
}

package main

import (
	"context"

	"petgate/shared/keystore"
	"petgate/shared/operate"
	"petgate/shared/service"
)

type planCommands struct {
	List   planList   `cmd:"" help:"List all plans."`
	Create planCreate `cmd:"" help:"Create a plan."`
	Update planUpdate `cmd:"" help:"Change a plan's limits, for all its tenants."`
	Delete planDelete `cmd:"" help:"Delete a plan that no tenant has."`
}

type planList struct{}

func (planList) Run(ctx context.Context, a *app, store *keystore.Store) error {
	plans, err := store.Plans(ctx)
	if err != nil {
		return err
	}
	t := table{head: []string{"NAME", "PER MINUTE", "PER DAY", "CREATED"}, spare: []string{"CREATED"}, none: "There are no plans."}
	return printRows(a, plans, operate.ViewPlan, t, func(p keystore.Plan, v operate.PlanView) []string {
		return []string{v.Name, operate.LimitText(p.Limits.Minute, 0), operate.LimitText(p.Limits.Day, 0), operate.OrDash(v.CreatedAt)}
	})
}

type planCreate struct {
	Name planName `arg:"" help:"Lower-case letters, digits and hyphens."`
	limitFlags
	ifNotExists
	waiting
}

// BadSettings checks that both limits are given or neither.
func (c *planCreate) BadSettings() service.BadSettings {
	var bad service.BadSettings
	bad.Require((c.Minute == 0) == (c.Day == 0), "",
		"give both --minute and --day, or neither for a plan whose tenants have limits of their own")
	return bad
}

func (c *planCreate) Run(ctx context.Context, a *app, operator operate.Operator) error {
	return a.carryOut(ctx, operation{Operation: operator.CreatePlan(string(c.Name), c.limits(), c.IfNotExists), wait: c.Wait})
}

type planUpdate struct {
	Name planName `arg:"" complete:"plan" help:"The plan's name."`
	limitFlags
	asking
	waiting
}

// BadSettings checks that there is something to change.
func (c *planUpdate) BadSettings() service.BadSettings {
	var bad service.BadSettings
	bad.Require(c.Minute != 0 || c.Day != 0, "", "give --minute, --day or both")
	return bad
}

func (c *planUpdate) Run(ctx context.Context, a *app, operator operate.Operator) error {
	op, err := operator.UpdatePlan(ctx, string(c.Name), c.limits())
	if err != nil {
		return a.explainPlan(ctx, string(c.Name), err)
	}
	return a.carryOut(ctx, operation{Operation: op, yes: c.Yes, wait: c.Wait})
}

type planDelete struct {
	Name planName `arg:"" complete:"plan" help:"The plan's name."`
	asking
	waiting
}

func (c *planDelete) Run(ctx context.Context, a *app, operator operate.Operator) error {
	name := string(c.Name)
	return a.explainPlan(ctx, name, a.carryOut(ctx, operation{Operation: operator.DeletePlan(name), yes: c.Yes, wait: c.Wait}))
}

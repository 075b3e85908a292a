package main

import (
	"cmp"
	"context"
	"slices"

	"petgate/shared/core/plan"
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
	t := table{
		head:  []string{"NAME", "PER MINUTE", "PER DAY", "PER MONTH", "TEST, PER MINUTE", "CREATED"},
		spare: []string{"CREATED", "TEST, PER MINUTE"}, none: "There are no plans.",
	}
	return printRows(a, plans, operate.ViewPlan, t, func(p keystore.Plan, v operate.PlanView) []string {
		test := operate.LimitText(cmp.Or(p.Test.Minute, p.Limits.Minute), 0)
		return slices.Concat([]string{v.Name}, operate.LimitTexts(p.Limits, plan.Limits{}), []string{test, operate.OrDash(v.CreatedAt)})
	})
}

type planCreate struct {
	Name planName `arg:"" help:"Lower-case letters, digits and hyphens."`
	limitFlags
	TestMinute limit `placeholder:"N" help:"Requests of test keys in any 60 seconds, instead of --minute."`
	ifNotExists
	waiting
}

func (c *planCreate) Run(ctx context.Context, a *app, operator operate.Operator) error {
	made := keystore.Plan{Name: string(c.Name), Limits: c.limits(), Test: plan.Limits{Minute: int64(c.TestMinute)}}
	return a.carryOut(ctx, operation{Operation: operator.CreatePlan(made, c.IfNotExists), wait: c.Wait})
}

type planUpdate struct {
	Name planName `arg:"" complete:"plan" help:"The plan's name."`
	limitChangeFlags
	TestMinute operate.LimitChange `placeholder:"N" help:"Requests of test keys in any 60 seconds; none: as --minute."`
	asking
	waiting
}

// BadSettings checks that there is something to change.
func (c *planUpdate) BadSettings() service.BadSettings {
	var bad service.BadSettings
	bad.Require(c.limits().IsSet() || c.TestMinute != 0, "", "give --minute, --day, --month or --test-minute")
	return bad
}

func (c *planUpdate) Run(ctx context.Context, a *app, operator operate.Operator) error {
	op, err := operator.UpdatePlan(ctx, string(c.Name), c.limits(), plan.Limits{Minute: int64(c.TestMinute)})
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

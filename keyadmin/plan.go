package main

import (
	"cmp"
	"context"
	"slices"

	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/operate"
)

type planCommands struct {
	List   planList                   `cmd:"" help:"List all plans."`
	Create change[operate.CreatePlan] `cmd:"" help:"Create a plan."`
	Update asked[operate.UpdatePlan]  `cmd:"" help:"Change a plan's limits, for all its tenants."`
	Delete asked[operate.DeletePlan]  `cmd:"" help:"Delete a plan that no tenant has."`
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

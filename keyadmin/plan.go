package main

import (
	"context"
	"slices"

	"petgate/shared/operate"
)

type planCommands struct {
	List   planList                   `cmd:"" help:"List all plans."`
	Create change[operate.CreatePlan] `cmd:"" help:"Create a plan."`
	Update asked[operate.UpdatePlan]  `cmd:"" help:"Change a plan's limits, for all its tenants."`
	Delete asked[operate.DeletePlan]  `cmd:"" help:"Delete a plan that no tenant has."`
}

type planList struct{}

func (planList) Run(ctx context.Context, a *app, operator operate.Operator) error {
	plans, err := operator.Store.Plans(ctx)
	if err != nil {
		return err
	}
	t := table{
		head:  []string{"NAME", "PER MINUTE", "PER DAY", "PER MONTH", "TEST, PER MINUTE", "CREATED"},
		spare: []string{"CREATED", "TEST, PER MINUTE"}, none: "There are no plans.",
	}
	return printViews(a, operate.ViewsOf(plans, operate.ViewPlan), t, func(v operate.PlanView) []string {
		return slices.Concat([]string{v.Name}, v.LimitTexts(), []string{operate.OrDash(v.CreatedAt)})
	})
}

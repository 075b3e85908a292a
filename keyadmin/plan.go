package main

import (
	"context"

	"petgate/shared/core/plan"
	"petgate/shared/keystore"
)

type planCommands struct {
	List   planList   `cmd:"" help:"List all plans."`
	Create planCreate `cmd:"" help:"Create a plan."`
	Update planUpdate `cmd:"" help:"Change a plan's limits, for all its tenants."`
}

// planView is a plan as JSON; scripts rely on its fields.
type planView struct {
	Name      string      `json:"name"`
	Limits    plan.Limits `json:"limits"` // 0: not set; its tenants need limits of their own
	CreatedAt string      `json:"createdAt"`
}

func viewPlan(p keystore.Plan) planView {
	return planView{Name: p.Name, Limits: p.Limits, CreatedAt: p.CreatedAt.String()}
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
	views := make([]planView, 0, len(plans))
	t := table{head: []string{"NAME", "MINUTE", "DAY", "CREATED"}}
	for _, p := range plans {
		v := viewPlan(p)
		views = append(views, v)
		t.rows = append(t.rows, []string{v.Name, limitText(v.Limits.Minute, 0), limitText(v.Limits.Day, 0), v.CreatedAt})
	}
	return a.print(views, t)
}

type planCreate struct {
	Name   string `arg:"" help:"Lower-case letters, digits and hyphens."`
	Minute string `placeholder:"N" help:"Requests in any 60 seconds."`
	Day    string `placeholder:"N" help:"Requests in a UTC day."`
	waiting
}

func (planCreate) Help() string {
	return `A plan without limits, such as enterprise, is for tenants with limits of their own.

Examples:

    # Between free and pro
    keyadmin plan create team --minute 120 --day 4000`
}

func (c *planCreate) Run(ctx context.Context, a *app) error {
	p := keystore.Plan{Name: a.in.planName(c.Name), Limits: a.in.limits(c.Minute, c.Day)}
	if (c.Minute == "") != (c.Day == "") {
		a.in.problem("give both --minute and --day, or neither for a plan whose tenants have limits of their own")
	}
	wait := c.wait(a)
	if err := a.open(ctx); err != nil {
		return err
	}
	p, change, err := a.store.CreatePlan(ctx, p)
	if err != nil {
		return err
	}
	return a.planChanged(ctx, p, confirmation{
		change: change, wait: wait, laggard: "may not know this plan yet",
		done: "Created plan " + p.Name + ".",
	})
}

type planUpdate struct {
	Name   string `arg:"" help:"The plan's name."`
	Minute string `placeholder:"N" help:"Requests in any 60 seconds."`
	Day    string `placeholder:"N" help:"Requests in a UTC day."`
	waiting
}

func (planUpdate) Help() string {
	return `A limit that is not given stays as it is. The new limits hold from the next request on.

Examples:

    # A higher daily limit for all tenants on free
    keyadmin plan update free --day 2000`
}

func (c *planUpdate) Run(ctx context.Context, a *app) error {
	name, limits := a.in.planName(c.Name), a.in.limits(c.Minute, c.Day)
	if c.Minute == "" && c.Day == "" {
		a.in.problem("give --minute, --day or both")
	}
	wait := c.wait(a)
	if err := a.open(ctx); err != nil {
		return err
	}
	old, err := a.store.Plan(ctx, name)
	if err != nil {
		return a.explainPlan(ctx, name, err)
	}
	p, change, err := a.store.UpdatePlan(ctx, name, limits)
	if err != nil {
		return err
	}
	return a.planChanged(ctx, p, confirmation{
		change: change, wait: wait, laggard: "may still apply the old limits",
		done: either(p.Limits != old.Limits, "Changed plan "+name+".", "Plan "+name+" already had these limits."),
	})
}

// planChanged prints the changed plan and waits until every gateway has applied the change.
func (a *app) planChanged(ctx context.Context, p keystore.Plan, c confirmation) error {
	if a.asJSON() {
		if err := a.print(viewPlan(p), table{}); err != nil {
			return err
		}
	}
	return a.confirm(ctx, c)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/service"
)

type planCommands struct {
	List   planList   `cmd:"" help:"List all plans."`
	Create planCreate `cmd:"" help:"Create a plan."`
	Update planUpdate `cmd:"" help:"Change a plan's limits, for all its tenants."`
}

// planView is a plan as JSON; scripts rely on its fields.
type planView struct {
	Name      string     `json:"name"`
	Limits    limitsView `json:"limits"`
	CreatedAt string     `json:"createdAt,omitempty"` // not of plans that came with the tables
}

// limitsView are the limits of a plan as JSON. null: not set; its tenants need limits of their own.
type limitsView struct {
	Minute *int64 `json:"minute"`
	Day    *int64 `json:"day"`
}

func viewPlan(p keystore.Plan) planView {
	v := planView{Name: p.Name, CreatedAt: p.CreatedAt.String()}
	if p.Limits.Minute != 0 {
		v.Limits.Minute = &p.Limits.Minute
	}
	if p.Limits.Day != 0 {
		v.Limits.Day = &p.Limits.Day
	}
	return v
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
	t := table{
		head: []string{"NAME", "PER MINUTE", "PER DAY", "CREATED"}, spare: []string{"CREATED"},
		none: "There are no plans.",
	}
	for _, p := range plans {
		v := viewPlan(p)
		views = append(views, v)
		t.rows = append(t.rows, []string{v.Name, limitText(p.Limits.Minute, 0), limitText(p.Limits.Day, 0), orDash(v.CreatedAt)})
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
	return a.carryOut(ctx, operation{
		wait: c.Wait, laggard: "may not know this plan yet",
		change: func() (outcome, error) {
			p, change, err := a.store.CreatePlan(ctx, keystore.Plan{Name: string(c.Name), Limits: c.limits()})
			done := "Created plan " + string(c.Name) + ": " + perMinuteAndDay(c.limits()) + "."
			if !c.limits().IsSet() {
				done = "Created plan " + string(c.Name) + " without limits: each of its tenants needs limits of its own."
			}
			if c.IfNotExists && errors.Is(err, keystore.ErrExists) {
				done = "Plan " + string(c.Name) + " already exists. It was not changed."
				if p, err = a.store.Plan(ctx, string(c.Name)); err == nil {
					change, err = a.store.LastEvent(ctx)
				}
			}
			return outcome{change: change, view: viewPlan(p), done: done}, err
		},
	})
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
	old, err := a.store.Plan(ctx, string(c.Name))
	if err != nil {
		return a.explainPlan(ctx, string(c.Name), err)
	}
	is := plan.Effective(old.Limits, c.limits())
	moved, question := movedLimits(old.Limits, is), ""
	tenants, err := a.store.Tenants(ctx)
	if err != nil {
		return err
	}
	tenants = slices.DeleteFunc(tenants, func(t keystore.Tenant) bool { return t.Plan != old.Name })
	affected := plural(len(tenants), "tenant")
	if lowers(old.Limits, is) && len(tenants) > 0 {
		question = fmt.Sprintf("Lower plan %s for its %s: %s?", old.Name, affected, moved)
	}
	return a.carryOut(ctx, operation{
		question: question, yes: c.Yes,
		wait: c.Wait, laggard: "may still apply the old limits",
		change: func() (outcome, error) {
			p, change, err := a.store.UpdatePlan(ctx, old.Name, c.limits())
			return outcome{change: change, view: viewPlan(p), done: either(p.Limits != old.Limits,
				"Changed plan "+p.Name+" for its "+affected+": "+moved+".", "Plan "+p.Name+" already had these limits.")}, err
		},
	})
}

// lowers reports whether a limit is lower than before. A limit of 0 was not set.
func lowers(was, is plan.Limits) bool { return is.Minute < was.Minute || is.Day < was.Day }

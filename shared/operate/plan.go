package operate

import (
	"context"
	"errors"
	"fmt"

	"petgate/shared/core/plan"
	"petgate/shared/keystore"
)

// PlanView is a plan as JSON; scripts rely on its fields.
type PlanView struct {
	Name      string     `json:"name"`
	Limits    LimitsView `json:"limits"`              // null: its tenants need limits of their own
	CreatedAt string     `json:"createdAt,omitempty"` // not of plans that came with the tables
}

// LimitsView are limits as JSON. null: not set. 0 would look like a limit that admits nothing, or like no limit.
type LimitsView struct {
	Minute *int64 `json:"minute"`
	Day    *int64 `json:"day"`
}

// ViewLimits returns the view of limits.
func ViewLimits(l plan.Limits) (v LimitsView) {
	if l.Minute != 0 {
		v.Minute = &l.Minute
	}
	if l.Day != 0 {
		v.Day = &l.Day
	}
	return v
}

// ViewPlan returns the view of a plan.
func ViewPlan(p keystore.Plan) PlanView {
	return PlanView{Name: p.Name, Limits: ViewLimits(p.Limits), CreatedAt: p.CreatedAt.String()}
}

// CreatePlan prepares a new plan. If ifNotExists and a plan of that name exists, the plan stays as it is.
func (o Operator) CreatePlan(name string, limits plan.Limits, ifNotExists bool) Operation {
	return Operation{
		Laggard: "may not know this plan yet",
		Change: func(ctx context.Context) (Outcome, error) {
			p, change, err := o.Store.CreatePlan(ctx, keystore.Plan{Name: name, Limits: limits})
			done := "Created plan " + name + ": " + PerMinuteAndDay(limits) + "."
			if !limits.IsComplete() {
				done = "Created plan " + name + " without limits: each of its tenants needs limits of its own."
			}
			if ifNotExists && errors.Is(err, keystore.ErrExists) {
				done = "Plan " + name + " already exists. It was not changed."
				if p, err = o.Store.Plan(ctx, name); err == nil {
					change, err = o.Store.LastEvent(ctx)
				}
			}
			return Outcome{Change: change, View: ViewPlan(p), Done: done}, err
		},
	}
}

// UpdatePlan prepares a change of a plan's limits. A limit of 0 is not changed.
func (o Operator) UpdatePlan(ctx context.Context, name string, limits plan.Limits) (Operation, error) {
	old, err := o.Store.Plan(ctx, name)
	if err != nil {
		return Operation{}, err
	}
	is := plan.Effective(old.Limits, limits)
	if err := o.admitsCosts(ctx, is); err != nil {
		return Operation{}, err
	}
	moved := MovedLimits(old.Limits, is)
	tenants, err := o.Store.TenantsByPlan(ctx)
	if err != nil {
		return Operation{}, err
	}
	affected := Plural(tenants[old.Name], "tenant")
	op := Operation{Laggard: "may still apply the old limits"}
	if lowers(old.Limits, is) && tenants[old.Name] > 0 {
		op.Question = fmt.Sprintf("Lower plan %s for its %s: %s?", old.Name, affected, moved)
	}
	op.Change = func(ctx context.Context) (Outcome, error) {
		p, change, err := o.Store.UpdatePlan(ctx, old.Name, limits)
		return Outcome{Change: change, View: ViewPlan(p), Done: Either(p.Limits != old.Limits,
			"Changed plan "+p.Name+" for its "+affected+": "+moved+".", "Plan "+p.Name+" already had these limits.")}, err
	}
	return op, nil
}

// DeletePlan prepares the deletion of a plan that no tenant has.
func (o Operator) DeletePlan(name string) Operation {
	return Operation{
		Question: "Delete plan " + name + "?",
		Laggard:  "may still know this plan, which no tenant has",
		Change: func(ctx context.Context) (Outcome, error) {
			p, change, err := o.Store.DeletePlan(ctx, name)
			return Outcome{Change: change, View: ViewPlan(p), Done: "Deleted plan " + name + "."}, err
		},
	}
}

// lowers reports whether a limit is lower than before. A limit of 0 was not set.
func lowers(was, is plan.Limits) bool { return is.Minute < was.Minute || is.Day < was.Day }

package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/keystore/lists"
)

// PlanView is a plan as JSON; scripts rely on its fields.
type PlanView struct {
	Name      string     `json:"name"`
	Limits    LimitsView `json:"limits"`              // all null: its tenants need limits of their own
	Test      LimitsView `json:"test"`                // of test keys, in place of limits
	CreatedAt string     `json:"createdAt,omitempty"` // not of plans that came with the tables
}

// LimitsView are limits as JSON. null: not set. 0 would look like a limit that admits nothing, or
// like no limit.
type LimitsView struct {
	Minute *int64 `json:"minute"`
	Day    *int64 `json:"day"`
	Month  *int64 `json:"month"`
}

// ViewLimits returns the view of limits.
func ViewLimits(l plan.Limits) LimitsView {
	given := func(limit int64) *int64 {
		if limit == 0 {
			return nil
		}
		return &limit
	}
	return LimitsView{Minute: given(l.Minute), Day: given(l.Day), Month: given(l.Month)}
}

// LimitTexts describes its limits, one text for each policy, and the limit per minute of test keys.
func (v PlanView) LimitTexts() []string {
	l := v.Limits.limits()
	return append(LimitTexts(l, plan.Limits{}), LimitText(cmp.Or(v.Test.limits().Minute, l.Minute), 0))
}

// limits returns what the view is of.
func (v LimitsView) limits() plan.Limits {
	limit := func(given *int64) int64 {
		if given == nil {
			return 0
		}
		return *given
	}
	return plan.Limits{Minute: limit(v.Minute), Day: limit(v.Day), Month: limit(v.Month)}
}

// ViewPlan returns the view of a plan.
func ViewPlan(p keystore.Plan) PlanView {
	return PlanView{
		Name:      p.Name,
		Limits:    ViewLimits(p.Limits),
		Test:      ViewLimits(p.Test),
		CreatedAt: p.CreatedAt.String(),
	}
}

// CreatePlan are the arguments of plan create.
type CreatePlan struct {
	Name PlanName `arg:"" json:"name" required:"" help:"Lower-case letters, digits and hyphens."`
	NewLimits
	TestMinute Limit `json:"testMinute" title:"Test keys, per minute" placeholder:"N" help:"Requests of test keys in any 60 seconds, in place of the limit per minute."`
	Repeatable
}

// Prepare prepares the new plan, or finds one that has its name.
func (a CreatePlan) Prepare(_ context.Context, o Operator) (Operation, error) {
	made := keystore.Plan{Name: string(a.Name), Limits: a.Limits(), Test: plan.Limits{Minute: int64(a.TestMinute)}}
	return Operation{
		Laggard: "may not know this plan yet",
		Change: func(ctx context.Context) (Outcome, error) {
			if err := o.admitsCosts(ctx, made.Limits, made.Test); err != nil {
				return Outcome{}, err
			}
			p, change, err := o.Store.CreatePlan(ctx, made)
			done := "Created plan " + made.Name + ": " + Limits(made.Limits) + "."
			if !made.Limits.IsSet() {
				done = "Created plan " + made.Name + " without limits: each of its tenants needs limits of its own."
			}
			if a.IfNotExists && errors.Is(err, keystore.ErrExists) {
				done = "Plan " + made.Name + " already exists. It was not changed."
				if p, err = o.Store.Plan(ctx, made.Name); err == nil {
					change, err = o.Store.LastEvent(ctx)
				}
			}
			return Outcome{Change: change, View: ViewPlan(p), Done: done}, err
		},
	}, nil
}

// UpdatePlan are the arguments of plan update.
type UpdatePlan struct {
	Plan PlanName `arg:"" name:"name" json:"plan" required:"" help:"The plan's name."`
	LimitChanges
	TestMinute LimitChange `json:"testMinute" title:"Test keys, per minute" placeholder:"N" help:"Requests of test keys in any 60 seconds, in place of the limit per minute."`
}

// Check finds out whether there is something to change.
func (a UpdatePlan) Check() error {
	if !a.Limits().IsSet() && a.TestMinute == 0 {
		return mistaken("give ", Flag("minute"), ", ", Flag("day"), ", ", Flag("month"), " or ", Flag("testMinute"))
	}
	return nil
}

// Prepare prepares the change of the limits, and of those of test keys: see plan.Limits.Changed.
func (a UpdatePlan) Prepare(ctx context.Context, o Operator) (Operation, error) {
	name, limits, test := string(a.Plan), a.Limits(), plan.Limits{Minute: int64(a.TestMinute)}
	was, err := o.Store.Plan(ctx, name)
	if err != nil {
		return Operation{}, notFound(err, "plan", name)
	}
	will := was
	will.Limits, will.Test = was.Limits.Changed(limits), was.Test.Changed(test)
	if err := o.admitsCosts(ctx, will.Limits, will.Test); err != nil {
		return Operation{}, err
	}
	tenants, err := lists.Of(o.Store).TenantsByPlan(ctx)
	if err != nil {
		return Operation{}, err
	}
	moved, affected := MovedPlan(was, will), Plural(tenants[name], "tenant")
	op := Operation{Laggard: "may still apply the old limits"}
	if LowersPlan(was, will) && tenants[name] > 0 {
		op.Question = fmt.Sprintf("Lower plan %s for its %s: %s?", name, affected, moved)
	}
	op.Change = func(ctx context.Context) (Outcome, error) {
		p, change, err := o.Store.UpdatePlan(ctx, name, limits, test)
		return Outcome{Change: change, View: ViewPlan(p), Done: Either(p != was,
			"Changed plan "+name+" for its "+affected+": "+moved+".", "Plan "+name+" already had these limits.")}, err
	}
	return op, nil
}

// DeletePlan is the argument of plan delete.
type DeletePlan struct {
	Plan PlanName `arg:"" name:"name" json:"plan" required:"" help:"The plan's name."`
}

// Prepare prepares the deletion of a plan that no tenant has.
func (a DeletePlan) Prepare(_ context.Context, o Operator) (Operation, error) {
	return Operation{
		Question: "Delete plan " + string(a.Plan) + "?",
		Laggard:  "may still know this plan, which no tenant has",
		Change: func(ctx context.Context) (Outcome, error) {
			p, change, err := o.Store.DeletePlan(ctx, string(a.Plan))
			return Outcome{
				Change: change,
				View:   ViewPlan(p),
				Done:   "Deleted plan " + string(a.Plan) + ".",
			}, notFound(err, "plan", string(a.Plan))
		},
	}, nil
}

// MovedPlan describes a change of a plan's limits: see MovedLimits.
func MovedPlan(was, is keystore.Plan) string {
	parts := []string{MovedLimits(was.Limits, is.Limits)}
	if was.Test != is.Test {
		parts = append(parts, "of test keys: "+MovedLimits(was.Test, is.Test))
	}
	return strings.TrimPrefix(strings.Join(parts, ", "), ", ")
}

// LowersPlan reports whether a change of a plan makes one of its limits smaller, of live keys or of
// test keys.
func LowersPlan(was, is keystore.Plan) bool {
	of := func(p keystore.Plan) Owner { return Plans{p.Name: p}.Owner(keystore.Tenant{Plan: p.Name}) }
	return of(is).IsLess(of(was))
}

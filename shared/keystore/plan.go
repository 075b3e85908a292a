package keystore

import (
	"context"
	"fmt"

	"github.com/jmoiron/sqlx"

	"petgate/shared/core/plan"
	"petgate/shared/database"
)

// Plans lists all plans by name.
func (s *Store) Plans(ctx context.Context) ([]Plan, error) {
	plans := []Plan{}
	err := s.db.SelectContext(ctx, &plans, plansByName)
	return plans, fail("list plans", err)
}

// Plan returns one plan.
func (s *Store) Plan(ctx context.Context, name string) (Plan, error) {
	p, err := findPlan(ctx, s.db, name)
	return p, fail("show plan", err)
}

func findPlan(ctx context.Context, q sqlx.QueryerContext, name string) (p Plan, err error) {
	err = get(ctx, q, &p, fmt.Sprintf("there is no plan %q", name), planByName, name)
	return p, err
}

// CreatePlan adds a plan. If a limit is 0, each tenant of the plan needs an override.
func (s *Store) CreatePlan(ctx context.Context, p Plan) (Plan, Change, error) {
	const op = "create plan"
	if err := checkPlan(p.Name, p.Limits); err != nil {
		return Plan{}, 0, fail(op, err)
	}
	change, err := s.write(ctx, op, func(t *tx) error {
		p.CreatedAt = t.at
		err := t.exec(insertPlan, p.Name, p.Limits.Minute, p.Limits.Day, p.CreatedAt)
		if database.IsUnique(err) {
			return fmt.Errorf("%w: plan %q; update it to change its limits", ErrExists, p.Name)
		}
		if err != nil {
			return err
		}
		return t.record(PlanCreated, subject{plan: p.Name}, nil, p)
	})
	return p, change, err
}

// UpdatePlan changes a plan's limits for all its tenants. A limit of 0 is not changed.
func (s *Store) UpdatePlan(ctx context.Context, name string, limits plan.Limits) (p Plan, c Change, err error) {
	const op = "update plan"
	if err := checkPlan(name, limits); err != nil {
		return Plan{}, 0, fail(op, err)
	}
	c, err = s.write(ctx, op, func(t *tx) error {
		before, err := findPlan(t.ctx, t, name)
		p = before
		if p.Limits = plan.Effective(p.Limits, limits); err != nil || p == before {
			return err
		}
		if err := t.exec(updatePlan, name, p.Limits.Minute, p.Limits.Day); err != nil {
			return err
		}
		return t.record(PlanUpdated, subject{plan: name}, before, p)
	})
	return p, c, err
}

func checkPlan(name string, limits plan.Limits) error {
	if err := plan.CheckName(name); err != nil {
		return asInvalid(err)
	}
	return checkLimits(limits)
}

func checkLimits(limits plan.Limits) error { return asInvalid(limits.Check()) }

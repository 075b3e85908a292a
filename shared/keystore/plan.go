package keystore

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jmoiron/sqlx"

	"petgate/shared/core/plan"
)

// Plans lists all plans by name.
func (s *Store) Plans(ctx context.Context) ([]Plan, error) {
	return list[Plan](ctx, s, "list plans", plansByName)
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
		if _, err := findPlan(ctx, t, p.Name); !errors.Is(err, ErrNotFound) {
			return cmp.Or(err, fmt.Errorf("%w: plan %q; update it to change its limits", ErrExists, p.Name))
		}
		p.CreatedAt = t.at
		return t.apply(Edits{Plans: []Edit[Plan]{{After: p}}}, nil)
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
		return t.apply(Edits{Plans: []Edit[Plan]{{Before: &before, After: p}}}, nil)
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

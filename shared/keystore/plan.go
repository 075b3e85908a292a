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

// CreatePlan adds a plan. Without limits, each tenant of the plan needs an override.
func (s *Store) CreatePlan(ctx context.Context, p Plan) (Plan, Change, error) {
	const op = "create plan"
	change, err := s.change(ctx, op, func(t *tx) error {
		p.CreatedAt = t.at
		return t.plan(Edit[Plan]{After: p})
	})
	if database.IsUnique(err) {
		err = fail(op, fmt.Errorf("%w: plan %q; update it to change its limits", ErrExists, p.Name))
	}
	return p, change, err
}

// UpdatePlan changes a plan's limits for all its tenants, and those of test keys: see
// plan.Limits.Changed.
func (s *Store) UpdatePlan(ctx context.Context, name string, limits, test plan.Limits) (Plan, Change, error) {
	read := func(q sqlx.QueryerContext) (Plan, error) { return findPlan(ctx, q, name) }
	return edit(ctx, s, "update plan", read, func(p *Plan, _ *tx) error {
		p.Limits, p.Test = p.Limits.Changed(limits), p.Test.Changed(test)
		return nil
	}, (*tx).plan)
}

// DeletePlan deletes a plan that no tenant has: otherwise ErrConflict.
func (s *Store) DeletePlan(ctx context.Context, name string) (p Plan, c Change, err error) {
	c, err = s.write(ctx, "delete plan", func(t *tx) error {
		if p, err = findPlan(ctx, t, name); err != nil {
			return err
		}
		t.event(PlanDeleted, subject{plan: name}, p, nil)
		err := t.exec(deletePlan, name)
		if database.IsForeignKey(err) {
			err = conflict("tenants have the plan %q: move them to another plan first", name)
		}
		return err
	})
	return p, c, err
}

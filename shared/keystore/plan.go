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
	return List[Plan](ctx, s, "list plans", plansByName)
}

// Plan returns one plan.
func (s *Store) Plan(ctx context.Context, name string) (Plan, error) {
	p, err := findPlan(ctx, s.db, name)
	return p, Fail("show plan", err)
}

func findPlan(ctx context.Context, q sqlx.QueryerContext, name string) (p Plan, err error) {
	err = Get(ctx, q, &p, fmt.Sprintf("there is no plan %q", name), planByName, name)
	return p, err
}

// CreatePlan adds a plan. Without limits, each tenant of the plan needs an override.
func (s *Store) CreatePlan(ctx context.Context, p Plan) (Plan, Change, error) {
	const op = "create plan"
	change, err := s.change(ctx, op, sharedPostgres, func(t *Tx) error {
		p.CreatedAt = t.At
		return t.EditPlan(Edit[Plan]{After: p})
	})
	if database.IsUnique(err) {
		err = Fail(op, fmt.Errorf("%w: plan %q; update it to change its limits", ErrExists, p.Name))
	}
	return p, change, err
}

// UpdatePlan changes a plan's limits for all its tenants, and those of test keys: see
// plan.Limits.Changed.
func (s *Store) UpdatePlan(
	ctx context.Context, name string, limits, test plan.Limits,
) (is Plan, c Change, err error) {
	c, err = s.change(ctx, "update plan", sharedPostgres, func(t *Tx) error {
		was, err := findPlan(ctx, hold{t}, name)
		if err != nil {
			return err
		}
		is = was
		is.Limits = was.Limits.Changed(limits)
		is.Test = was.Test.Changed(test)
		return t.EditPlan(Edit[Plan]{&was, is})
	})
	return is, c, err
}

// DeletePlan deletes a plan that no tenant has: otherwise ErrConflict.
func (s *Store) DeletePlan(ctx context.Context, name string) (p Plan, c Change, err error) {
	c, err = s.Write(ctx, "delete plan", func(t *Tx) error {
		p, err = findPlan(ctx, t, name)
		if err != nil {
			return err
		}
		t.Event(PlanDeleted, Subject{Plan: name}, p, nil)
		err = t.Exec(deletePlan, name)
		if database.IsForeignKey(err) {
			err = Conflict("tenants have the plan %q: move them to another plan first", name)
		}
		return err
	})
	return p, c, err
}

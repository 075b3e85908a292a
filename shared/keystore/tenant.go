package keystore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jmoiron/sqlx"

	"petgate/shared/core/id"
	"petgate/shared/core/plan"
)

// Tenant returns the tenant of that ID or name. No name looks like an ID.
func (s *Store) Tenant(ctx context.Context, idOrName string) (Tenant, error) {
	query := tenantByName
	if strings.HasPrefix(idOrName, id.TenantPrefix) {
		query = tenantByID
	}
	t, err := findTenant(ctx, s.db, query, idOrName)
	return t, fail("show tenant", err)
}

func findTenant(ctx context.Context, q sqlx.QueryerContext, query, idOrName string) (t Tenant, err error) {
	err = get(ctx, q, &t, fmt.Sprintf("there is no tenant %q", idOrName), query, idOrName)
	return t, err
}

// CreateTenant adds a tenant. Its name must be free.
func (s *Store) CreateTenant(ctx context.Context, spec TenantSpec) (Tenant, Change, error) {
	const op = "create tenant"
	made := Tenant{Name: spec.Name, Plan: spec.Plan, Override: spec.Override}
	err := asInvalid(CheckTenantName(spec.Name))
	if err == nil {
		err = checkLimits(spec.Override)
	}
	if err == nil {
		made.ID, err = id.NewTenant(s.random)
	}
	if err != nil {
		return Tenant{}, 0, fail(op, err)
	}
	change, err := s.write(ctx, op, func(t *tx) error {
		if _, err := findPlan(t.ctx, t, spec.Plan); err != nil {
			return err
		}
		if _, err := findTenant(t.ctx, t, tenantByName, spec.Name); !errors.Is(err, ErrNotFound) {
			return cmp.Or(err, fmt.Errorf("%w: a tenant named %q; choose another name", ErrExists, spec.Name))
		}
		made.CreatedAt = t.at
		return t.apply(Edits{Tenants: []Edit[Tenant]{{After: made}}}, nil)
	})
	if err != nil {
		return Tenant{}, 0, err
	}
	return made, change, nil
}

// SetPlan moves a tenant to another plan; its overrides and its usage stay.
func (s *Store) SetPlan(ctx context.Context, tenant id.Tenant, to string) (Tenant, Change, error) {
	return s.SetTerms(ctx, tenant, to, plan.Limits{})
}

// SetTerms moves a tenant to another plan and gives it limits of its own, in one change. A limit of 0 is not changed.
func (s *Store) SetTerms(ctx context.Context, tenant id.Tenant, to string, override plan.Limits) (Tenant, Change, error) {
	return s.changeTenant(ctx, "set plan", tenant, TenantPlanSet, func(row *Tenant) error {
		row.Plan, row.Override = to, plan.Effective(row.Override, override)
		return checkLimits(override)
	})
}

// SetQuota gives a tenant limits of its own. A limit of 0 is not changed.
func (s *Store) SetQuota(ctx context.Context, tenant id.Tenant, override plan.Limits) (Tenant, Change, error) {
	return s.changeTenant(ctx, "set quota", tenant, TenantQuotaSet, func(row *Tenant) error {
		row.Override = plan.Effective(row.Override, override)
		return checkLimits(override)
	})
}

// ClearQuota removes a tenant's own limits, so that its plan's limits apply again.
func (s *Store) ClearQuota(ctx context.Context, tenant id.Tenant) (Tenant, Change, error) {
	return s.changeTenant(ctx, "clear quota", tenant, TenantQuotaSet, func(row *Tenant) error {
		row.Override = plan.Limits{}
		return nil
	})
}

// Suspend makes gateways refuse all of a tenant's keys until Resume.
func (s *Store) Suspend(ctx context.Context, tenant id.Tenant) (Tenant, Change, error) {
	return s.changeTenant(ctx, "suspend tenant", tenant, TenantSuspended, func(row *Tenant) error {
		row.Suspended = true
		return nil
	})
}

// Resume ends a suspension. If an earlier one was lost and repeated since, it leaves the list of lost refusals.
func (s *Store) Resume(ctx context.Context, tenant id.Tenant) (after Tenant, c Change, err error) {
	c, err = s.write(ctx, "resume tenant", func(t *tx) error {
		before, err := findTenant(t.ctx, t, tenantByID, tenant.String())
		if after = before; err != nil || !after.Suspended {
			return err
		}
		after.Suspended = false
		return t.apply(Edits{Tenants: []Edit[Tenant]{{Before: &before, After: after}}}, nil)
	})
	return after, c, err
}

func (s *Store) changeTenant(ctx context.Context, op string, tenant id.Tenant, kind string, edit func(*Tenant) error,
) (after Tenant, c Change, err error) {
	err = s.retry(op, func() (changed bool, err error) {
		before, err := findTenant(ctx, s.db, tenantByID, tenant.String())
		if err != nil {
			return false, err
		}
		after = before
		if err := edit(&after); err != nil {
			return false, err
		}
		if after == before {
			return s.unchanged(ctx, &c)
		}
		c, changed, err = s.change(ctx, s.now(), event{kind, subject{tenant: tenant}, before, after}, updateTenant,
			tenant, after.Plan, after.Override.Minute, after.Override.Day, after.Suspended,
			before.Plan, before.Override.Minute, before.Override.Day, before.Suspended)
		return changed, missing(err, fmt.Sprintf("there is no plan %q", after.Plan))
	})
	return after, c, err
}

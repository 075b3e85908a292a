package keystore

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/jmoiron/sqlx"

	"petgate/shared/core/id"
	"petgate/shared/core/plan"
	"petgate/shared/database"
)

// Tenant returns the tenant of that ID or name. No name looks like an ID.
func (s *Store) Tenant(ctx context.Context, idOrName string) (Tenant, error) {
	query := tenantByName
	if strings.HasPrefix(idOrName, id.TenantPrefix) {
		query = tenantByID
	}
	t, err := findTenant(ctx, s.db, query, idOrName)
	return t, Fail("show tenant", err)
}

func findTenant(ctx context.Context, q sqlx.QueryerContext, query, idOrName string) (t Tenant, err error) {
	err = Get(ctx, q, &t, fmt.Sprintf("there is no tenant %q", idOrName), query, idOrName)
	return t, err
}

// CreateTenant adds a tenant. Its name must be free.
func (s *Store) CreateTenant(ctx context.Context, spec TenantSpec) (Tenant, Change, error) {
	const op = "create tenant"
	made := Tenant{Name: spec.Name, Plan: spec.Plan, Override: spec.Override, MonthStarts: spec.MonthStarts}
	change, err := s.change(ctx, op, sharedPostgres, func(t *Tx) (err error) {
		made.CreatedAt = t.At
		made.ID, err = id.NewTenant(s.random)
		if err != nil {
			return err
		}
		return t.EditTenant(Edit[Tenant]{After: made})
	})
	if err := nameTaken(op, spec.Name, err); err != nil {
		return Tenant{}, 0, err
	}
	return made, change, nil
}

// SetTerms moves a tenant to another plan and gives it limits of its own, in one change: see
// plan.Limits.Changed. Its usage stays.
func (s *Store) SetTerms(
	ctx context.Context, tenant id.Tenant, to string, override plan.Limits,
) (Tenant, Change, error) {
	return s.changeTenant(ctx, "set plan", tenant, func(t *Tenant) {
		t.Plan = to
		t.Override = t.Override.Changed(override)
	})
}

// SetQuota gives a tenant limits of its own, and sets the day on which its month begins; 0: it is
// not changed. See plan.Limits.Changed.
func (s *Store) SetQuota(
	ctx context.Context, tenant id.Tenant, override plan.Limits, monthStarts uint8,
) (Tenant, Change, error) {
	return s.changeTenant(ctx, "set quota", tenant, func(t *Tenant) {
		t.Override = t.Override.Changed(override)
		t.MonthStarts = cmp.Or(monthStarts, t.MonthStarts)
	})
}

// Suspend makes gateways refuse all of a tenant's keys until Resume.
func (s *Store) Suspend(ctx context.Context, tenant id.Tenant) (Tenant, Change, error) {
	return s.changeTenant(ctx, "suspend tenant", tenant, func(t *Tenant) { t.Suspended = true })
}

// Resume ends a suspension. If an earlier one was lost and repeated since, it leaves the list of
// lost refusals.
func (s *Store) Resume(ctx context.Context, tenant id.Tenant) (Tenant, Change, error) {
	return s.changeTenant(ctx, "resume tenant", tenant, func(t *Tenant) { t.Suspended = false })
}

// RenameTenant gives a tenant another name, which must be free.
func (s *Store) RenameTenant(ctx context.Context, tenant id.Tenant, name string) (Tenant, Change, error) {
	t, change, err := s.changeTenant(ctx, "rename tenant", tenant, func(t *Tenant) { t.Name = name })
	return t, change, nameTaken("rename tenant", name, err)
}

func nameTaken(op, name string, err error) error {
	if database.IsUnique(err) {
		return Fail(op, fmt.Errorf("%w: a tenant named %q; choose another name", ErrExists, name))
	}
	return err
}

// DeleteTenant deletes a tenant with its keys, which must have ended: ErrConflict if one has not.
// Its events and its usage stay.
func (s *Store) DeleteTenant(ctx context.Context, tenant id.Tenant) (t Tenant, c Change, err error) {
	c, err = s.Write(ctx, "delete tenant", func(x *Tx) error {
		// Adding usage updates rows of keys in another order: the two could deadlock.
		if err := x.LockUsage(); err != nil {
			return err
		}
		t, err = findTenant(ctx, x, tenantByID, tenant.String())
		if err != nil {
			return err
		}
		var live int
		if err := x.GetContext(ctx, &live, countLiveKeys, tenant, x.At); err != nil {
			return err
		}
		if live > 0 {
			return Conflict("tenant %s has keys that have not ended: %d. Revoke them first", t.Name, live)
		}
		for _, query := range []string{deleteBansOfTenant, deleteKeysOfTenant, deleteLostOfTenant, deleteTenant} {
			if err := x.Exec(query, tenant); err != nil {
				return err
			}
		}
		x.Event(TenantDeleted, Subject{Tenant: tenant}, t, nil)
		return nil
	})
	return t, c, err
}

// ResetUsage gives the tenant fresh limits: its use counts from now on.
func (s *Store) ResetUsage(ctx context.Context, tenant id.Tenant) (Change, error) {
	return s.change(ctx, "reset usage", sharedPostgres, func(t *Tx) error {
		if _, err := findTenant(t.ctx, hold{t}, tenantByID, tenant.String()); err != nil {
			return err
		}
		t.Event(QuotaReset, Subject{Tenant: tenant}, nil, nil)
		t.add(resetUsage, map[string]any{"id": tenant, "at": t.At})
		return nil
	})
}

// changeTenant changes one tenant.
func (s *Store) changeTenant(
	ctx context.Context, op string, tenant id.Tenant, f func(*Tenant),
) (is Tenant, c Change, err error) {
	c, err = s.change(ctx, op, sharedPostgres, func(t *Tx) error {
		was, err := findTenant(ctx, hold{t}, tenantByID, tenant.String())
		if err != nil {
			return err
		}
		is = was
		f(&is)
		return t.EditTenant(Edit[Tenant]{&was, is})
	})
	return is, c, err
}

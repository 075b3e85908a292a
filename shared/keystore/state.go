package keystore

import (
	"context"
	"slices"

	"github.com/jmoiron/sqlx"

	"petgate/shared/core/id"
)

// State is what operators decide: all plans and tenants by name, and the keys of each tenant by
// age.
type State struct {
	Plans   []Plan
	Tenants []Tenant
	Keys    []Key
}

// State reads everything as it is at one instant.
func (s *Store) State(ctx context.Context) (state State, err error) {
	err = s.Snapshot(ctx, func(q sqlx.QueryerContext) error {
		state, err = readState(ctx, q)
		return err
	})
	return state, Fail("read the state", err)
}

func readState(ctx context.Context, q sqlx.QueryerContext) (state State, err error) {
	err = passState(ctx, q, StateRows{
		Plans:  func(plans []Plan) error { state.Plans = plans; return nil },
		Tenant: func(t Tenant) error { state.Tenants = append(state.Tenants, t); return nil },
		Key:    func(k Key) error { state.Keys = append(state.Keys, k); return nil },
	})
	return state, err
}

// StateRows receives a state: all plans, then each tenant, ordered by the bytes of its name, and
// then its keys, the oldest first.
type StateRows struct {
	Plans  func([]Plan) error
	Tenant func(Tenant) error
	Key    func(Key) error
}

// PassState passes everything as it is at one instant, without keeping it.
func (s *Store) PassState(ctx context.Context, to StateRows) error {
	err := s.Snapshot(ctx, func(q sqlx.QueryerContext) error { return passState(ctx, q, to) })
	return Fail("read the state", err)
}

// tenantsPassed is how many tenants are read at once.
const tenantsPassed = 1000

func passState(ctx context.Context, q sqlx.QueryerContext, to StateRows) error {
	plans := []Plan{}
	if err := sqlx.SelectContext(ctx, q, &plans, plansByName); err != nil {
		return err
	}
	if err := to.Plans(plans); err != nil {
		return err
	}
	for after := ""; ; {
		var tenants []Tenant
		if err := sqlx.SelectContext(ctx, q, &tenants, tenantsFrom, after, tenantsPassed); err != nil ||
			len(tenants) == 0 {
			return err
		}
		first := tenants[0].Name
		after = tenants[len(tenants)-1].Name
		rest := tenants     // those that are not passed yet
		var owner id.Tenant // the last one that was passed
		next := func() error {
			t := rest[0]
			rest = rest[1:]
			owner = t.ID
			return to.Tenant(t)
		}
		err := Each(ctx, q, func(k Key) error {
			for owner != k.Tenant {
				if err := next(); err != nil {
					return err
				}
			}
			return to.Key(k)
		}, keysOfTenants, first, after)
		for err == nil && len(rest) > 0 {
			err = next()
		}
		if err != nil {
			return err
		}
	}
}

// Edits are changes that Apply makes together. Apply cannot create keys.
type Edits struct {
	Plans   []Edit[Plan]
	Tenants []Edit[Tenant]
	Keys    []Edit[Key]
}

// Len returns the number of changes.
func (e Edits) Len() int { return len(e.Plans) + len(e.Tenants) + len(e.Keys) }

// applyRows limits the rows of one statement.
const applyRows = 1000

// Apply makes all changes that edits returns, in one transaction: all of them or none. edits sees
// the state under the writers' lock, so no other writer can change it before the commit. A new
// tenant gets its ID here, and new records their time of creation.
//
// Errors: ErrInvalid, ErrConflict, ErrNotFound for a tenant's unknown plan, and those of edits.
func (s *Store) Apply(ctx context.Context, edits func(State) (Edits, error)) (Change, error) {
	return s.Write(ctx, "apply", func(t *Tx) error {
		// Adding usage updates rows of keys in another order: the two could deadlock.
		if err := t.LockUsage(); err != nil {
			return err
		}
		state, err := readState(ctx, t)
		if err != nil {
			return err
		}
		e, err := edits(state)
		if err != nil {
			return err
		}
		err = applyMany(t, e.Plans, (*Tx).EditPlan) // tenants refer to plans
		if err == nil {
			err = applyMany(t, e.Tenants, (*Tx).EditTenant)
		}
		if err == nil {
			err = applyMany(t, e.Keys, (*Tx).EditKey)
		}
		return err
	})
}

// applyMany makes changes, many with one statement.
func applyMany[T any](t *Tx, edits []Edit[T], add func(*Tx, Edit[T]) error) error {
	for some := range slices.Chunk(edits, applyRows) {
		for _, e := range some {
			if err := add(t, e); err != nil {
				return err
			}
		}
		if err := t.Put(0); err != nil {
			return err
		}
	}
	return nil
}

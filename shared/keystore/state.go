package keystore

import (
	"context"
	"encoding/json"

	"github.com/jmoiron/sqlx"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/database"
)

// State is what operators decide: all plans and tenants by name, and the keys of each tenant by age.
type State struct {
	Plans   []Plan
	Tenants []Tenant
	Keys    []Key
}

// State reads everything as it is at one instant.
func (s *Store) State(ctx context.Context) (state State, err error) {
	err = s.snapshot(ctx, func(q sqlx.QueryerContext) error {
		state, err = readState(ctx, q)
		return err
	})
	return state, fail("read the state", err)
}

func readState(ctx context.Context, q sqlx.QueryerContext) (state State, err error) {
	err = passState(ctx, q, StateRows{
		Plans:  func(plans []Plan) error { state.Plans = plans; return nil },
		Tenant: func(t Tenant) error { state.Tenants = append(state.Tenants, t); return nil },
		Key:    func(k Key) error { state.Keys = append(state.Keys, k); return nil },
	})
	return state, err
}

// StateRows receives a state: all plans, then each tenant, ordered by the bytes of its name, and then its keys, the oldest first.
type StateRows struct {
	Plans  func([]Plan) error
	Tenant func(Tenant) error
	Key    func(Key) error
}

// PassState passes everything as it is at one instant, without keeping it.
func (s *Store) PassState(ctx context.Context, to StateRows) error {
	return fail("read the state", s.snapshot(ctx, func(q sqlx.QueryerContext) error { return passState(ctx, q, to) }))
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
		if err := sqlx.SelectContext(ctx, q, &tenants, tenantsFound, after, "%", tenantsPassed); err != nil || len(tenants) == 0 {
			return err
		}
		first, rest, owner := tenants[0].Name, tenants, id.Tenant{}
		after = tenants[len(tenants)-1].Name
		next := func() error {
			t := rest[0]
			rest, owner = rest[1:], t.ID
			return to.Tenant(t)
		}
		err := each(ctx, q, func(row *sqlx.Rows) error {
			var k Key
			err := row.StructScan(&k)
			for err == nil && owner != k.Tenant {
				err = next()
			}
			if err != nil {
				return err
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

// Edits are changes that Apply makes together.
type Edits struct {
	Plans   []Edit[Plan]
	Tenants []Edit[Tenant]
	Keys    []Edit[Key]
}

// Len returns the number of changes.
func (e Edits) Len() int { return len(e.Plans) + len(e.Tenants) + len(e.Keys) }

// Edit is one changed record. Without Before it is created; keys cannot be created like this. Apply gives a new tenant its ID, and
// new records their time of creation.
type Edit[T any] struct {
	Before *T
	After  T
}

// applyRows limits the rows of one statement.
const applyRows = 1000

// Apply makes all changes that edits returns, in one transaction: all of them or none. edits sees the state under the writers' lock,
// so no other writer can change it before the commit. progress, which may be nil, is called with the number of changes made so far.
//
// Errors: ErrInvalid, ErrExists, ErrNotFound for a tenant's unknown plan, and those of edits.
func (s *Store) Apply(ctx context.Context, edits func(State) (Edits, error), progress func(done int)) (Change, error) {
	return s.write(ctx, "apply", func(t *tx) error {
		// Usage updates rows of keys too, in another order.
		if err := s.lockUsage(ctx, t.Tx); err != nil {
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
		return t.apply(e, progress)
	})
}

// apply makes changes of rows with their events, many with one statement.
func (t *tx) apply(e Edits, progress func(done int)) error {
	b := bulk{tx: t, progress: progress, rows: map[string][]any{}}
	for _, p := range e.Plans {
		if err := b.plan(p); err != nil {
			return err
		}
	}
	if err := b.flush(); err != nil { // tenants refer to plans
		return err
	}
	for _, tenant := range e.Tenants {
		if err := b.tenant(tenant); err != nil {
			return err
		}
	}
	for _, k := range e.Keys {
		if err := b.key(k); err != nil {
			return err
		}
	}
	return b.flush()
}

// bulk collects rows, and writes many of them with one statement.
type bulk struct {
	*tx
	progress func(done int)
	done     int

	rows   map[string][]any // by statement
	events []eventRow
}

// bulkStatements are the statements in the order in which they run.
var bulkStatements = []string{insertPlans, updatePlans, insertTenants, updateTenants, updateKeys, deleteSuspensions}

// limitsRow is a plan, or what can change of a tenant.
type limitsRow struct {
	ID        string         `json:"id,omitempty"`
	Name      string         `json:"name"`
	Plan      string         `json:"plan,omitempty"`
	Minute    int64          `json:"minute"`
	Day       int64          `json:"day"`
	Suspended bool           `json:"suspended"`
	CreatedAt instant.Millis `json:"createdAt"`
}

// keyRow is what can change of a key.
type keyRow struct {
	ID          id.Key         `json:"id"`
	Name        string         `json:"name"`
	Scopes      string         `json:"scopes"`
	Allow       any            `json:"allow"`
	ExpiresAt   instant.Millis `json:"expiresAt"`
	RevokedAt   instant.Millis `json:"revokedAt"`
	GraceEndsAt instant.Millis `json:"graceEndsAt"`
	ReplacedBy  any            `json:"replacedBy"`
}

func (b *bulk) plan(e Edit[Plan]) error {
	p, kind, query := e.After, PlanUpdated, updatePlans
	if err := checkPlan(p.Name, p.Limits); err != nil {
		return err
	}
	if e.Before == nil {
		p.CreatedAt, kind, query = b.at, PlanCreated, insertPlans
	}
	err := b.event(kind, subject{plan: p.Name}, orNil(e.Before), p)
	if err != nil {
		return err
	}
	return b.add(query, limitsRow{Name: p.Name, Minute: p.Limits.Minute, Day: p.Limits.Day, CreatedAt: p.CreatedAt})
}

func (b *bulk) tenant(e Edit[Tenant]) error {
	after, query := e.After, updateTenants
	if err := checkLimits(after.Override); err != nil {
		return err
	}
	was := Tenant{}
	if e.Before != nil {
		was = *e.Before
	} else {
		if err := asInvalid(CheckTenantName(after.Name)); err != nil {
			return err
		}
		if after.ID.IsZero() {
			var err error
			if after.ID, err = id.NewTenant(b.store.random); err != nil {
				return err
			}
		}
		after.CreatedAt, query = b.at, insertTenants
		was = after
		was.Suspended = false
		if err := b.event(TenantCreated, subject{tenant: after.ID}, nil, was); err != nil {
			return err
		}
	}
	terms := was
	terms.Plan, terms.Override = after.Plan, after.Override
	kind := TenantQuotaSet
	if terms.Plan != was.Plan {
		kind = TenantPlanSet
	}
	about := subject{tenant: after.ID}
	if terms != was {
		if err := b.event(kind, about, was, terms); err != nil {
			return err
		}
	}
	if after.Suspended != was.Suspended {
		kind := TenantSuspended
		if !after.Suspended {
			kind = TenantResumed
			// If an earlier suspension was lost and repeated since, it leaves the list of lost refusals.
			b.put(deleteSuspensions, limitsRow{ID: after.ID.String()})
		}
		if err := b.event(kind, about, terms, after); err != nil {
			return err
		}
	}
	return b.add(query, limitsRow{
		after.ID.String(), after.Name, after.Plan, after.Override.Minute, after.Override.Day, after.Suspended, after.CreatedAt,
	})
}

func (b *bulk) key(e Edit[Key]) error {
	k := e.After
	if e.Before == nil {
		return invalid("%s cannot be created without its token", k.ID)
	}
	about := subject{tenant: k.Tenant, key: k.ID}
	terms := k
	terms.RevokedAt = e.Before.RevokedAt
	if !sameTerms(*e.Before, terms) {
		if err := editable(*e.Before, terms, b.at); err != nil {
			return err
		}
		if err := b.event(KeyUpdated, about, *e.Before, terms); err != nil {
			return err
		}
	}
	if k.RevokedAt != e.Before.RevokedAt {
		k.RevokedAt = b.at
		if err := b.event(KeyRevoked, about, terms, k); err != nil {
			return err
		}
	}
	return b.add(updateKeys, rowOf(k))
}

func rowOf(k Key) keyRow {
	allow, _ := k.Allow.Value() // it is always a text
	replacedBy, _ := k.ReplacedBy.Value()
	return keyRow{k.ID, k.Name, k.Scopes.String(), allow, k.ExpiresAt, k.RevokedAt, k.GraceEndsAt, replacedBy}
}

// orNil keeps a nil pointer from becoming a value that is not nil.
func orNil[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

func (b *bulk) event(kind string, about subject, before, after any) error {
	row, err := event{kind, about, before, after}.row(len(b.events) + 1)
	b.events = append(b.events, row)
	return err
}

func (b *bulk) put(query string, row any) { b.rows[query] = append(b.rows[query], row) }

// add puts the last row of a change, and writes all rows if there are many.
func (b *bulk) add(query string, row any) error {
	b.done++
	b.put(query, row)
	if len(b.events) < applyRows {
		return nil
	}
	return b.flush()
}

// flush writes all rows.
func (b *bulk) flush() error {
	if len(b.events) == 0 {
		return nil
	}
	for _, query := range bulkStatements {
		if len(b.rows[query]) == 0 {
			continue
		}
		text, err := json.Marshal(b.rows[query])
		if err != nil {
			return err
		}
		if err := b.exec(query, string(text)); err != nil {
			switch {
			case database.IsUnique(err):
				return conflict("a plan or a tenant of this name was created at the same time: try again")
			case database.IsForeignKey(err):
				return missing(err, "a tenant's plan does not exist")
			}
			return err
		}
	}
	err := b.append(0, b.events...)
	clear(b.rows)
	b.events = b.events[:0]
	if err == nil && b.progress != nil {
		b.progress(b.done)
	}
	return err
}

package keystore

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"

	"github.com/jmoiron/sqlx"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/database"
)

// Every change of plans, tenants and keys is a row of a statement for many rows, with its events.
// Nobody else changes what was read for them: one record is read with held, many under the writers'
// lock.

// Edit is one changed record. Without Before it is created.
type Edit[T any] struct {
	Before *T
	After  T
}

// changes are rows to write, with their events.
type changes struct {
	rows   map[string][]any // by statement
	events []eventRow
	needs  string // what the last row refers to
}

// changeStatements are the statements in the order in which they run.
var changeStatements = []string{
	insertPlans, updatePlans, insertTenants, updateTenants, resetUsage, insertKeys, updateKeys, deleteRefusals,
}

func (c *changes) add(query string, row any) {
	if c.rows == nil {
		c.rows = map[string][]any{}
	}
	c.rows[query] = append(c.rows[query], row)
}

// subject names the rows that an event is about. A tail reads these rows again.
type subject struct {
	tenant id.Tenant
	key    id.Key
	plan   string
}

// eventRow is what insertEvents gets of an event.
type eventRow struct {
	N      int       `json:"n"` // counts the events of one statement from 1
	UUID   string    `json:"uuid"`
	Kind   string    `json:"kind"`
	Tenant id.Tenant `json:"tenantId,omitzero"`
	Key    id.Key    `json:"keyId,omitzero"`
	Plan   string    `json:"plan"`
	Before string    `json:"before"`
	After  string    `json:"after"`
}

// event adds an event. A nil before or after means that there is no such record.
func (c *changes) event(kind string, about subject, before, after any) {
	detail := func(record any) string {
		if record == nil {
			return ""
		}
		return jsonText(record)
	}
	c.events = append(c.events, eventRow{
		len(c.events) + 1, rand.Text(), kind, about.tenant, about.key, about.plan, detail(before), detail(after),
	})
}

func (t *tx) plan(e Edit[Plan]) error {
	is := e.After
	if e.Before != nil && is == *e.Before { // it may be older than its check
		return nil
	}
	if err := plan.CheckName(is.Name); err != nil {
		return asInvalid(err)
	}
	if err := is.Limits.Check(); err != nil {
		return asInvalid(err)
	}
	if err := is.InForce(plan.Limits{}, apikey.Test).Check(); err != nil {
		return invalid("for test keys, %s", err)
	}
	about := subject{plan: is.Name}
	if e.Before != nil {
		t.event(PlanUpdated, about, *e.Before, is)
		t.add(updatePlans, is)
		return nil
	}
	is.CreatedAt = t.at
	t.event(PlanCreated, about, nil, is)
	t.add(insertPlans, is)
	return nil
}

// tenant adds an event for the name, one for the plan and the limits, and one for the suspension.
func (t *tx) tenant(e Edit[Tenant]) (err error) {
	is := e.After
	var was Tenant
	if e.Before != nil {
		was = *e.Before
	}
	if e.Before == nil || is.Name != was.Name {
		err = asInvalid(CheckTenantName(is.Name))
	}
	if err == nil && is.Override != was.Override { // limits that do not change may be older than their check
		err = asInvalid(is.Override.Check())
	}
	if err == nil {
		err = asInvalid(plan.CheckMonthStarts(is.MonthStarts))
	}
	if err == nil && is.ID.IsZero() {
		is.ID, err = id.NewTenant(t.store.random)
	}
	if err != nil {
		return err
	}
	about := subject{tenant: is.ID}
	if e.Before == nil {
		is.CreatedAt = t.at
		was = is
		was.Suspended = false
		t.event(TenantCreated, about, nil, was)
	}
	renamed, terms := was, is
	if renamed.Name = is.Name; renamed != was {
		t.event(TenantRenamed, about, was, renamed)
	}
	if terms.Suspended = was.Suspended; terms != renamed {
		kind := TenantQuotaSet
		if terms.Plan != was.Plan {
			kind = TenantPlanSet
		}
		t.event(kind, about, renamed, terms)
	}
	switch {
	case is.Suspended && !was.Suspended:
		t.event(TenantSuspended, about, terms, is)
	case was.Suspended && !is.Suspended:
		t.event(TenantResumed, about, terms, is)
		// If an earlier suspension was lost and repeated since, it leaves the list of lost
		// refusals.
		t.add(deleteRefusals, is)
	}
	t.needs = fmt.Sprintf("plan %q", is.Plan)
	if e.Before == nil {
		t.add(insertTenants, is)
	} else {
		t.add(updateTenants, is)
	}
	return nil
}

// keyRow is a key as its statements get it.
type keyRow struct {
	ID          id.Key         `json:"id"`
	Tenant      id.Tenant      `json:"tenantId"`
	Hash        string         `json:"hash,omitempty"` // in hexadecimal; only of a new key
	Name        string         `json:"name"`
	Hint        string         `json:"hint"`
	Environment string         `json:"environment"`
	Scopes      string         `json:"scopes"`
	Allow       any            `json:"allow"`
	CreatedAt   instant.Millis `json:"createdAt"`
	ExpiresAt   instant.Millis `json:"expiresAt"`
	RevokedAt   instant.Millis `json:"revokedAt"`
	GraceEndsAt instant.Millis `json:"graceEndsAt"`
	ReplacedBy  id.Key         `json:"replacedBy,omitzero"`
	Limits      plan.Limits    `json:"limits"`
}

func rowOf(k Key) keyRow {
	allow, _ := k.Allow.Value() // it is always a text
	return keyRow{
		k.ID, k.Tenant, "", k.Name, k.Hint, k.Environment.String(), string(k.Scopes), allow, k.CreatedAt, k.ExpiresAt, k.RevokedAt,
		k.GraceEndsAt, k.ReplacedBy, k.Limits,
	}
}

// key adds an event for the terms, and one for a rotation, or for the end, the pause or the return
// of the key.
func (t *tx) key(e Edit[Key]) error {
	is := e.After
	if e.Before == nil {
		return invalid("%s cannot be created without its token", is.ID)
	}
	was, terms, about := *e.Before, is, subject{tenant: is.Tenant, key: is.ID}
	terms.RevokedAt, terms.GraceEndsAt, terms.ReplacedBy = was.RevokedAt, was.GraceEndsAt, was.ReplacedBy
	if !sameTerms(was, terms) {
		if err := editable(was, terms, t.at); err != nil {
			return err
		}
		t.event(KeyUpdated, about, was, terms)
	}
	switch {
	case is.GraceEndsAt != was.GraceEndsAt || is.ReplacedBy != was.ReplacedBy:
		t.event(KeyRotated, about, terms, is)
	case is.RevokedAt == was.RevokedAt:
	case is.RevokedAt > 0:
		t.event(KeyRevoked, about, terms, is)
	case is.RevokedAt < 0:
		t.event(KeyDisabled, about, terms, is)
	default:
		t.event(KeyEnabled, about, terms, is)
		t.add(deleteRefusals, rowOf(is)) // as for a suspension
	}
	t.add(updateKeys, rowOf(is))
	return nil
}

// edit changes one record, which read returns. It returns the record and its event, or the last
// event if nothing has changed.
func edit[T any](
	ctx context.Context, s *Store, op string, read func(sqlx.QueryerContext) (T, error),
	change func(is *T, t *tx) error, add func(*tx, Edit[T]) error,
) (is T, c Change, err error) {
	c, err = s.change(ctx, op, func(t *tx) error {
		was, err := read(held{t})
		if is = was; err == nil {
			err = change(&is, t)
		}
		if err != nil {
			return err
		}
		return add(t, Edit[T]{&was, is})
	})
	return is, c, err
}

// held reads a record that nobody else changes until the transaction ends. Until its turn, the
// transaction must not write: the transaction that has the turn could wait for a row that was
// written with the same name.
type held struct{ *tx }

func (h held) QueryRowxContext(ctx context.Context, query string, args ...any) *sqlx.Row {
	if h.store.db.Dialect() == database.Postgres {
		query += " FOR NO KEY UPDATE" // new rows may refer to it
	}
	return h.tx.QueryRowxContext(ctx, query, args...)
}

// put writes the rows and the events. The IDs of the events are larger than after.
func (t *tx) put(after Change) error { return t.run(t.statements(after)...) }

// statements returns what writes the rows and the events, which are then no longer waiting.
func (t *tx) statements(after Change) (all []database.Statement) {
	c := t.changes
	if t.changes = (changes{needs: c.needs}); len(c.events) == 0 {
		return nil
	}
	add := func(query string, args ...any) {
		all = append(all, database.Statement{Query: t.store.expand.Replace(query), Args: args})
	}
	if t.store.db.Dialect() == database.Postgres {
		add(turnPostgres)
	}
	for _, query := range changeStatements {
		if rows := c.rows[query]; len(rows) > 0 {
			add(query, jsonText(rows))
		}
	}
	add(insertEvents, jsonText(c.events), t.at, t.store.actor, after)
	t.last = c.events[len(c.events)-1]
	if r := t.store.request; r != nil {
		add(pruneRequests, t.at.Add(-requestsKept))
		add(insertRequest, r.ID, r.Body, r.Salt, t.at)
	}
	return all
}

func (t *tx) run(all ...database.Statement) error {
	largest, err := t.store.db.Run(t.ctx, t, all...)
	t.change = max(t.change, Change(largest))
	return t.explain(err)
}

// explain says what a row refers to that does not exist.
func (c *changes) explain(err error) error {
	if database.IsForeignKey(err) {
		return fmt.Errorf("%w: there is no %s", ErrNotFound, c.needs)
	}
	return err
}

// jsonText returns a value as statements get it.
func jsonText(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic("bug: a value that is no JSON: " + err.Error())
	}
	return string(text)
}

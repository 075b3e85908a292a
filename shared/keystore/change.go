package keystore

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql/driver"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jmoiron/sqlx"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/database"
)

// Every change of plans, tenants and keys is a row of a statement for many rows. A row has the record as it was read and as it is to be. A
// record that was changed since it was read stays as it is. So a record can be read without a lock, and a change of one record needs one
// round trip under the writers' lock.

// Edit is one changed record. Without Before it is created.
type Edit[T any] struct {
	Before *T
	After  T
}

// changes are rows to write, with their events.
type changes struct {
	at     instant.Millis
	random io.Reader
	rows   map[string][]any // by statement
	events []eventRow
	needs  string // what the last row refers to
}

func (s *Store) newChanges(at instant.Millis) *changes {
	return &changes{at: at, random: s.random, rows: map[string][]any{}}
}

// changeStatements are the statements in the order in which they run.
var changeStatements = []string{insertPlans, updatePlans, insertTenants, updateTenants, insertKeys, updateKeys, deleteRefusals}

// changeRow is what these statements get of a record.
type changeRow struct {
	Was any `json:"was,omitempty"`
	Is  any `json:"is"`
}

func (c *changes) add(query string, was, is any) {
	c.rows[query] = append(c.rows[query], changeRow{was, is})
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

func (c *changes) plan(e Edit[Plan]) error {
	is := e.After
	if err := plan.CheckName(is.Name); err != nil {
		return asInvalid(err)
	}
	var was Plan
	if e.Before != nil {
		was = *e.Before
	}
	// Limits that do not change may be older than their check.
	if is.Limits != was.Limits || is.Test != was.Test {
		if err := is.Limits.Check(); err != nil {
			return asInvalid(err)
		}
		if err := is.InForce(plan.Limits{}, apikey.Test).Check(); err != nil {
			return invalid("for test keys, %s", err)
		}
	}
	about := subject{plan: is.Name}
	switch {
	case e.Before == nil:
		is.CreatedAt = c.at
		c.event(PlanCreated, about, nil, is)
		c.add(insertPlans, nil, is)
	case is != was:
		c.event(PlanUpdated, about, was, is)
		c.add(updatePlans, was, is)
	}
	return nil
}

// tenant adds an event for the name, one for the plan and the limits, and one for the suspension.
func (c *changes) tenant(e Edit[Tenant]) (err error) {
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
		is.ID, err = id.NewTenant(c.random)
	}
	if err != nil {
		return err
	}
	about := subject{tenant: is.ID}
	if e.Before == nil {
		is.CreatedAt = c.at
		was = is
		was.Suspended = false
		c.event(TenantCreated, about, nil, was)
	}
	renamed, terms := was, is
	if renamed.Name = is.Name; renamed != was {
		c.event(TenantRenamed, about, was, renamed)
	}
	if terms.Suspended = was.Suspended; terms != renamed {
		kind := TenantQuotaSet
		if terms.Plan != was.Plan {
			kind = TenantPlanSet
		}
		c.event(kind, about, renamed, terms)
	}
	switch {
	case is.Suspended && !was.Suspended:
		c.event(TenantSuspended, about, terms, is)
	case was.Suspended && !is.Suspended:
		c.event(TenantResumed, about, terms, is)
		// If an earlier suspension was lost and repeated since, it leaves the list of lost refusals.
		c.add(deleteRefusals, nil, is)
	}
	c.needs = fmt.Sprintf("plan %q", is.Plan)
	if e.Before == nil {
		c.add(insertTenants, nil, is)
	} else if is != was {
		c.add(updateTenants, was, is)
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

// newKey adds a key that was minted.
func (c *changes) newKey(k Key, hash apikey.Hash) {
	row := rowOf(k)
	row.Hash = hex.EncodeToString(hash[:])
	c.needs = fmt.Sprintf("tenant %q", k.Tenant)
	c.event(KeyCreated, subject{tenant: k.Tenant, key: k.ID}, nil, k)
	c.add(insertKeys, nil, row)
}

// key adds an event for the terms, and one for a rotation, or for the end, the pause or the return of the key.
func (c *changes) key(e Edit[Key]) error {
	is := e.After
	if e.Before == nil {
		return invalid("%s cannot be created without its token", is.ID)
	}
	was, terms, about, events := *e.Before, is, subject{tenant: is.Tenant, key: is.ID}, len(c.events)
	terms.RevokedAt, terms.GraceEndsAt, terms.ReplacedBy = was.RevokedAt, was.GraceEndsAt, was.ReplacedBy
	if !sameTerms(was, terms) {
		if err := editable(was, terms, c.at); err != nil {
			return err
		}
		c.event(KeyUpdated, about, was, terms)
	}
	switch {
	case is.GraceEndsAt != was.GraceEndsAt || is.ReplacedBy != was.ReplacedBy:
		c.event(KeyRotated, about, terms, is)
	case is.RevokedAt == was.RevokedAt:
	case is.RevokedAt > 0:
		c.event(KeyRevoked, about, terms, is)
	case is.RevokedAt < 0:
		c.event(KeyDisabled, about, terms, is)
	default:
		c.event(KeyEnabled, about, terms, is)
		c.add(deleteRefusals, nil, rowOf(is)) // as for a suspension
	}
	if len(c.events) > events {
		c.add(updateKeys, rowOf(was), rowOf(is))
	}
	return nil
}

// changeAttempts limits how often a record is read again because another writer was faster.
const changeAttempts = 20

// errOvertaken means that a record is not as it was read.
var errOvertaken = conflict("other writers keep changing this record: try again")

// edit changes one record, which read returns. If another writer changes it before it is written, it is read and changed again. add adds
// the change. It returns the record and its event, or the last event if nothing has changed.
func edit[T any](ctx context.Context, s *Store, op string, read func(sqlx.QueryerContext) (T, error),
	change func(is *T, now instant.Millis) error, add func(*changes, Edit[T]) error,
) (is T, c Change, err error) {
	for range changeAttempts {
		was, err := read(s.db)
		if is = was; err != nil {
			return is, 0, fail(op, err)
		}
		made := s.newChanges(s.now())
		if err = change(&is, made.at); err == nil {
			err = add(made, Edit[T]{&was, is})
		}
		if err != nil {
			return is, 0, fail(op, err)
		}
		if c, err = s.make(ctx, op, made); !errors.Is(err, errOvertaken) {
			return is, c, err
		}
	}
	return is, 0, fail(op, errOvertaken)
}

// make writes changes. Without any, it returns the last event. Its error is errOvertaken if a record is not as it was read.
func (s *Store) make(ctx context.Context, op string, c *changes) (Change, error) {
	// Not for a store that seeks: this statement takes the lock itself, so it may still be on its way when another one has the lock.
	if len(c.events) == 1 && len(c.rows) == 1 && s.db.Dialect() == database.Postgres && !s.seeks && s.request == nil {
		last, err := s.makeOne(ctx, c)
		return last, fail(op, err)
	}
	if len(c.events) == 0 {
		return s.LastEvent(ctx)
	}
	return s.writeOn(ctx, s.db, op, c.at, func(t *tx) error { return t.put(c, 0) })
}

// oneRow stands for {rows} if there is only one. The planner then knows that, and uses the index. The text is parsed once.
const oneRow = `(SELECT CAST($1 AS jsonb) AS value) AS r`

// makeOne writes one row and its event in one round trip.
func (s *Store) makeOne(ctx context.Context, c *changes) (last Change, err error) {
	for query, rows := range c.rows { // the only one
		err = s.db.Once(ctx, func(row []driver.Value) error {
			id, isID := row[0].(int64)
			if last = Change(id); !isID {
				return fmt.Errorf("an event's ID is %T", row[0])
			}
			return nil
		}, "WITH changed AS ("+s.expand.Replace(strings.ReplaceAll(query, "{rows}", oneRow))+" RETURNING 1)"+appendEvent,
			jsonText(rows[0]), writeLock, channel, jsonText(c.events[0]), int64(c.at), s.actor)
	}
	if err == nil && last == 0 {
		err = errOvertaken
	}
	return last, c.explain(s.explain(ctx, err))
}

// put writes rows and their events under the writers' lock. The IDs of the events are larger than after.
func (t *tx) put(c *changes, after Change) error {
	if len(c.events) == 0 {
		return nil
	}
	for _, query := range changeStatements {
		rows := c.rows[query]
		if len(rows) == 0 {
			continue
		}
		result, err := t.ExecContext(t.ctx, t.store.expand.Replace(query), jsonText(rows))
		if err != nil {
			return c.explain(err)
		}
		if n, err := result.RowsAffected(); err != nil || int(n) != len(rows) && query != deleteRefusals {
			return cmp.Or(err, errOvertaken)
		}
	}
	var ids []Change
	err := t.SelectContext(t.ctx, &ids, t.store.expand.Replace(insertEvents), jsonText(c.events), t.at, t.store.actor, after)
	if err == nil {
		t.change, t.event = slices.Max(ids), c.events[len(c.events)-1]
		err = t.addRequest()
	}
	return err
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

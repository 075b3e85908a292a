package keystore

import (
	"crypto/rand"
	"encoding/json"
	"fmt"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/database"
)

// Every change of plans, tenants and keys is a row of a statement for many rows, with its events.
// No other transaction changes what was read for it: one record is read by hold, many are read
// under the writers' lock.

// Edit is one changed record. Without Before it is created.
type Edit[T any] struct {
	Before *T
	After  T
}

// writes are what a transaction has not written yet: rows, and their events.
type writes struct {
	byStatement map[string][]any // rows
	events      []eventRow
	refersTo    string // what the last row refers to
}

// changeStatements are the statements in the order in which they run.
var changeStatements = []string{
	insertPlans, updatePlans, insertTenants, updateTenants, resetUsage, insertKeys, updateKeys, deleteRefusals,
}

// add adds a row for a statement.
func (t *Tx) add(query string, row any) {
	if t.waiting.byStatement == nil {
		t.waiting.byStatement = map[string][]any{}
	}
	t.waiting.byStatement[query] = append(t.waiting.byStatement[query], row)
}

// Subject names the records that an event is about. A tail reads them again.
type Subject struct {
	Tenant id.Tenant
	Key    id.Key
	Plan   string
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

// Event adds an event. A nil before or after means that there is no such record.
func (t *Tx) Event(kind string, about Subject, before, after any) {
	t.waiting.events = append(t.waiting.events, eventRow{
		N:      len(t.waiting.events) + 1,
		UUID:   rand.Text(),
		Kind:   kind,
		Tenant: about.Tenant,
		Key:    about.Key,
		Plan:   about.Plan,
		Before: detail(before),
		After:  detail(after),
	})
}

// detail returns a record as an event has it.
func detail(record any) string {
	if record == nil {
		return ""
	}
	return JSON(record)
}

// EditPlan changes or creates a plan.
func (t *Tx) EditPlan(e Edit[Plan]) error {
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
		return Invalid("for test keys, %s", err)
	}
	about := Subject{Plan: is.Name}
	if e.Before != nil {
		t.Event(PlanUpdated, about, *e.Before, is)
		t.add(updatePlans, is)
		return nil
	}
	is.CreatedAt = t.At
	t.Event(PlanCreated, about, nil, is)
	t.add(insertPlans, is)
	return nil
}

// EditTenant changes or creates a tenant. It adds an event for the name, one for the plan and the
// limits, and one for the suspension.
func (t *Tx) EditTenant(e Edit[Tenant]) (err error) {
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
	about := Subject{Tenant: is.ID}
	if e.Before == nil {
		is.CreatedAt = t.At
		was = is
		was.Suspended = false
		t.Event(TenantCreated, about, nil, was)
	}
	renamed := was
	renamed.Name = is.Name
	if renamed != was {
		t.Event(TenantRenamed, about, was, renamed)
	}
	terms := is
	terms.Suspended = was.Suspended
	if terms != renamed {
		kind := TenantQuotaSet
		if terms.Plan != was.Plan {
			kind = TenantPlanSet
		}
		t.Event(kind, about, renamed, terms)
	}
	switch {
	case is.Suspended && !was.Suspended:
		t.Event(TenantSuspended, about, terms, is)
	case was.Suspended && !is.Suspended:
		t.Event(TenantResumed, about, terms, is)
		// If an earlier suspension was lost and repeated since, it leaves the list of lost
		// refusals.
		t.add(deleteRefusals, is)
	}
	t.waiting.refersTo = fmt.Sprintf("plan %q", is.Plan)
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
	DisabledAt  instant.Millis `json:"disabledAt"`
	GraceEndsAt instant.Millis `json:"graceEndsAt"`
	ReplacedBy  id.Key         `json:"replacedBy,omitzero"`
	Limits      plan.Limits    `json:"limits"`
}

func rowOf(k Key) keyRow {
	allow, _ := k.Allow.Value() // it is always a text
	return keyRow{
		ID:          k.ID,
		Tenant:      k.Tenant,
		Name:        k.Name,
		Hint:        k.Hint,
		Environment: k.Environment.String(),
		Scopes:      string(k.Scopes),
		Allow:       allow,
		CreatedAt:   k.CreatedAt,
		ExpiresAt:   k.ExpiresAt,
		RevokedAt:   k.RevokedAt,
		DisabledAt:  k.DisabledAt,
		GraceEndsAt: k.GraceEndsAt,
		ReplacedBy:  k.ReplacedBy,
		Limits:      k.Limits,
	}
}

// EditKey changes a key. It adds an event for the terms, and one if the key is rotated, revoked,
// disabled or enabled.
func (t *Tx) EditKey(e Edit[Key]) error {
	is := e.After
	if e.Before == nil {
		return Invalid("%s cannot be created without its token", is.ID)
	}
	was := *e.Before
	about := Subject{Tenant: is.Tenant, Key: is.ID}
	terms := is
	terms.RevokedAt = was.RevokedAt
	terms.DisabledAt = was.DisabledAt
	terms.GraceEndsAt = was.GraceEndsAt
	terms.ReplacedBy = was.ReplacedBy
	if !sameTerms(was, terms) {
		if err := editable(was, terms, t.At); err != nil {
			return err
		}
		t.Event(KeyUpdated, about, was, terms)
	}
	switch {
	case is.GraceEndsAt != was.GraceEndsAt || is.ReplacedBy != was.ReplacedBy:
		t.Event(KeyRotated, about, terms, is)
	case is.RevokedAt != was.RevokedAt:
		t.Event(KeyRevoked, about, terms, is)
	case is.DisabledAt == was.DisabledAt:
	case is.DisabledAt != 0:
		t.Event(KeyDisabled, about, terms, is)
	default:
		t.Event(KeyEnabled, about, terms, is)
		t.add(deleteRefusals, rowOf(is)) // as for a suspension
	}
	t.add(updateKeys, rowOf(is))
	return nil
}

// explain says what a row refers to that does not exist.
func (w writes) explain(err error) error {
	if database.IsForeignKey(err) {
		return fmt.Errorf("%w: there is no %s", ErrNotFound, w.refersTo)
	}
	return err
}

// JSON returns a value as statements get it.
func JSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic("bug: a value cannot be written as JSON: " + err.Error())
	}
	return string(text)
}

// Package keystore keeps tenants, plans, keys, bans, gateways and events in SQL. No other package
// uses these tables.
//
// A write changes the state and adds its events in one transaction. It takes a lock before it draws
// an event's ID, so IDs become visible in order, and a reader that follows the events never skips
// one. The lock is PostgreSQL's advisory transaction lock, or SQLite's write lock, which a
// transaction takes when it begins.
//
// Only the SHA-256 of a token is stored. Events, errors and log lines contain neither the token nor
// the hash.
//
// A Store is safe for concurrent use by goroutines and processes.
package keystore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"

	"petgate/shared/core/instant"
	"petgate/shared/database"
)

//go:embed migrations
var migrations embed.FS

// Migrations create the tables of this package.
var Migrations = database.Migrations{
	FS: migrations, Table: "keystore_schema",
	// Not gateways, which are processes; not console_sessions and operators, which a copy must not
	// let in again; not requests, which a copy would report or repeat.
	Tables: []string{
		"plans", "tenants", "tenant_keys", "bans", "events", "lost_refusals", "gateway_registry", "usage_hours", "usage_minutes",
		"usage_ledger", "usage_exports", "usage_gaps", "quota_records",
	},
}

const channel = "petgate_events" // as in turnPostgres

// Store reads and writes the key database. The times of gateways are by the database's clock, all
// other times by the store's clock.
type Store struct {
	db     *database.DB
	clock  func() time.Time
	random io.Reader
	actor  string
	expand expander

	request *Request // of the next change; nil: it has none

	seeks   bool          // Seek was called
	seekFor time.Duration // given to Seek

	quotasPruned atomic.Int64 // when SaveQuotas last removed old records, in Unix ms
}

// Seek lets changes know their outcome if the connection breaks at their commit: they look for
// their event, once and then for up to limit. If they cannot look in that time, their error is an
// *UnknownError. Call it before the store is used.
func (s *Store) Seek(limit time.Duration) { s.seeks, s.seekFor = true, limit }

// New returns a store on db. If clock or random is nil, the system's is used. actor is the actor in
// this store's events: an operator's name or a gateway's ID.
func New(db *database.DB, clock func() time.Time, random io.Reader, actor string) *Store {
	if clock == nil {
		clock = time.Now
	}
	if random == nil {
		random = rand.Reader
	}
	return &Store{db: db, clock: clock, random: random, actor: actor, expand: expansion(db.Dialect())}
}

// expander replaces what differs between the databases in a statement.
type expander struct {
	functions map[string]string // in place of whole statements
	parts     *strings.Replacer
}

// Replace returns a statement as the database gets it.
func (e expander) Replace(query string) string {
	if function := e.functions[query]; function != "" {
		return "SELECT * FROM " + function
	}
	return e.parts.Replace(query)
}

func expansion(dialect database.Dialect) expander {
	if dialect == database.SQLite {
		return expander{nil, strings.NewReplacer(
			"{now}", `CAST(unixepoch('subsec') * 1000 AS BIGINT)`,
			"{rows}", `json_each($1)`,
			"{record}", `unhex(value->>'record')`,
			"{hash}", `unhex(value->>'hash')`,
			"{listed}", `IN (SELECT value->>'operation' FROM json_each($1))`,
			"{escape}", ` ESCAPE '\'`,
		)}
	}
	return expander{gatewayFunctions, strings.NewReplacer(
		"{now}",
		`CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)`,
		"{rows}",
		`json_array_elements(CAST($1 AS json)) AS r(value)`,
		"{record}",
		`decode(value->>'record', 'hex')`,
		"{hash}",
		`decode(value->>'hash', 'hex')`,
		"{listed}",
		`= ANY (ARRAY(SELECT value->>'operation' FROM json_array_elements(CAST($1 AS json)) AS r(value)))`, // uses an index
		"{escape}",
		"",
	)}
}

// gatewayFunctions are the statements that PostgreSQL has as functions, so that the role of
// gateways needs no right to write to tables. A function has the statement's text: who changes one
// adds a migration with a new function.
var gatewayFunctions = map[string]string{
	growGeneration:  "gateway_grow_generation($1)",
	register:        "gateway_register($1, $2, $3, $4, $5, $6)",
	heartbeat:       "gateway_heartbeat($1, $2, $3, $4, $5, $6)",
	describeGateway: "gateway_describe($1, $2, $3)",
	deleteProcess:   "gateway_delete_process($1, $2)",
	deleteSilent:    "gateway_delete_silent($1, $2, $3, $4)",
	leaveUnreported: "gateway_leave_unreported($1, $2)",
	takeUnreported:  "gateway_take_unreported()",
	claimUsage:      "gateway_claim_usage($1, $2, $3)",
	addUsage:        "gateway_add_usage($1)",
	addMinutes:      "gateway_add_minutes($1, $2)",
	touchKeys:       "gateway_touch_keys($1)",
	pruneUsage:      "gateway_prune_usage($1, $2)",
	pruneMinutes:    "gateway_prune_minutes($1, $2)",
	noteGap:         "gateway_note_gap($1, $2, $3)",
	noteDropped:     "gateway_note_dropped($1, $2, $3, $4)",
	closeGap:        "gateway_close_gap($1, $2)",
	pruneGaps:       "gateway_prune_gaps($1)",
	upsertQuotas:    "gateway_upsert_quotas($1, $2)",
	pruneQuotas:     "gateway_prune_quotas($1)",
}

// CheckSchema returns an error that wraps ErrSchema if the tables have a different version than
// this program needs.
func (s *Store) CheckSchema(ctx context.Context) error {
	have, want, err := s.db.Schema(ctx, Migrations)
	switch {
	case err != nil:
		return fail("check schema", err)
	case have == 0:
		err := s.db.CheckForeign(ctx)
		if errors.Is(err, database.ErrForeign) {
			return fmt.Errorf("%w: %w", ErrForeign, err)
		}
		if err != nil {
			return fail("check schema", err)
		}
		fallthrough
	case have < want:
		return fmt.Errorf("%w: the key tables have version %d, this program needs %d: migrate the database",
			ErrOutdated, have, want)
	case have > want:
		return fmt.Errorf("%w: the key tables have version %d, this program knows only %d: upgrade the program",
			ErrSchema, have, want)
	}
	return nil
}

// CheckFile fails if the database's file was removed or replaced: see database.DB.
func (s *Store) CheckFile() error { return fail("check file", s.db.CheckFile()) }

// Reopen makes sure that statements use the database's present file: see database.DB.
func (s *Store) Reopen() error { return fail("check file", s.db.Reopen()) }

// Listen returns a listener that wakes when there may be new events.
func (s *Store) Listen() *database.Listener { return s.db.Listen(channel) }

func (s *Store) now() instant.Millis { return instant.Of(s.clock()) }

// transact runs f in a transaction of its own, without an event, and commits unless f fails.
func (s *Store) transact(ctx context.Context, op string, f func(t *tx) error) error {
	return s.within(ctx, op, "", func(t *tx) error {
		err := f(t)
		if err == nil {
			_, err = t.commit()
		}
		return fail(op, err)
	})
}

// within runs f in a transaction, which f commits.
func (s *Store) within(ctx context.Context, op, lockPostgres string, f func(t *tx) error) error {
	on, err := s.db.BeginWith(ctx, s.beginning(lockPostgres))
	if err != nil {
		return fail(op, s.explain(ctx, err))
	}
	defer on.Close()
	t := &tx{Conn: on, ctx: ctx, store: s, at: s.now()}
	defer t.rollback()
	return f(t)
}

// beginning is the statement that begins a transaction.
func (s *Store) beginning(lockPostgres string) string {
	if s.db.Dialect() == database.SQLite {
		return "BEGIN IMMEDIATE" // takes SQLite's write lock
	}
	return "BEGIN; " + lockPostgres
}

// tx is one write.
type tx struct {
	*sqlx.Conn
	changes // that are not written yet
	ctx     context.Context
	store   *Store
	at      instant.Millis
	change  Change
	last    eventRow // of change
	isOver  bool
}

// rollback undoes what was not committed.
func (t *tx) rollback() {
	if !t.isOver {
		t.isOver = true
		database.Rollback(t.Conn)
	}
}

// commit writes what is not written yet, and commits. isUnknown: it failed, and the transaction may
// have been committed.
func (t *tx) commit() (isUnknown bool, err error) {
	rest := t.statements(0)
	if t.store.db.Dialect() == database.SQLite { // there, only the failure of the COMMIT itself says nothing
		if err := t.run(rest...); err != nil {
			return false, err
		}
		rest = nil
	}
	err = t.run(append(rest, database.Statement{Query: "COMMIT"})...)
	t.isOver = err == nil
	return !t.isOver && !database.IsAnswer(err), err
}

// write runs f in a transaction while no other transaction changes anything, and commits if f has
// made a change.
func (s *Store) write(ctx context.Context, op string, f func(*tx) error) (Change, error) {
	return s.writeUnder(ctx, op, lockPostgres, f)
}

// change is write for a change of one record that f reads with held, or of none. On PostgreSQL,
// others run at the same time: each waits for its turn only at the end.
func (s *Store) change(ctx context.Context, op string, f func(*tx) error) (Change, error) {
	c, err := s.writeUnder(ctx, op, shareLockPostgres, f)
	if s.request != nil && database.IsUnique(err) { // perhaps the same request was carried out meanwhile
		c, err = s.writeUnder(ctx, op, shareLockPostgres, f)
	}
	return c, err
}

func (s *Store) writeUnder(ctx context.Context, op, lockPostgres string, f func(*tx) error) (c Change, err error) {
	err = s.within(ctx, op, lockPostgres, func(t *tx) (err error) {
		c, err = t.carryOut(op, f)
		return err
	})
	return c, err
}

// carryOut runs f, and commits if f has made a change.
func (t *tx) carryOut(op string, f func(*tx) error) (Change, error) {
	err := t.checkRequest()
	if err == nil {
		err = f(t)
	}
	isIdle := t.change == 0 && len(t.events) == 0
	if err != nil || isIdle { // perhaps because the same request was carried out while this one waited for its record
		if again := t.checkRequest(); err == nil || errors.Is(again, ErrRepeated) {
			err = again
		}
	}
	if err == nil && isIdle {
		last, _, err := t.store.lastEvent(t.ctx, t)
		return last, fail(op, err)
	}
	isUnknown := false
	if err == nil {
		isUnknown, err = t.commit()
	}
	switch {
	case err == nil:
		return t.change, nil
	case isUnknown:
		t.rollback()
		return t.settle(op, fail(op, err))
	}
	return 0, fail(op, t.store.explain(t.ctx, err))
}

// seekEvery is the pause between two looks for an event.
const seekEvery = 50 * time.Millisecond

// settle returns the outcome of a transaction whose COMMIT has failed. The transaction had the
// writers' lock, or a share of it: once another transaction has the lock alone, it sees how the
// first one ended.
func (t *tx) settle(op string, failed error) (Change, error) {
	if !t.store.seeks {
		return 0, failed
	}
	look := t.store.As(t.store.actor)   // without a request, which would be a repeated one if the change was made
	ctx := context.WithoutCancel(t.ctx) // also if the caller has gone: its change must be known
	for deadline := time.Now().Add(t.store.seekFor); ; time.Sleep(seekEvery) {
		var made Change
		_, err := look.write(ctx, op,
			func(now *tx) error { return now.GetContext(ctx, &made, eventByUUID, t.at, t.last.UUID) })
		switch {
		case err == nil && made > 0:
			return made, nil
		case err == nil:
			return 0, failed
		case time.Now().After(deadline) || t.ctx.Err() != nil:
			return 0, &UnknownError{t.last.Kind, t.last.Tenant, t.last.Key, err}
		}
	}
}

func (t *tx) exec(query string, args ...any) error {
	_, err := t.affects(query, args...)
	return err
}

// affects runs a statement and reports whether it has changed a row.
func (t *tx) affects(query string, args ...any) (bool, error) {
	return affected(t.ExecContext(t.ctx, t.store.expand.Replace(query), args...))
}

// call runs a function that returns the ID of the event that it has added, or NULL.
func (t *tx) call(query string, args ...any) error {
	var c sql.NullInt64
	err := t.GetContext(t.ctx, &c, query, args...)
	t.change = max(t.change, Change(c.Int64))
	return err
}

// list returns the rows of a query. If there are none, the list is empty and not nil.
func list[T any](ctx context.Context, s *Store, op, query string, args ...any) ([]T, error) {
	all := []T{}
	err := s.db.SelectContext(ctx, &all, s.expand.Replace(query), args...)
	return all, fail(op, err)
}

// affected reports whether a statement has changed a row.
func affected(result sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

// get reads one row into dest. If there is none, it returns ErrNotFound with the given text.
func get(ctx context.Context, q sqlx.QueryerContext, dest any, absent, query string, args ...any) error {
	err := sqlx.GetContext(ctx, q, dest, query, args...)
	if errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("%w: %s", ErrNotFound, absent)
	}
	return err
}

// Package keystore keeps tenants, plans, keys, bans, gateways and their events in SQL. It alone knows those tables.
//
// Every write changes the state and adds one or two rows of events in one transaction, under one lock that is taken before
// an event's ID is drawn. So IDs become visible in their order, and who follows the events can never skip one. The lock is
// PostgreSQL's advisory transaction lock, or SQLite's write lock, which a transaction takes when it begins.
//
// Of a token only its SHA-256 is stored; no event, error or log line holds either.
//
// A Store is safe for concurrent use, also by several processes.
package keystore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/database"
)

//go:embed migrations
var migrations embed.FS

// Migrations are the tables of this package.
var Migrations = database.Migrations{FS: migrations, Table: "keystore_schema"}

const (
	channel = "petgate_events"

	// Arbitrary, but fixed for ever: all writers of one database have to mean the same locks.
	writeLock = 0x7065_7467_0001
	usageLock = 0x7065_7467_0002
)

// Store reads and writes the key database. Its clock dates rows and decides what has ended; only gateways are dated by the
// database's own.
type Store struct {
	db     *database.DB
	clock  func() time.Time
	random io.Reader
	actor  string
	expand *strings.Replacer // fills what differs between the databases into a statement
}

// New returns a store on db. Nil clock and random are the system's. The actor is who stands in the events of this store's
// writes: an operator's name or a gateway's ID.
func New(db *database.DB, clock func() time.Time, random io.Reader, actor string) *Store {
	if clock == nil {
		clock = time.Now
	}
	if random == nil {
		random = rand.Reader
	}
	return &Store{db: db, clock: clock, random: random, actor: actor, expand: expansion(db.Dialect())}
}

func expansion(dialect database.Dialect) *strings.Replacer {
	if dialect == database.SQLite {
		return strings.NewReplacer(
			"{now}", `CAST(unixepoch('subsec') * 1000 AS BIGINT)`,
			"{rows}", `json_each($1)`)
	}
	return strings.NewReplacer(
		"{now}", `CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)`,
		"{rows}", `json_array_elements(CAST($1 AS json)) AS r(value)`)
}

// CheckSchema returns an error that wraps ErrSchema and names the cure if the tables are not those that this program needs.
func (s *Store) CheckSchema(ctx context.Context) error {
	have, want, err := s.db.Schema(ctx, Migrations)
	switch {
	case err != nil:
		return fail("check schema", err)
	case have < want:
		return fmt.Errorf("keystore: %w: the key tables have version %d, this program needs %d: run `keyadmin migrate`",
			ErrSchema, have, want)
	case have > want:
		return fmt.Errorf("keystore: %w: the key tables have version %d, this program knows only %d: upgrade it",
			ErrSchema, have, want)
	}
	return nil
}

// Listen wakes whoever follows the events.
func (s *Store) Listen() *database.Listener { return s.db.Listen(channel) }

func (s *Store) now() int64 { return s.clock().UnixMilli() }

// tx is one write.
type tx struct {
	*sql.Tx
	ctx    context.Context
	store  *Store
	at     int64
	change Change
}

// write runs f in a transaction that holds the writers' lock, and commits if f has recorded an event.
func (s *Store) write(ctx context.Context, op string, f func(*tx) error) (Change, error) {
	sqlTx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, fail(op, err)
	}
	defer sqlTx.Rollback() // after Commit it does nothing
	t := &tx{Tx: sqlTx, ctx: ctx, store: s}
	if s.db.Dialect() == database.Postgres {
		_, err = t.ExecContext(ctx, lockPostgres, writeLock, channel)
	}
	if err == nil {
		t.at = s.now() // under the lock, so that events are dated in their order
		err = f(t)
	}
	if err != nil {
		return 0, fail(op, err)
	}
	if t.change == 0 {
		last, _, err := s.lastEvent(ctx, t)
		return last, fail(op, err)
	}
	if err := t.Commit(); err != nil {
		return 0, fail(op, err)
	}
	return t.change, nil
}

func (t *tx) exec(query string, args ...any) error {
	_, err := t.ExecContext(t.ctx, t.store.expand.Replace(query), args...)
	return err
}

// subject is what an event is about; tails find the rows to read again by it.
type subject struct {
	tenant id.Tenant
	key    id.Key
	plan   string
}

// record adds the event. A nil before or after is none.
func (t *tx) record(kind string, about subject, before, after any) error {
	var tenant, key string
	if !about.tenant.IsZero() {
		tenant = about.tenant.String()
	}
	if !about.key.IsZero() {
		key = about.key.String()
	}
	was, err := detail(before)
	if err != nil {
		return err
	}
	is, err := detail(after)
	if err != nil {
		return err
	}
	uuid, err := NewUUID(t.store.random)
	if err != nil {
		return err
	}
	return t.QueryRowContext(t.ctx, insertEvent, uuid, t.at, t.store.actor, kind, tenant, key, about.plan, was, is).Scan(&t.change)
}

func detail(value any) (string, error) {
	if value == nil {
		return "", nil
	}
	text, err := json.Marshal(value)
	return string(text), err
}

// NewUUID draws a random name for an event or a process.
func NewUUID(random io.Reader) (string, error) {
	var b [16]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return "", fmt.Errorf("draw random bytes: %w", err)
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80 // RFC 9562, section 5.4: version 4
	x := hex.EncodeToString(b[:])
	return x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:], nil
}

// querier is a database, a connection or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// scanner is one row.
type scanner interface{ Scan(dest ...any) error }

// each calls f on every row.
func each(ctx context.Context, q querier, f func(scanner) error, query string, args ...any) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// list reads all rows; it is never nil, so that JSON shows an empty list as one.
func list[T any](ctx context.Context, q querier, scan func(scanner) (T, error), query string, args ...any) ([]T, error) {
	all := []T{}
	err := each(ctx, q, func(row scanner) error {
		one, err := scan(row)
		all = append(all, one)
		return err
	}, query, args...)
	return all, err
}

// one reads a single row; an absent one is ErrNotFound with the given text.
func one[T any](ctx context.Context, q querier, scan func(scanner) (T, error), absent string, query string, args ...any) (T, error) {
	row, err := scan(q.QueryRowContext(ctx, query, args...))
	if errors.Is(err, sql.ErrNoRows) {
		return row, fmt.Errorf("%w: %s", ErrNotFound, absent)
	}
	return row, err
}

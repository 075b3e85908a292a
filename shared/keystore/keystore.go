// Package keystore keeps tenants, plans, keys, bans, gateways and events in SQL. No other package
// uses these tables.
//
// A write changes the state and adds its events in one transaction. It takes a lock before it draws
// an event's ID, so IDs become visible in order, and a reader that follows the events never skips
// one. The lock is PostgreSQL's advisory transaction lock, or SQLite's write lock, which a
// transaction takes when it begins.
//
// Only the SHA-256 of a token is stored. Events and errors contain neither the token nor the hash.
// The statement that adds a key contains the hash: a PostgreSQL that logs statements logs it.
//
// A Store is safe for concurrent use by goroutines and processes.
package keystore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"petgate/shared/core/instant"
	"petgate/shared/database"
	"petgate/shared/keystore/schema"
)

// Store reads and writes the key database. The times of gateways are by the database's clock, all
// other times by the store's clock.
type Store struct {
	db      *database.DB
	clock   func() time.Time
	random  io.Reader
	actor   string
	dialect schema.Dialect

	request *Request // of the next change; nil: it has none

	seeks   bool          // Seek was called
	seekFor time.Duration // given to Seek
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
	return &Store{db: db, clock: clock, random: random, actor: actor, dialect: schema.Of(db.Dialect())}
}

// As returns a store whose events name another actor.
func (s *Store) As(actor string) *Store {
	return &Store{
		db:      s.db,
		clock:   s.clock,
		random:  s.random,
		actor:   actor,
		dialect: s.dialect,
		seeks:   s.seeks,
		seekFor: s.seekFor,
	}
}

// CheckSchema returns an error that wraps ErrSchema if the tables have a different version than
// this program needs.
func (s *Store) CheckSchema(ctx context.Context) error {
	have, want, err := s.db.Schema(ctx, schema.Migrations)
	switch {
	case err != nil:
		return Fail("check schema", err)
	case have == 0:
		err := s.db.CheckForeign(ctx)
		switch {
		case errors.Is(err, database.ErrForeign):
			return fmt.Errorf("%w: %w", ErrForeign, err)
		case errors.Is(err, database.ErrEarlier):
			return fmt.Errorf("%w: %w", ErrSchema, err)
		case err != nil:
			return Fail("check schema", err)
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
func (s *Store) CheckFile() error { return Fail("check file", s.db.CheckFile()) }

// Reopen makes sure that statements use the database's present file: see database.DB.
func (s *Store) Reopen() error { return Fail("check file", s.db.Reopen()) }

// Listen returns a listener that wakes when there may be new events.
func (s *Store) Listen() *database.Listener { return s.db.Listen(schema.Channel) }

// DB is the store's database.
func (s *Store) DB() *database.DB { return s.db }

// SQL returns a statement as the store's database gets it: see schema.Dialect.
func (s *Store) SQL(query string) string { return s.dialect.Statement(query) }

// Random is the source of the store's random numbers.
func (s *Store) Random() io.Reader { return s.random }

// Actor is the actor in the store's events.
func (s *Store) Actor() string { return s.actor }

// Now is the time by the store's clock.
func (s *Store) Now() instant.Millis { return instant.Of(s.clock()) }

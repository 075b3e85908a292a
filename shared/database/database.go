// Package database opens Petgate's databases: PostgreSQL or SQLite behind one URL.
//
// Opening is lazy: a server that is down is no error of Open but of the statements that need it, so that a program can
// start, say that it is not ready, and serve what it can. Both databases take $1 placeholders, so that one SQL text
// serves both wherever their SQL agrees.
//
// Nothing on a hot path needs a context that can be cancelled (with lib/pq it costs a goroutine per statement, and a
// cancellation costs a connection): a PostgreSQL session carries a statement_timeout, and a connection on which the
// server says nothing for a second longer than that, and a little (socket.Deadline), is given up.
//
// A *DB is safe for concurrent use. No error text of this package holds a password.
package database

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"
)

// Dialect tells the two databases apart where their SQL differs.
type Dialect uint8

// The dialects. The zero value is none.
const (
	Postgres Dialect = iota + 1
	SQLite
)

func (d Dialect) String() string {
	switch d {
	case Postgres:
		return "postgres"
	case SQLite:
		return "sqlite"
	}
	return "none"
}

// DB is a pool of connections to one database.
type DB struct {
	*sqlx.DB
	dialect Dialect
	dsn     string                      // the driver's connection string; it may hold a password
	file    string                      // SQLite: the file's path
	info    atomic.Pointer[os.FileInfo] // SQLite: which file was there last
}

// ErrURL is wrapped by errors that only another DATABASE_URL can cure.
var ErrURL = errors.New("not a usable database URL")

// ErrNoFile is wrapped by Open's error when the SQLite file does not exist.
var ErrNoFile = errors.New("no such file: `keyadmin migrate` creates it")

// The pool: enough connections to keep a server busy, few enough that a dozen processes fit PostgreSQL's default of
// 100.
const (
	connectionsMax     = 16
	connectionLifetime = 30 * time.Minute // so that load spreads again after a fail-over
)

// Open opens the database that rawURL names: `postgres://user:password@host:port/name?sslmode=…` or `sqlite:PATH`,
// whose file must exist. The PG… environment variables fill what a postgres URL leaves out. A statement_timeout in the
// URL (in milliseconds, 5000 by default) bounds every statement of a pooled connection; a transaction that needs longer
// begins with SET LOCAL statement_timeout.
func Open(rawURL string) (*DB, error) {
	return open(rawURL, false)
}

// CheckURL returns what is wrong with a URL that Open refuses, wherever it runs. It connects to nothing.
func CheckURL(rawURL string) error {
	db, err := open(rawURL, false)
	if err == nil {
		return db.Close()
	}
	if !errors.Is(err, ErrURL) {
		return nil
	}
	return err
}

// OpenOrCreate is Open, but a missing SQLite file is created (mode 0600), its directory too.
func OpenOrCreate(rawURL string) (*DB, error) {
	return open(rawURL, true)
}

func open(rawURL string, create bool) (*DB, error) {
	scheme, path, _ := strings.Cut(rawURL, ":")
	switch strings.ToLower(scheme) {
	case "postgres", "postgresql":
		return openPostgres(rawURL)
	case "sqlite":
		return openSQLite(path, create)
	}
	return nil, fmt.Errorf("%w: begin it with postgres:// or with sqlite: and a path", ErrURL)
}

// Dialect says which database this is.
func (d *DB) Dialect() Dialect { return d.dialect }

// Check asks the database for a sign of life; it may take as long as a statement may. A SQLite file that was deleted or
// replaced would go on answering to those who have it open, and lose what they write: Check fails then, and lets go of
// it.
func (d *DB) Check() error {
	if d.dialect == SQLite {
		if err := d.sameFile(); err != nil {
			d.SetMaxIdleConns(0) // closes those that are idle
			d.SetMaxIdleConns(sqliteConnectionsMax)
			return fmt.Errorf("check the database: %w", &connectError{err})
		}
	}
	if _, err := d.Exec(`SELECT 1`); err != nil {
		return fmt.Errorf("check the database: %w", err)
	}
	return nil
}

// Redact returns rawURL as logs may show it: without the password and without parameters.
func Redact(rawURL string) string {
	if strings.HasPrefix(rawURL, "sqlite:") {
		return rawURL
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return "(not a URL)" // not its text: what cannot be parsed cannot be stripped of a password either
	}
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if u.User != nil {
		shown.User = url.User(u.User.Username())
	}
	return shown.String()
}

// connectError marks a failure to get a connection at all: whatever its cause, the database is unavailable.
type connectError struct{ err error }

func (e *connectError) Error() string { return "connect: " + e.err.Error() }
func (e *connectError) Unwrap() error { return e.err }

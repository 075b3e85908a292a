// Package database opens Petgate's databases: PostgreSQL or SQLite behind one URL.
//
// Open does not connect. If the server is down, Open succeeds and statements fail, so a program can
// start and report that it is not ready. Both databases use $1 placeholders, so one SQL text serves
// both where their SQL agrees.
//
// Statements need no context that can be cancelled: with lib/pq such a context costs a goroutine
// per statement, and a cancellation costs the connection. Instead, a PostgreSQL session has a
// statement_timeout, and a connection is closed if the server is silent for about a second longer.
//
// A *DB is safe for concurrent use. No error of this package contains a password.
package database

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"
)

// Dialect is the kind of a database, for SQL that differs.
type Dialect uint8

// The dialects. The zero value is none.
const (
	Postgres Dialect = iota + 1
	SQLite
)

func (d Dialect) String() string { return [...]string{"none", "postgres", "sqlite"}[d] }

// DB is a pool of connections to one database.
type DB struct {
	*sqlx.DB
	dialect Dialect
	dsn     string                      // the driver's connection string; it may contain a password
	file    string                      // SQLite: the file's path
	info    atomic.Pointer[os.FileInfo] // SQLite: the file at the last check
	files   atomic.Int64                // SQLite: how often a check has found the file removed or replaced

	prepared sync.Map // *sqlx.Stmt by query
}

// ErrURL is wrapped by errors that only another DATABASE_URL can solve.
var ErrURL = errors.New("invalid database URL")

// ErrNoFile is wrapped by Open's error when the SQLite file does not exist.
var ErrNoFile = errors.New("no such file: `keyadmin migrate` creates it")

// The pool has enough connections to keep a server busy, and few enough for several processes on
// PostgreSQL's default of 100.
const (
	connectionsMax     = 16
	connectionLifetime = 30 * time.Minute // so that the load is spread again after a fail-over
)

// Open opens the database that rawURL names: `sqlite:PATH`, whose file must exist, or
// `postgres://user:password@host:port/name?sslmode=…`. The PG… environment variables fill what a
// postgres URL leaves out.
//
// A statement_timeout in the URL, in milliseconds, bounds every statement of a pooled connection.
// Without it, the limit is 5 s. A transaction that needs longer begins with SET LOCAL
// statement_timeout.
func Open(rawURL string) (*DB, error) {
	return open(rawURL, false, false)
}

// OpenPatient is like Open, or like OpenOrCreate if create is true, but no statement has a time
// limit. It is for commands that copy whole tables, and that a person can interrupt.
func OpenPatient(rawURL string, create bool) (*DB, error) {
	return open(rawURL, create, true)
}

// CheckURL returns an error for a URL that Open would refuse on any host. It connects to nothing.
func CheckURL(rawURL string) error {
	db, err := open(rawURL, false, false)
	if err == nil {
		return db.Close()
	}
	if !errors.Is(err, ErrURL) {
		return nil
	}
	return err
}

// OpenOrCreate is like Open, but creates a missing SQLite file (mode 0600) and its directory.
func OpenOrCreate(rawURL string) (*DB, error) {
	return open(rawURL, true, false)
}

// open opens a database. If patient, PostgreSQL has no time limits.
func open(rawURL string, create, patient bool) (*DB, error) {
	scheme, path, _ := strings.Cut(rawURL, ":")
	switch strings.ToLower(scheme) {
	case "postgres", "postgresql":
		return openPostgres(rawURL, patient)
	case "sqlite":
		return openSQLite(path, create)
	}
	return nil, fmt.Errorf("%w: it must begin with postgres://, or with sqlite: and a path", ErrURL)
}

// Dialect says which database this is.
func (d *DB) Dialect() Dialect { return d.dialect }

// Check asks the database for a response. It may take as long as any statement. It fails if
// CheckFile does.
func (d *DB) Check() error {
	if err := d.CheckFile(); err != nil {
		return err
	}
	if _, err := d.Exec(`SELECT 1`); err != nil {
		return fmt.Errorf("check the database: %w", err)
	}
	return nil
}

// CheckFile fails if a SQLite file was removed, or replaced since the last check. Connections to
// the old file are not used again: statements on them would still work, but their writes would be
// lost. It costs one system call, and nothing with PostgreSQL.
func (d *DB) CheckFile() error {
	if d.dialect != SQLite {
		return nil
	}
	if err := d.sameFile(); err != nil {
		d.files.Add(1)
		d.SetMaxIdleConns(0) // closes the idle connections
		d.SetMaxIdleConns(sqliteConnectionsMax)
		return fmt.Errorf("check the database: %w", err)
	}
	return nil
}

// Reopen makes sure that statements use the present SQLite file: after a replacement of the file,
// connections to the old one are closed. It fails if there is no file.
func (d *DB) Reopen() error {
	_ = d.CheckFile() // tells of a replacement once, and closes the connections
	return d.CheckFile()
}

// Redact returns rawURL for logs, without the password and the parameters.
func Redact(rawURL string) string {
	if strings.HasPrefix(rawURL, "sqlite:") {
		return rawURL
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return "(not a URL)" // the text itself may contain a password that cannot be found
	}
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if u.User != nil {
		shown.User = url.User(u.User.Username())
	}
	return shown.String()
}

// connectError marks a failure to connect. Whatever its cause, the database is unavailable.
type connectError struct {
	file string // SQLite: its path
	err  error
}

func (e *connectError) Error() string {
	if e.file != "" {
		return "open " + e.file + ": " + e.err.Error()
	}
	return "connect: " + e.err.Error()
}

func (e *connectError) Unwrap() error { return e.err }

package database

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"time"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"petgate/shared/certificate"
)

// IsUnavailable reports whether err means that the database cannot be reached, is damaged or cannot
// respond at the moment, so that the same statement may succeed when this has changed. It is
// unknown whether the statement took effect.
func IsUnavailable(err error) bool {
	var connecting *connectError
	var file *fileError
	var network net.Error
	if errors.As(err, &connecting) || errors.As(err, &file) || errors.As(err, &network) {
		return true
	}
	for _, lost := range []error{
		driver.ErrBadConn, io.EOF, io.ErrUnexpectedEOF, sql.ErrConnDone, context.DeadlineExceeded,
	} {
		if errors.Is(err, lost) {
			return true
		}
	}
	var p *pq.Error
	if errors.As(err, &p) {
		switch p.Code.Class() {
		case "08", // connection exception
			"40", // deadlock, serialization failure
			"53", // out of disk, memory or connections
			"55", // a lock is not available
			"57", // statement timeout, shutdown, crash
			"58": // I/O error
			return true
		}
		return false
	}
	switch sqliteCode(err) & 0xff {
	case sqlite3.SQLITE_BUSY,
		sqlite3.SQLITE_LOCKED,
		sqlite3.SQLITE_IOERR,
		sqlite3.SQLITE_CANTOPEN,
		sqlite3.SQLITE_FULL,
		sqlite3.SQLITE_NOMEM,
		sqlite3.SQLITE_PROTOCOL,
		sqlite3.SQLITE_INTERRUPT,
		sqlite3.SQLITE_CORRUPT,
		sqlite3.SQLITE_NOTADB:
		return true
	}
	return false
}

// NeedsOperator reports whether a statement failed for a cause that a working connection does not
// show and that does not end by itself: a full disk, a damaged file, a missing right, a read-only
// database.
func NeedsOperator(err error) bool {
	switch sqliteCode(err) & 0xff {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return true
	}
	return IsFull(err) || IsReadOnly(err) || IsDenied(err)
}

// IsAnswer reports whether PostgreSQL has answered a statement with this error, so the statement
// had no effect.
func IsAnswer(err error) bool {
	var p *pq.Error
	return errors.As(err, &p)
}

// IsFull reports whether the disk of the database is full. Nothing was stored.
func IsFull(err error) bool {
	return pq.As(err, pqerror.DiskFull) != nil || sqliteCode(err)&0xff == sqlite3.SQLITE_FULL
}

// IsDenied reports whether err means that the role lacks a right.
func IsDenied(err error) bool { return pq.As(err, pqerror.InsufficientPrivilege) != nil }

// Cure says what is wrong and what an operator can do about it. It is "" if none is known.
func Cure(err error) string {
	var file *fileError
	if errors.As(err, &file) {
		return "put the file back with its -wal and -shm; or move these two away, " +
			"and then restore a backup or create an empty database with `keyadmin migrate`"
	}
	var p *pq.Error
	if errors.As(err, &p) && curesOfPostgres[p.Code] != "" {
		return curesOfPostgres[p.Code]
	}
	if cure := certificate.Cure(err, time.Now()); cure != "" {
		return cure
	}
	if cure := curesOfSQLite[sqliteCode(err)&0xff]; cure != "" {
		return cure
	}
	switch {
	case errors.Is(err, pq.ErrSSLNotSupported):
		return "the server accepts only connections without TLS: turn TLS on there, " +
			"or append ?sslmode=disable to DATABASE_URL if nobody else can read the network"
	case IsReadOnly(err):
		return "it accepts no writes: point DATABASE_URL at the primary, or make the file writable"
	case IsUnavailable(err):
		return "check that it is running and that DATABASE_URL is right"
	}
	return ""
}

// Explain puts the cure of err before its text. It changes nothing if there is none, or if Explain
// has already put it there.
func Explain(err error) error {
	var before *explainedError
	cure := Cure(err)
	if cure == "" || errors.As(err, &before) {
		return err
	}
	return &explainedError{cure, err}
}

type explainedError struct {
	cure string
	err  error
}

func (e *explainedError) Error() string { return e.cure + ": " + e.err.Error() }
func (e *explainedError) Unwrap() error { return e.err }
func (e *explainedError) Cure() string  { return e.cure }

const diskIsFull = "the disk of the database is full: make room"

const (
	tryAgain = "another transaction was in the way: try again"
	refused  = "the server refuses the user or the password: correct DATABASE_URL"
	locked   = "another program holds the SQLite file's lock: find it, for example with lsof"
)

// The errors of a server that can be reached (PostgreSQL, appendix A).
var curesOfPostgres = map[pqerror.Code]string{
	pqerror.DiskFull: diskIsFull,
	"57014": "it took longer than statement_timeout: ask for less, such as a shorter time, " +
		"or set statement_timeout=MILLISECONDS in DATABASE_URL",
	"53300": "the server has its maximum of connections: raise max_connections, or lower those of its clients",
	"3D000": "the server has no such database: create it, or correct DATABASE_URL",
	"28P01": refused,
	"28000": refused,
	"40001": tryAgain,
	"40P01": tryAgain,
	"55P03": "another transaction holds a lock: find it in pg_stat_activity, or try again",
	"42P07": "another application's table has this name: " +
		"create a database for Petgate alone, and correct DATABASE_URL",
	"42501": "the role may not do this: grant it the rights in deploy/docker/roles.sql, or correct DATABASE_URL",
}

var curesOfSQLite = map[int]string{
	sqlite3.SQLITE_FULL: diskIsFull,
	sqlite3.SQLITE_CORRUPT: "the SQLite file is damaged: stop all programs that use it, " +
		"move the file, its -wal and its -shm away, and restore a backup",
	sqlite3.SQLITE_NOTADB: "the file is not a SQLite database, or it is damaged: correct DATABASE_URL, " +
		"or move the file, its -wal and its -shm away, and restore a backup",
	sqlite3.SQLITE_CANTOPEN: "the SQLite file cannot be opened: check its path in DATABASE_URL, " +
		"and that this user may read and write it and its directory",
	sqlite3.SQLITE_IOERR:  "the disk fails or is full: check it, and its limits for this user",
	sqlite3.SQLITE_BUSY:   locked,
	sqlite3.SQLITE_LOCKED: locked,
}

// IsUnique reports whether err means that a row with the same unique value exists.
func IsUnique(err error) bool {
	if pq.As(err, pqerror.UniqueViolation) != nil {
		return true
	}
	code := sqliteCode(err)
	return code == sqlite3.SQLITE_CONSTRAINT_UNIQUE || code == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY
}

// IsTimeout reports whether err means that a statement of PostgreSQL took longer than it may.
func IsTimeout(err error) bool { return pq.As(err, pqerror.QueryCanceled) != nil }

// IsForeignKey reports whether err means that a row refers to a row that does not exist.
func IsForeignKey(err error) bool {
	return pq.As(err, pqerror.ForeignKeyViolation) != nil || sqliteCode(err) == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY
}

// IsReadOnly reports whether err means that the database is read-only, such as a PostgreSQL standby
// or a write-protected file.
func IsReadOnly(err error) bool {
	return pq.As(err, pqerror.ReadOnlySQLTransaction) != nil || sqliteCode(err)&0xff == sqlite3.SQLITE_READONLY
}

// sqliteCode returns SQLite's extended result code, 0 for any other error.
func sqliteCode(err error) int {
	var s *sqlite.Error
	if errors.As(err, &s) {
		return s.Code()
	}
	return 0
}

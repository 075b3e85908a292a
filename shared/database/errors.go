package database

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// IsUnavailable reports whether err means that the database cannot be reached or cannot respond at the moment, so that the same
// statement may succeed later. It is unknown whether the statement took effect.
func IsUnavailable(err error) bool {
	var connecting *connectError
	var network net.Error
	if errors.As(err, &connecting) || errors.As(err, &network) {
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
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL,
		sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_INTERRUPT:
		return true
	}
	return false
}

// IsUnique reports whether err means that a row with the same unique value exists.
func IsUnique(err error) bool {
	if pq.As(err, pqerror.UniqueViolation) != nil {
		return true
	}
	code := sqliteCode(err)
	return code == sqlite3.SQLITE_CONSTRAINT_UNIQUE || code == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY
}

// IsForeignKey reports whether err means that a row refers to a row that does not exist.
func IsForeignKey(err error) bool {
	return pq.As(err, pqerror.ForeignKeyViolation) != nil || sqliteCode(err) == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY
}

// IsReadOnly reports whether err means that the database is read-only, such as a PostgreSQL standby or a write-protected file.
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

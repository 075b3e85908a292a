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

// IsUnavailable reports whether err says that the database cannot be reached or cannot answer now, and that the same
// statement may well succeed later. Whether the statement took effect is not known.
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

// IsUnique reports whether err says that a row of the same unique value exists.
func IsUnique(err error) bool {
	if pq.As(err, pqerror.UniqueViolation) != nil {
		return true
	}
	code := sqliteCode(err)
	return code == sqlite3.SQLITE_CONSTRAINT_UNIQUE || code == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY
}

// IsForeignKey reports whether err says that a row names another one that does not exist.
func IsForeignKey(err error) bool {
	return pq.As(err, pqerror.ForeignKeyViolation) != nil || sqliteCode(err) == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY
}

// IsReadOnly reports whether err says that the database takes no writes now: a PostgreSQL standby, a write-protected
// file.
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

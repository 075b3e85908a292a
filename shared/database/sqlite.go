package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/jmoiron/sqlx"
	"golang.org/x/sys/unix"
	"modernc.org/sqlite"
)

const (
	// SQLite has one writer at a time; more connections of a process would only wait for its lock.
	sqliteConnectionsMax = 8

	// SQLite's lock has no queue: a waiting writer tries again every 100 ms. Among processes that
	// write without a pause, a try succeeds one time in twenty. In 5 s all 50 tries fail in 8 of
	// 100 cases; in 30 s practically never.
	sqliteBusyTimeout = 30 * time.Second

	fileLockRetry = 10 * time.Millisecond
)

func openSQLite(path string, create bool) (*DB, error) {
	if path == "" || path == ":memory:" {
		return nil, fmt.Errorf("%w: name a file, as in sqlite:var/petgate.db", ErrURL)
	}
	path = filepath.Clean(path)
	d := &DB{dialect: SQLite, file: path}
	// Write-ahead logging lets readers work during a write. A transaction takes the write lock when
	// it begins. A transaction that reads first and writes later would fail with "busy" at once
	// when another one has written in between, whatever the timeout.
	d.dsn = fmt.Sprintf("file:%s?mode=rw&_busy_timeout=%d&_journal_mode=WAL&_foreign_keys=1&_txlock=immediate",
		(&url.URL{Path: path}).EscapedPath(), sqliteBusyTimeout.Milliseconds())
	c, err := sqlite.NewConnector(d.dsn)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	pool := sql.OpenDB(connector{c, d})
	pool.SetMaxOpenConns(sqliteConnectionsMax)
	pool.SetMaxIdleConns(sqliteConnectionsMax)
	// The driver's name only selects sqlx's placeholders: $1, which SQLite accepts too.
	d.DB = sqlx.NewDb(pool, "postgres")

	if create {
		err = d.createFile()
	}
	if err == nil {
		err = d.sameFile()
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNoFile
	}
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("open sqlite:%s: %w", path, err)
	}
	return d, nil
}

// sameFile returns an error if the file is missing or is not the file of the last check.
func (d *DB) sameFile() error {
	info, err := os.Stat(d.file)
	if errors.Is(err, fs.ErrNotExist) && d.info.Load() != nil {
		return &fileError{d.file, "was removed while it was in use", err}
	}
	if err != nil {
		return &fileError{d.file, "cannot be read", err}
	}
	if before := d.info.Swap(&info); before != nil && !os.SameFile(*before, info) {
		return &fileError{d.file, "was replaced while it was in use", nil}
	}
	return nil
}

// fileError means that the file of the connections was removed or replaced.
type fileError struct {
	file, what string
	err        error // may be nil
}

func (e *fileError) Error() string {
	if e.err == nil {
		return e.file + " " + e.what
	}
	return e.file + " " + e.what + ": " + e.err.Error()
}

func (e *fileError) Unwrap() error { return e.err }

// createFile creates an empty database. The first connection turns on write-ahead logging. If two
// connections do this together, one fails with "busy" at once; the lock prevents it.
func (d *DB) createFile() error {
	if err := os.MkdirAll(filepath.Dir(d.file), 0o755); err != nil {
		return err
	}
	unlock, err := d.lockFile(context.Background())
	if err != nil {
		return err
	}
	defer unlock()
	f, err := os.OpenFile(d.file, os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return d.Ping()
}

// lockFile prevents other processes and goroutines from creating or migrating databases in the same
// directory until unlock. It does not lock the file itself: SQLite has its own locks there, and
// closing any descriptor of the file would drop them.
func (d *DB) lockFile(ctx context.Context) (unlock func(), err error) {
	dir, err := os.Open(filepath.Dir(d.file))
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { dir.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			dir.Close()
			return nil, fmt.Errorf("lock %s: %w", filepath.Dir(d.file), err)
		}
		select {
		case <-time.After(fileLockRetry):
		case <-ctx.Done():
			dir.Close()
			return nil, fmt.Errorf("lock %s: %w", filepath.Dir(d.file), ctx.Err())
		}
	}
}

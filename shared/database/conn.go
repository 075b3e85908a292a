package database

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
)

// connector opens conns and marks errors of connecting.
type connector struct {
	driver.Connector
	db *DB
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	files := c.db.files.Load() // first: the file may be replaced meanwhile
	made, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, &connectError{c.db.file, err}
	}
	return &conn{driverConn: made.(driverConn), db: c.db, files: files, statements: map[string]*statement{}}, nil
}

// driverConn is what database/sql uses of the connections of both drivers.
type driverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.Pinger
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

// conn is a driver's connection with the statements that DB.Each has prepared on it.
type conn struct {
	driverConn
	db         *DB
	files      int64 // DB.files when it was opened
	statements map[string]*statement
	args       []driver.NamedValue // of the running statement
}

// BeginTx begins an ordinary transaction with a plain BEGIN. Lib/pq's BeginTx says READ WRITE, which would allow writes to
// a database whose owner has set default_transaction_read_only.
func (c *conn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	if options == (driver.TxOptions{}) {
		return c.Begin() // the only way to a plain BEGIN; database/sql itself ends the transaction with ctx
	}
	return c.driverConn.BeginTx(ctx, options)
}

// isStale reports whether the connection has a SQLite file open that was removed or replaced. What it writes would be lost.
func (c *conn) isStale() bool { return c.files != c.db.files.Load() }

// IsValid keeps a stale connection out of the pool.
func (c *conn) IsValid() bool { return !c.isStale() && c.driverConn.IsValid() }

// ResetSession keeps a stale connection from being used again.
func (c *conn) ResetSession(ctx context.Context) error {
	if c.isStale() {
		return driver.ErrBadConn
	}
	return c.driverConn.ResetSession(ctx)
}

// CheckNamedValue lets lib/pq convert arguments in its own way.
func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.driverConn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// statement is prepared on one connection.
type statement struct {
	driver.StmtQueryContext
	row []driver.Value
}

// Each runs a query and passes every row to f as the driver has decoded it. f must not keep the slice. The statement is
// prepared once on each connection. Use it for queries that run thousands of times a second: sql.Rows locks and converts for
// each row and column, which costs as much as decoding them.
//
// If the connection breaks before the first row, Each repeats the query on another connection; Once does not.
func (d *DB) Each(ctx context.Context, f func(row []driver.Value) error, query string, args ...driver.Value) error {
	for attempt := 0; ; attempt++ {
		err := d.Once(ctx, f, query, args...)
		// All connections of the pool may be broken, and each failure removes one.
		if !errors.Is(err, driver.ErrBadConn) || attempt > d.Stats().MaxOpenConnections {
			return err
		}
	}
}

// Once is Each for statements that change something: if the connection breaks, the statement may have been executed.
func (d *DB) Once(ctx context.Context, f func(row []driver.Value) error, query string, args ...driver.Value) error {
	pooled, err := d.Conn(ctx)
	if err != nil {
		return err
	}
	defer pooled.Close()
	return pooled.Raw(func(c any) error { return c.(*conn).each(ctx, f, query, args) })
}

func (c *conn) each(ctx context.Context, f func([]driver.Value) error, query string, args []driver.Value) error {
	s, err := c.statement(ctx, query)
	if err != nil {
		return err
	}
	c.args = c.args[:0]
	for i, value := range args {
		c.args = append(c.args, driver.NamedValue{Ordinal: i + 1, Value: value})
	}
	rows, err := s.QueryContext(ctx, c.args)
	if err != nil {
		return err
	}
	err = s.pass(rows, f)
	if closeErr := rows.Close(); err == io.EOF {
		err = closeErr
	}
	return err
}

func (c *conn) statement(ctx context.Context, query string) (*statement, error) {
	if s := c.statements[query]; s != nil {
		return s, nil
	}
	prepared, err := c.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	s := &statement{StmtQueryContext: prepared.(driver.StmtQueryContext)}
	c.statements[query] = s
	return s, nil
}

// pass passes the rows to f. Its error is io.EOF after the last one.
func (s *statement) pass(rows driver.Rows, f func([]driver.Value) error) (err error) {
	if s.row == nil {
		s.row = make([]driver.Value, len(rows.Columns()))
	}
	for begun := false; err == nil; begun = true {
		if err = rows.Next(s.row); err == nil {
			err = f(s.row)
		} else if begun && errors.Is(err, driver.ErrBadConn) {
			err = fmt.Errorf("the connection broke while rows were read: %w", io.ErrUnexpectedEOF) // not repeated
		}
	}
	return err
}

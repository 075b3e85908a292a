package database

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
)

// Each is an argument of a prepared statement's Exec, after those that the statement has: it is given each row of the
// answer as the driver has decoded it. It must not keep the slice. It is for lists that are asked for thousands of times a
// second: Rows locks and converts for each row and column, which costs as much as decoding them.
//
// As Exec may send a statement again whose connection broke, so it does here, but only before the first row.
type Each func(row []driver.Value) error

// connector marks the errors of connecting, and makes conns.
type connector struct{ driver.Connector }

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	made, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, &connectError{err}
	}
	return conn{made.(driverConn)}, nil
}

// driverConn is what database/sql makes use of in the connections of both drivers.
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

// conn is a connection whose prepared statements take an Each.
type conn struct{ driverConn }

func (c conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	prepared, err := c.driverConn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return &statement{driverStmt: prepared.(driverStmt), conn: c}, nil
}

// CheckNamedValue lets lib/pq convert arguments in its own way.
func (c conn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.driverConn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// driverStmt is what database/sql makes use of in the statements of both drivers.
type driverStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

type statement struct {
	driverStmt
	conn conn
	each Each // of the execution that begins: the one for which arguments are checked
	row  []driver.Value
}

// CheckNamedValue is asked about each argument before an execution.
func (s *statement) CheckNamedValue(v *driver.NamedValue) error {
	if v.Ordinal == 1 { // an execution may have ended before it began
		s.each = nil
	}
	if each, ok := v.Value.(Each); ok {
		s.each = each
		return driver.ErrRemoveArgument
	}
	return s.conn.CheckNamedValue(v)
}

func (s *statement) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	each := s.each
	if each == nil {
		return s.driverStmt.ExecContext(ctx, args)
	}
	s.each = nil
	rows, err := s.driverStmt.QueryContext(ctx, args)
	if err != nil {
		return nil, err
	}
	err = s.give(rows, each)
	if closeErr := rows.Close(); err == io.EOF {
		err = closeErr
	}
	return driver.ResultNoRows, err
}

// QueryContext has no use for an Each: it returns Rows.
func (s *statement) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if s.each != nil {
		s.each = nil
		return nil, errors.New("database: Each is an argument of Exec, not of Query")
	}
	return s.driverStmt.QueryContext(ctx, args)
}

// give gives each the rows. Its error is io.EOF after the last one. A panic becomes an error: database/sql would never get
// the connection back.
func (s *statement) give(rows driver.Rows, each Each) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("database: panic in Each: %v", panicked)
		}
	}()
	if s.row == nil {
		s.row = make([]driver.Value, len(rows.Columns()))
	}
	for begun := false; err == nil; begun = true {
		if err = rows.Next(s.row); err == nil {
			err = each(s.row)
		} else if begun && errors.Is(err, driver.ErrBadConn) {
			err = io.ErrUnexpectedEOF
		}
	}
	return err
}

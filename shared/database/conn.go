package database

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
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
	return &conn{driverConn: made.(driverConn), db: c.db, files: files}, nil
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

// conn is a driver's connection.
type conn struct {
	driverConn
	db    *DB
	files int64 // DB.files when it was opened
}

// BeginTx begins an ordinary transaction with a plain BEGIN. Lib/pq's BeginTx says READ WRITE,
// which would allow writes to a database whose owner has set default_transaction_read_only.
func (c *conn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	if options == (driver.TxOptions{}) {
		return c.Begin() // the only way to a plain BEGIN; database/sql itself ends the transaction with ctx
	}
	return c.driverConn.BeginTx(ctx, options)
}

// isStale reports whether the connection's SQLite file was removed or replaced. What it writes
// would be lost.
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

// Prepared runs a query that is prepared once on each connection. An unprepared one takes lib/pq
// two round trips, and the server plans it each time. Not in a transaction: it may need a second
// connection.
func (d *DB) Prepared(ctx context.Context, query string, args ...any) (*sqlx.Rows, error) {
	known, isKnown := d.prepared.Load(query)
	if !isKnown {
		made, err := d.PreparexContext(ctx, query)
		if err != nil {
			return nil, err
		}
		known, isKnown = d.prepared.LoadOrStore(query, made)
		if isKnown {
			made.Close() // another goroutine was faster
		}
	}
	return known.(*sqlx.Stmt).QueryxContext(ctx, args...)
}

// EachRow passes every row to f, as the driver has decoded it, and closes rows. f must not keep the
// slice. It is for many rows: StructScan takes several times as long.
func EachRow(rows *sqlx.Rows, f func(row []any) error) error {
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return err
	}
	row, targets := make([]any, len(names)), make([]any, len(names))
	for i := range row {
		targets[i] = &row[i]
	}
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		if err := f(row); err != nil {
			return err
		}
	}
	return rows.Err()
}

// BeginWith begins a transaction with a statement that has no arguments. The caller ends it on the
// connection.
func (d *DB) BeginWith(ctx context.Context, query string) (*sqlx.Conn, error) {
	for tries := connectionsMax; ; tries-- { // idle connections may have broken
		on, err := d.Connx(ctx)
		if err != nil {
			return nil, err
		}
		_, err = on.ExecContext(ctx, query)
		if err == nil {
			return on, nil
		}
		Rollback(on)
		on.Close()
		if tries == 0 || !errors.Is(err, driver.ErrBadConn) {
			return nil, err
		}
	}
}

// Rollback undoes what a connection has begun.
func Rollback(on *sqlx.Conn) {
	if _, err := on.ExecContext(context.Background(), "ROLLBACK"); err != nil {
		_ = on.Raw(func(any) error { return driver.ErrBadConn }) // the pool closes it
	}
}

// Statement is a statement with its arguments: integers and texts.
type Statement struct {
	Query string
	Args  []any
}

// Run runs statements, on PostgreSQL in one round trip. It returns the largest number in their
// rows, which have one column.
func (d *DB) Run(ctx context.Context, on sqlx.QueryerContext, all ...Statement) (largest int64, err error) {
	if d.dialect == Postgres {
		texts := make([]string, len(all))
		for i, s := range all {
			texts[i] = d.Inline(s.Query, s.Args...).Query
		}
		all = []Statement{{Query: strings.Join(texts, ";\n")}}
	}
	for _, s := range all {
		rows, err := on.QueryContext(ctx, s.Query, s.Args...)
		if err != nil {
			return 0, err
		}
		defer rows.Close()
		for more := true; more; more = rows.NextResultSet() {
			for rows.Next() {
				var n int64
				if err := rows.Scan(&n); err != nil {
					return 0, err
				}
				largest = max(largest, n)
			}
		}
		if err := rows.Err(); err != nil {
			return 0, err
		}
	}
	return largest, nil
}

// Inline returns a statement for PostgreSQL with its arguments in its text, and any other as it is.
// Only a text without arguments can have several statements, and only then does the server plan for
// the values themselves.
func (d *DB) Inline(query string, args ...any) Statement {
	if d.dialect != Postgres {
		return Statement{query, args}
	}
	var places []string
	for i, arg := range slices.Backward(args) { // $10 before $1
		value, err := driver.DefaultParameterConverter.ConvertValue(arg)
		if err != nil {
			panic("bug: " + err.Error())
		}
		literal := fmt.Sprintf("(%v)", value) // after a minus, a negative number without parentheses would be a comment
		if text, isText := value.(string); isText {
			literal = pq.QuoteLiteral(text)
		}
		places = append(places, fmt.Sprintf("$%d", i+1), literal)
	}
	return Statement{Query: strings.NewReplacer(places...).Replace(query)}
}

package database

import (
	"bytes"
	"context"
	"fmt"

	"github.com/jmoiron/sqlx"
)

// Rows passes the rows of tables to f, table by table, parents before children. f must not keep the
// line. A database has rows, and so has a file of lines.
type Rows func(f func(t Table, line []byte) error) error

// RowsOf returns the rows of tables in a database.
func RowsOf(ctx context.Context, q sqlx.QueryerContext, tables []Table) Rows {
	return func(f func(Table, []byte) error) error {
		for _, t := range tables {
			if err := t.each(ctx, q, func(line []byte) error { return f(t, line) }); err != nil {
				return err
			}
		}
		return nil
	}
}

// Pass passes all rows to f and returns the sum of each table that has rows.
func (r Rows) Pass(f func(t Table, line []byte) error) (map[string]Sum, error) {
	sums := map[string]Sum{}
	err := r(func(t Table, line []byte) error {
		sum := sums[t.Name]
		sum.Add(line)
		sums[t.Name] = sum
		return f(t, line)
	})
	return sums, err
}

// insertBytes is how much JSON one statement inserts: small against a process's memory, large
// against a round trip.
const insertBytes = 256 << 10

// Insert inserts the rows of a table into the table whose name is prefix followed by that table's
// name.
func (d *DB) Insert(ctx context.Context, to sqlx.ExecerContext, prefix string, rows Rows) error {
	var table Table
	var lines bytes.Buffer // a JSON array of rows that wait, still without its end
	insert := func() error {
		if lines.Len() == 0 {
			return nil
		}
		lines.WriteByte(']')
		_, err := to.ExecContext(ctx, table.insertion(d.dialect, prefix+table.Name), lines.String())
		lines.Reset()
		if err != nil {
			return fmt.Errorf("write %s%s: %w", prefix, table.Name, err)
		}
		return nil
	}
	_, err := rows.Pass(func(t Table, line []byte) error {
		if t.Name != table.Name || lines.Len() >= insertBytes {
			if err := insert(); err != nil {
				return err
			}
			table = t
		}
		before := byte(',')
		if lines.Len() == 0 {
			before = '['
		}
		lines.WriteByte(before)
		lines.Write(line)
		return nil
	})
	if err == nil {
		err = insert()
	}
	return err
}

// Replace puts rows in place of those of the tables. Nothing may refer to the rows that it deletes.
func (d *DB) Replace(ctx context.Context, to sqlx.ExecerContext, tables []Table, rows Rows) error {
	for _, table := range tables {
		if _, err := to.ExecContext(ctx, "DELETE FROM "+table.Name); err != nil {
			return err
		}
	}
	return d.Insert(ctx, to, "", rows)
}

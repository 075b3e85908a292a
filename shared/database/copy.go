package database

import (
	"context"
	"errors"
	"fmt"

	"github.com/jmoiron/sqlx"
)

// ErrInUse means that a copy was refused, because the tables hold other rows.
var ErrInUse = errors.New("the database is not empty")

// Copied says what a copy has found in a table.
type Copied struct {
	Table string
	Sum   Sum
}

// Copy copies an owner's rows from a SQLite file to a PostgreSQL database.
type Copy struct {
	From, To *DB
	Of       Migrations
	DryRun   bool                           // does everything except the commit
	Progress func(table string, rows int64) // called now and then with the number of rows written; may be nil
}

// progressEvery is the number of rows between two calls of Progress.
const progressEvery = 1000

// Run copies all tables in one transaction, and commits only if the numbers of rows and the checksums are the same in both. Nobody else
// can write to the file meanwhile, and Run does not write to it. The tables must exist, and the target's must be as the migrations left
// them. done: there is nothing to do, because the target has the same rows already, as after an earlier Run. Otherwise, rows in the
// target are ErrInUse. Open To with OpenPatient.
func (c Copy) Run(ctx context.Context) (copied []Copied, done bool, err error) {
	if copied, done, err = c.run(ctx); err != nil {
		return nil, false, fmt.Errorf("copy %s: %w", c.Of.Table, Explain(err))
	}
	return copied, done, nil
}

func (c Copy) run(ctx context.Context) (copied []Copied, done bool, err error) {
	from, err := c.From.BeginTxx(ctx, nil) // takes the write lock
	if err != nil {
		return nil, false, err
	}
	defer from.Rollback() // it has changed nothing
	to, err := c.To.BeginTxx(ctx, nil)
	if err != nil {
		return nil, false, err
	}
	defer to.Rollback() // after Commit it does nothing
	used, err := c.Of.InUse(ctx, to)
	if err != nil {
		return nil, false, err
	}
	for _, name := range c.Of.Tables {
		t, err := c.To.Table(ctx, name)
		if err != nil {
			return nil, false, err
		}
		one := Copied{Table: name}
		if used {
			one.Sum, err = t.SumOf(ctx, from)
		} else {
			one.Sum, err = c.table(ctx, t, from, to)
		}
		if err != nil {
			return nil, false, err
		}
		copied = append(copied, one)
		there, err := t.SumOf(ctx, to)
		switch {
		case err != nil:
			return nil, false, err
		case there == one.Sum:
		case used:
			return nil, false, fmt.Errorf("%w: %s has %d rows, which are not those of the file", ErrInUse, name, there.Rows)
		default:
			return nil, false, fmt.Errorf("%s differs after the copy: %d rows with the sum %s, and %d rows with the sum %s. Nothing was changed",
				name, one.Sum.Rows, one.Sum.Hex(), there.Rows, there.Hex())
		}
	}
	if used || c.DryRun {
		return copied, used, nil
	}
	return copied, false, to.Commit()
}

// table replaces the rows that the migrations put there.
func (c Copy) table(ctx context.Context, t Table, from, to *sqlx.Tx) (sum Sum, err error) {
	if _, err := to.ExecContext(ctx, "DELETE FROM "+t.Name); err != nil {
		return sum, err
	}
	w := t.Writer(ctx, to, c.To.dialect, t.Name)
	err = t.Each(ctx, from, func(line []byte) error {
		sum.Add(line)
		if c.Progress != nil && sum.Rows%progressEvery == 0 {
			c.Progress(t.Name, sum.Rows)
		}
		return w.Write(line)
	})
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = copySequence(ctx, t, from, to)
	}
	if err == nil && c.Progress != nil {
		c.Progress(t.Name, sum.Rows)
	}
	return sum, err
}

// copySequence continues the numbers of a table that numbers its rows itself. A number that was given once is never given again, even if
// its row was removed.
func copySequence(ctx context.Context, t Table, from, to *sqlx.Tx) error {
	var column string
	err := to.GetContext(ctx, &column, `SELECT COALESCE(MAX(attname), '') FROM pg_attribute
		WHERE attrelid = to_regclass($1) AND attidentity <> ''`, t.Name)
	if err != nil || column == "" {
		return err
	}
	var last int64
	if err := from.GetContext(ctx, &last, `SELECT COALESCE(MAX(seq), 0) FROM sqlite_sequence WHERE name = $1`, t.Name); err != nil {
		return err
	}
	// Not setval: a transaction that is rolled back does not undo it.
	_, err = to.ExecContext(ctx, fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s RESTART WITH %d", t.Name, column, last+1))
	return err
}

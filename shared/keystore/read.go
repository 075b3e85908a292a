package keystore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"

	"github.com/jmoiron/sqlx"

	"petgate/shared/database"
)

// Snapshot runs f in a transaction that sees the database as it was at one instant.
func (s *Store) Snapshot(ctx context.Context, f func(sqlx.QueryerContext) error) error {
	// Not ctx: lib/pq would keep it on the connection after this transaction, and panic in a later
	// one.
	t, err := s.db.BeginTxx(context.WithoutCancel(ctx),
		&sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return err
	}
	defer t.Rollback() // it has changed nothing
	if s.db.Dialect() == database.Postgres {
		if _, err := t.ExecContext(ctx, patiencePostgres); err != nil {
			return err
		}
	}
	return f(t)
}

// List returns the rows of a query. If there are none, the list is empty and not nil.
func List[T any](ctx context.Context, s *Store, op, query string, args ...any) ([]T, error) {
	all := []T{}
	err := s.db.SelectContext(ctx, &all, s.SQL(query), args...)
	return all, Fail(op, err)
}

// Affected reports whether a statement has changed a row.
func Affected(result sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

// Get reads one row into dest. If there is none, it returns ErrNotFound with the given text.
func Get(ctx context.Context, q sqlx.QueryerContext, dest any, absent, query string, args ...any) error {
	err := sqlx.GetContext(ctx, q, dest, query, args...)
	if errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("%w: %s", ErrNotFound, absent)
	}
	return err
}

// Stream yields the rows of a query as they are at one instant. It keeps none of them, so a list
// may have any length. A loop that ends early still waits until PostgreSQL has sent the other rows:
// give its query a limit.
func Stream[T any](ctx context.Context, s *Store, op, query string, args ...any) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		err := s.Snapshot(ctx, func(q sqlx.QueryerContext) error {
			return Each(ctx, q, func(row T) error {
				if !yield(row, nil) {
					return errEnough
				}
				return nil
			}, query, args...)
		})
		if err != nil && err != errEnough {
			var none T
			yield(none, Fail(op, err))
		}
	}
}

// errEnough ends a query whose caller wants no more rows.
var errEnough = errors.New("enough rows")

// Each calls f for every row.
func Each[T any](ctx context.Context, q sqlx.QueryerContext, f func(T) error, query string, args ...any) error {
	rows, err := q.QueryxContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var row T
		if err := rows.StructScan(&row); err != nil {
			return err
		}
		if err := f(row); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Collect returns the rows of a short list.
func Collect[T any](list iter.Seq2[T, error]) ([]T, error) {
	all := []T{}
	for row, err := range list {
		if err != nil {
			return nil, err
		}
		all = append(all, row)
	}
	return all, nil
}

// RowsText returns rows with one member, for statements that read {rows}. The values are IDs or
// names.
func RowsText[T any](member string, values []T) string {
	rows := make([]map[string]T, len(values))
	for i, v := range values {
		rows[i] = map[string]T{member: v}
	}
	return JSON(rows)
}

package keystore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jmoiron/sqlx"
)

// HasEvent reports whether there is an event of that ID and UUID. If the event existed before and
// does not exist now, the database is an older copy of itself.
func (s *Store) HasEvent(ctx context.Context, c Change, uuid string) (known bool, err error) {
	err = s.db.GetContext(ctx, &known, hasEvent, c, uuid)
	return known, Fail("find event", err)
}

// LastEvent returns the newest event's ID, or 0 before the first.
func (s *Store) LastEvent(ctx context.Context) (Change, error) {
	last, _, err := s.LastEventOf(ctx, s.db)
	return last, Fail("read the last event", err)
}

// LastEventOf returns the newest event's ID and UUID, or 0 and "" before the first.
func (s *Store) LastEventOf(ctx context.Context, q sqlx.QueryerContext) (c Change, uuid string, err error) {
	err = q.QueryRowxContext(ctx, lastEvent).Scan(&c, &uuid)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return c, uuid, err
}

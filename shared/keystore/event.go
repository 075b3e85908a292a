package keystore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jmoiron/sqlx"

	"petgate/shared/core/instant"
)

// Events lists the events since an instant, oldest first.
func (s *Store) Events(ctx context.Context, since instant.Millis) ([]Event, error) {
	events := []Event{}
	err := s.db.SelectContext(ctx, &events, eventsSince, since)
	return events, fail("list events", err)
}

// LatestEvents lists the last n events, the latest first.
func (s *Store) LatestEvents(ctx context.Context, n int) ([]Event, error) {
	events := []Event{}
	err := s.db.SelectContext(ctx, &events, eventsLatest, n)
	return events, fail("list events", err)
}

// HasEvent reports whether there is an event of that ID and UUID. If the event existed before and does not exist now, the database
// is an older copy of itself.
func (s *Store) HasEvent(ctx context.Context, c Change, uuid string) (known bool, err error) {
	err = s.db.GetContext(ctx, &known, hasEvent, c, uuid)
	return known, fail("find event", err)
}

// LastEvent returns the newest event's ID, or 0 before the first.
func (s *Store) LastEvent(ctx context.Context) (Change, error) {
	last, _, err := s.lastEvent(ctx, s.db)
	return last, fail("read the last event", err)
}

// lastEvent returns the newest event's ID and UUID, or 0 and "" before the first.
func (s *Store) lastEvent(ctx context.Context, q sqlx.QueryerContext) (c Change, uuid string, err error) {
	err = q.QueryRowxContext(ctx, lastEvent).Scan(&c, &uuid)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return c, uuid, err
}

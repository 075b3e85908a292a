package keystore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"petgate/shared/core/id"
)

// Events lists what happened at since (ms) or later, oldest first.
func (s *Store) Events(ctx context.Context, since int64) ([]Event, error) {
	events, err := list(ctx, s.db, scanEvent, eventsSince, since)
	return events, fail("list events", err)
}

func scanEvent(row scanner) (e Event, err error) {
	var tenant, key, before, after string
	err = row.Scan(&e.ID, &e.UUID, &e.At, &e.Actor, &e.Kind, &tenant, &key, &e.Plan, &before, &after)
	if err == nil && tenant != "" {
		e.Tenant, err = id.ParseTenant(tenant)
	}
	if err == nil && key != "" {
		e.Key, err = id.ParseKey(key)
	}
	if before != "" {
		e.Before = json.RawMessage(before)
	}
	if after != "" {
		e.After = json.RawMessage(after)
	}
	return e, err
}

// LastEvent returns the newest event's ID, or 0 before the first.
func (s *Store) LastEvent(ctx context.Context) (Change, error) {
	last, _, err := s.lastEvent(ctx, s.db)
	return last, fail("last event", err)
}

// lastEvent returns the highest event's ID and UUID, or 0 and "" before the first.
func (s *Store) lastEvent(ctx context.Context, q querier) (c Change, uuid string, err error) {
	err = q.QueryRowContext(ctx, lastEvent).Scan(&c, &uuid)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return c, uuid, err
}

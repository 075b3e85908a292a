package keystore

import (
	"context"
	"math"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
)

// EventFilter selects events. A zero field selects all.
type EventFilter struct {
	Since  instant.Millis
	Tenant id.Tenant // and its keys
	Key    id.Key
	Actor  string // complete, or without keyadmin:
	Kind   string // complete, or the part before its dot
}

// FindEvents lists at most n events, the latest first. Before is the event that the page before ended with; 0: begin with the latest.
func (s *Store) FindEvents(ctx context.Context, f EventFilter, before Change, n int) ([]Event, error) {
	if before == 0 {
		before = math.MaxInt64
	}
	events := []Event{}
	query, args := eventsFound, []any{before, f.Since, f.Actor, f.Kind, n}
	switch {
	case !f.Key.IsZero():
		query, args = eventsOfKey, append(args, f.Key, f.Tenant)
	case !f.Tenant.IsZero():
		query, args = eventsOfTenant, append(args, f.Tenant)
	}
	err := s.db.SelectContext(ctx, &events, query, args...)
	return events, fail("find events", err)
}

package lists

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"strings"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
)

// EventFilter selects events. A zero field selects all.
type EventFilter struct {
	Since  instant.Millis
	Tenant id.Tenant // and its keys
	Key    id.Key
	Actor  string // complete, or without keyadmin:, gateway:, operator: or console:
	Kind   string // complete, or the part before its dot
}

// Events lists the events that the filter selects and that come after an event (0: all of them),
// the oldest first.
func (s Store) Events(ctx context.Context, f EventFilter, after keystore.Change) iter.Seq2[keystore.Event, error] {
	return keystore.Stream[keystore.Event](ctx, s.Store, "list events", eventsAfter,
		after, f.Since, f.Actor, f.Kind, f.Tenant, f.Key)
}

// FindEvents lists at most n events, the latest first. before is the last event of the page before;
// 0: the list begins with the latest.
func (s Store) FindEvents(ctx context.Context, f EventFilter, before keystore.Change, n int) ([]keystore.Event, error) {
	if before == 0 {
		before = math.MaxInt64
	}
	query, args := eventsFound, []any{before, f.Since, f.Actor, f.Kind, n}
	switch {
	case !f.Key.IsZero():
		query, args = eventsOfKey, append(args, f.Key, f.Tenant)
	case !f.Tenant.IsZero():
		query, args = eventsOfTenant, append(args, f.Tenant)
	case f.Actor != "":
		actors := []any{
			f.Actor,
			"keyadmin:" + f.Actor,
			"gateway:" + f.Actor,
			"operator:" + f.Actor,
			keystore.ConsoleActor + f.Actor,
		}
		query, args = eventsOfAny("actor", len(actors)), append(args, actors...)
	case f.Kind != "":
		kinds := f.kinds()
		query, args = eventsOfAny("kind", len(kinds)), append(args, kinds...)
	}
	return keystore.List[keystore.Event](ctx, s.Store, "find events", query, args...)
}

// kinds returns the kinds that Kind selects.
func (f EventFilter) kinds() []any {
	kinds := []any{f.Kind}
	for _, kind := range keystore.EventKinds {
		if strings.HasPrefix(kind, f.Kind+".") {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// eventsOfAny returns the statement for a page of the events of which a column has one of n values:
// $6 and so on. The index on the column and the ID has the events of each value in the order of
// their IDs. So the statement reads one page of each value, and keeps the latest of all rows. The
// conditions are on pairs, and the order names the column: otherwise PostgreSQL would read all
// events by their ID until it has found enough of the value.
func eventsOfAny(column string, n int) string {
	pages := make([]string, n)
	for i := range pages {
		pages[i] = fmt.Sprintf(`SELECT * FROM (%[1]s
			WHERE (%[2]s, id) < ($%[3]d, $1)
			AND (%[2]s, id) >= ($%[3]d, %[4]s)%[5]s
			ORDER BY %[2]s DESC, id DESC LIMIT $5) AS of_%[3]d`,
			selectEvents, column, i+6, firstSince, isSelected)
	}
	return strings.Join(pages, " UNION ALL ") + latestFirst
}

// DeletedTenant returns a tenant as it was when it was deleted.
func (s Store) DeletedTenant(ctx context.Context, tenant id.Tenant) (t keystore.Tenant, err error) {
	const op = "find a deleted tenant"
	events, err := s.FindEvents(ctx, EventFilter{Tenant: tenant, Kind: keystore.TenantDeleted}, 0, 1)
	switch {
	case err != nil:
		return t, err
	case len(events) == 0:
		return t, keystore.Fail(op, fmt.Errorf("%w: there is and was no tenant %s", keystore.ErrNotFound, tenant))
	}
	err = json.Unmarshal([]byte(events[0].Before), &t)
	return t, keystore.Fail(op, err)
}

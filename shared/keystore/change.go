package keystore

import (
	"context"
	"crypto/rand"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/database"
)

// Most changes concern one row. They need one round trip under the writers' lock: the row is read without a lock, and one
// statement changes it, if it is still as it was read, and adds the event. Changes of several rows are rare and use write.

// changeAttempts limits how often a row is read again because another writer was faster.
const changeAttempts = 20

// event is what record and change add to the log.
type event struct {
	kind          string
	about         subject
	before, after any // nil: none
}

// eventRow is what insertEvents gets of an event.
type eventRow struct {
	N      int       `json:"n"` // counts the events of one statement from 1
	UUID   string    `json:"uuid"`
	Kind   string    `json:"kind"`
	Tenant id.Tenant `json:"tenantId,omitzero"`
	Key    id.Key    `json:"keyId,omitzero"`
	Plan   string    `json:"plan"`
	Before string    `json:"before"`
	After  string    `json:"after"`
}

func (e event) row(n int) (eventRow, error) {
	was, err := detail(e.before)
	if err != nil {
		return eventRow{}, err
	}
	is, err := detail(e.after)
	return eventRow{n, rand.Text(), e.kind, e.about.tenant, e.about.key, e.about.plan, was, is}, err
}

// append adds events under the writers' lock. Their IDs are larger than after.
func (t *tx) append(after Change, events ...eventRow) error {
	text, err := json.Marshal(events)
	if err != nil {
		return err
	}
	var ids []Change
	err = t.SelectContext(t.ctx, &ids, t.store.expand.Replace(insertEvents), string(text), t.at, t.store.actor, after)
	if err == nil {
		t.change = slices.Max(ids)
	}
	return err
}

// retry repeats f, which reads and changes a row, until f reports that no other writer changed it in between.
func (s *Store) retry(op string, f func() (changed bool, err error)) error {
	for range changeAttempts {
		if changed, err := f(); err != nil || changed {
			return fail(op, err)
		}
	}
	return fail(op, conflict("other writers keep changing this record: try again"))
}

// change runs a statement that inserts, updates or deletes one row, or no row if it is not as expected.
func (s *Store) change(ctx context.Context, at instant.Millis, e event, query string, args ...any) (c Change, changed bool, err error) {
	row, err := e.row(1)
	if err != nil {
		return 0, false, err
	}
	query = s.expand.Replace(query)
	if s.db.Dialect() == database.SQLite {
		return s.changeSQLite(ctx, at, row, query, args)
	}
	added := []any{writeLock, channel, row.UUID, at, s.actor, row.Kind, row.Tenant, row.Key, row.Plan, row.Before, row.After} // of append_event
	parameters := make([]driver.Value, 0, len(args)+len(added))
	for _, arg := range append(args, added...) {
		value, err := driver.DefaultParameterConverter.ConvertValue(arg)
		if err != nil {
			return 0, false, err
		}
		parameters = append(parameters, value)
	}
	numbers := make([]string, len(added))
	for i := range added {
		numbers[i] = fmt.Sprintf("$%d", len(args)+i+1)
	}
	err = s.db.Once(ctx, func(row []driver.Value) error {
		id, isID := row[0].(int64)
		if !isID {
			return fmt.Errorf("an event's ID is %T", row[0])
		}
		c, changed = Change(id), true
		return nil
	}, "WITH changed AS ("+query+" RETURNING 1) SELECT append_event("+strings.Join(numbers, ", ")+") FROM changed", parameters...)
	return c, changed, err
}

func (s *Store) changeSQLite(ctx context.Context, at instant.Millis, e eventRow, query string, args []any) (c Change, changed bool, err error) {
	begun, err := s.db.BeginTxx(ctx, nil)
	if err != nil {
		return 0, false, err
	}
	defer begun.Rollback() // after Commit it does nothing
	t := &tx{Tx: begun, ctx: ctx, store: s, at: at}
	is, err := affected(t.ExecContext(ctx, query, args...))
	if err == nil && is {
		if err = t.append(0, e); err == nil {
			err = t.Commit()
		}
	}
	return t.change, is && err == nil, err
}

// unchanged ends a change that has nothing to do. It sets c to the last event.
func (s *Store) unchanged(ctx context.Context, c *Change) (done bool, err error) {
	*c, _, err = s.lastEvent(ctx, s.db)
	return true, err
}

// missing returns ErrNotFound if a row refers to a row that does not exist, and other errors unchanged.
func missing(err error, text string) error {
	if database.IsForeignKey(err) {
		return fmt.Errorf("%w: %s", ErrNotFound, text)
	}
	return err
}

package keystore

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jmoiron/sqlx"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/database"
)

// tailFewMax is the limit that tailFew contains.
const tailFewMax = 8

// EventRow is what a gateway needs of an event.
type EventRow struct {
	ID     Change
	UUID   string
	Kind   string
	Tenant id.Tenant
	Err    error // why the event, or a row that it is about, cannot be read
}

// Tail returns the events after the given one, at most max of them. It passes their plans, tenants,
// keys and bans to the functions of to, as they are now, which may be newer than the event. An
// event that cannot be read has an Err. Before the first event, after is 0 and uuid "". ErrRewound:
// the given event is gone.
//
// It is one statement, so one round trip and one snapshot, unless there are more than a few events.
func (s *Store) Tail(ctx context.Context, after Change, uuid string, max int, to Rows) (events []EventRow, err error) {
	defer Failed("tail", &err)
	r := tailReader{after: after, uuid: uuid, to: to}
	if err := r.read(s.db.Prepared(ctx, tailFew, after)); err != nil {
		return nil, err
	}
	// There may be more events. If there are none, this query was needless, which is rare and costs
	// little.
	if n := len(r.events); n >= tailFewMax-1 && n < max {
		r.after, r.uuid, r.found = r.events[n-1].ID, r.events[n-1].UUID, false
		if err := r.read(s.db.Prepared(ctx, tailMany, r.after, max-n+1)); err != nil {
			return nil, err
		}
	}
	if r.after != 0 && !r.found {
		return nil, ErrRewound
	}
	return r.events, nil
}

// tailReader reads the rows of tailFew and tailMany.
type tailReader struct {
	after  Change // its row comes first, which shows that it still exists
	uuid   string
	found  bool
	to     Rows
	events []EventRow
}

func (r *tailReader) read(rows *sqlx.Rows, err error) error {
	if err != nil {
		return err
	}
	return database.EachRow(rows, func(row []any) error {
		c := columns{row: row}
		var e EventRow
		switch isRead := c.read(&e.ID, &e.UUID, &e.Kind); {
		case !isRead:
			return c.err
		case e.ID == r.after && e.UUID == r.uuid:
			r.found = true
			return nil
		case r.after != 0 && !r.found:
			return ErrRewound
		}
		c.read(&e.Tenant)
		for _, pass := range []func(*columns){r.to.plan, r.to.tenant, r.to.key, r.to.ban} {
			pass(&c)
		}
		e.Err = c.err
		r.events = append(r.events, e)
		return nil
	})
}

// plan reads a plan, if there is one. Like the others, it passes what it has read unless a column
// is wrong.
func (to Rows) plan(c *columns) {
	var p Plan
	if c.read(&p.Name, &p.Limits.Minute, &p.Limits.Day, &p.Limits.Month, &p.Test.Minute) {
		to.Plan(p)
	}
}

func (to Rows) tenant(c *columns) {
	var t TenantRow
	if c.read(
		&t.ID, &t.Plan, &t.Override.Minute, &t.Override.Day, &t.Override.Month, &t.MonthStarts, &t.Suspended,
		&t.UsedSince,
	) {
		to.Tenant(&t)
	}
}

func (to Rows) key(c *columns) {
	var k KeyRow
	if c.read(
		&k.Hash, &k.ID, &k.Tenant, &k.Environment, &k.Scopes, &k.Allow, &k.Name, &k.ReplacedBy, &k.ExpiresAt,
		&k.RevokedAt, &k.DisabledAt, &k.GraceEndsAt, &k.Limits.Minute, &k.Limits.Day,
	) {
		to.Key(&k)
	}
}

func (to Rows) ban(c *columns) {
	var b BanRow
	if c.read(&b.Key, &b.Until, &b.Automatic, &b.Notice) {
		to.Ban(b)
	}
}

// columns reads a row from left to right. The first error stays.
type columns struct {
	row []any
	err error
}

// read reads a record, and reports whether it is there and no column was wrong. A record that is
// not there has NULL in its columns.
func (c *columns) read(into ...any) bool {
	values := c.row[:len(into)]
	c.row = c.row[len(into):]
	if values[0] == nil {
		return false
	}
	for i, v := range values {
		if err := assign(into[i], v); err != nil && c.err == nil {
			c.err = err
		}
	}
	return c.err == nil
}

// assign sets what to points at to the value of a column.
func assign(to, v any) error {
	integer, isInteger := v.(int64)
	text, isText := v.(string)
	isRight := isInteger
	switch to := to.(type) {
	case *int64:
		*to = integer
	case *instant.Millis:
		*to = instant.Millis(integer)
	case *Change:
		*to = Change(integer)
	case *uint8:
		*to = uint8(integer)
	case *string:
		*to, isRight = text, isText
	case *apikey.Scopes: // not by Scan, which sorts them: a load reads millions
		*to, isRight = apikey.Scopes(text), isText
	case *bool:
		truth, isTruth := v.(bool) // in SQLite, it is an integer
		*to, isRight = truth || integer != 0, isTruth || isInteger
	case *apikey.Hash:
		hash, _ := v.([]byte)
		isRight = len(hash) == len(to)
		copy(to[:], hash)
	case sql.Scanner:
		return to.Scan(v)
	}
	if !isRight {
		return fmt.Errorf("a column holds %T, which is no %T", v, to)
	}
	return nil
}

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

// EventRow is the part of an event that a gateway needs.
type EventRow struct {
	ID     Change
	UUID   string
	Kind   string
	Tenant id.Tenant
	Err    error // why the event, or a row that it is about, cannot be read
}

// Tail returns at most max events that follow the given one. Before the first event, after is 0 and
// uuid is "". Tail passes the plans, tenants, keys and bans of the events to the functions of to.
// It reads them as they are now, so they may be newer than the event. Errors: ErrRewound if the
// given event does not exist now.
//
// It is one statement, so one round trip and one snapshot, unless there are more than a few events.
func (s *Store) Tail(
	ctx context.Context, after Change, uuid string, max int, to Rows,
) (events []EventRow, err error) {
	defer Failed("tail", &err)
	r := tailReader{after: after, uuid: uuid, to: to}
	if err := r.read(s.db.Prepared(ctx, tailFew, after)); err != nil {
		return nil, err
	}
	// There may be more events. Sometimes there are none: that is rare, and the query is cheap.
	if n := len(r.events); n >= tailFewMax-1 && n < max {
		r.after = r.events[n-1].ID
		r.uuid = r.events[n-1].UUID
		r.found = false
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
		e := EventRow{ID: Change(c.integer()), UUID: c.text(), Kind: c.text()}
		switch {
		case c.err != nil:
			return c.err
		case e.ID == r.after && e.UUID == r.uuid:
			r.found = true
			return nil
		case r.after != 0 && !r.found:
			return ErrRewound
		}
		c.scan(&e.Tenant)
		r.to.plan(&c)
		r.to.tenant(&c)
		r.to.key(&c)
		r.to.ban(&c)
		e.Err = c.err
		r.events = append(r.events, e)
		return nil
	})
}

// plan passes a plan, if it is there and no column is wrong. So do the others.
func (to Rows) plan(c *columns) {
	if !c.has(5) {
		return
	}
	var p Plan
	p.Name = c.text()
	p.Limits.Minute = c.integer()
	p.Limits.Day = c.integer()
	p.Limits.Month = c.integer()
	p.Test.Minute = c.integer()
	if c.err == nil {
		to.Plan(p)
	}
}

func (to Rows) tenant(c *columns) {
	if !c.has(8) {
		return
	}
	var t TenantRow
	c.scan(&t.ID)
	t.Plan = c.text()
	t.Override.Minute = c.integer()
	t.Override.Day = c.integer()
	t.Override.Month = c.integer()
	t.MonthStarts = uint8(c.integer())
	t.Suspended = c.truth()
	t.UsedSince = instant.Millis(c.integer())
	if c.err == nil {
		to.Tenant(&t)
	}
}

func (to Rows) key(c *columns) {
	if !c.has(14) {
		return
	}
	var k KeyRow
	k.Hash = c.hash()
	c.scan(&k.ID)
	c.scan(&k.Tenant)
	c.scan(&k.Environment)
	k.Scopes = apikey.Scopes(c.text()) // not by Scan, which sorts them: a load reads millions
	c.scan(&k.Allow)
	k.Name = c.text()
	c.scan(&k.ReplacedBy)
	k.ExpiresAt = instant.Millis(c.integer())
	k.RevokedAt = instant.Millis(c.integer())
	k.DisabledAt = instant.Millis(c.integer())
	k.GraceEndsAt = instant.Millis(c.integer())
	k.Limits.Minute = c.integer()
	k.Limits.Day = c.integer()
	if c.err == nil {
		to.Key(&k)
	}
}

func (to Rows) ban(c *columns) {
	if !c.has(4) {
		return
	}
	var b BanRow
	c.scan(&b.Key)
	b.Until = instant.Millis(c.integer())
	b.Automatic = c.truth()
	b.Notice = c.text()
	if c.err == nil {
		to.Ban(b)
	}
}

// columns reads a row from left to right. The first error stays. A column that is wrong is read as
// the zero value.
type columns struct {
	row []any // the columns that are not read yet
	err error
}

// has reports whether the next n columns hold a record. If they hold none, they are NULL, and has
// skips them.
func (c *columns) has(n int) bool {
	if c.row[0] != nil {
		return true
	}
	c.row = c.row[n:]
	return false
}

func (c *columns) next() any {
	v := c.row[0]
	c.row = c.row[1:]
	return v
}

// check keeps the error of a column that does not hold what is expected.
func (c *columns) check(isRight bool, expected string, v any) {
	if !isRight && c.err == nil {
		c.err = fmt.Errorf("a column holds %T instead of %s", v, expected)
	}
}

func (c *columns) integer() int64 {
	v := c.next()
	n, isInteger := v.(int64)
	c.check(isInteger, "an integer", v)
	return n
}

func (c *columns) text() string {
	v := c.next()
	text, isText := v.(string)
	c.check(isText, "a text", v)
	return text
}

func (c *columns) truth() bool {
	v := c.next()
	if n, isInteger := v.(int64); isInteger { // in SQLite
		return n != 0
	}
	truth, isTruth := v.(bool)
	c.check(isTruth, "a boolean", v)
	return truth
}

func (c *columns) hash() (hash apikey.Hash) {
	v := c.next()
	bytes, _ := v.([]byte)
	c.check(len(bytes) == len(hash), "a hash", v)
	copy(hash[:], bytes)
	return hash
}

func (c *columns) scan(to sql.Scanner) {
	if err := to.Scan(c.next()); err != nil && c.err == nil {
		c.err = err
	}
}

package keystore

import (
	"context"
	"database/sql/driver"
	"fmt"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
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

// Tail returns the events after the given one, at most max of them. It passes their plans, tenants, keys and bans to the
// functions of to, as they are now, which may be newer than the event. An event that cannot be read has an Err. Before the first event, after is 0 and uuid "".
// ErrRewound: the given event is gone.
//
// It is one statement, so one round trip and one snapshot, unless there are more than a few events.
func (s *Store) Tail(ctx context.Context, after Change, uuid string, max int, to Rows) (events []EventRow, err error) {
	defer failed("tail", &err)
	r := tailReader{after: after, uuid: uuid, to: to}
	if err := s.db.Each(ctx, r.read, tailFew, int64(after)); err != nil {
		return nil, err
	}
	// There may be more events. If there are none, this query was needless, which is rare and costs little.
	if n := len(r.events); n >= tailFewMax-1 && n < max {
		r.after, r.uuid, r.found = r.events[n-1].ID, r.events[n-1].UUID, false
		if err := s.db.Each(ctx, r.read, tailMany, int64(r.after), int64(max-n+1)); err != nil {
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

func (r *tailReader) read(row []driver.Value) error {
	c := columns{row: row}
	e := EventRow{ID: Change(c.integer()), UUID: c.text(), Kind: c.text()}
	if c.err != nil {
		return c.err
	}
	if e.ID == r.after {
		if e.UUID != r.uuid {
			return ErrRewound
		}
		r.found = true
		return nil
	}
	if r.after != 0 && !r.found {
		return ErrRewound
	}
	c.scan(&e.Tenant)
	if c.skipNull(planColumns) {
		r.to.plan(&c)
	}
	if c.skipNull(tenantColumns) {
		r.to.tenant(&c, e.Tenant)
	}
	if c.skipNull(keyColumns) {
		r.to.key(&c)
	}
	if c.skipNull(banColumnsLoaded) {
		r.to.ban(&c)
	}
	e.Err = c.err
	r.events = append(r.events, e)
	return nil
}

// plan reads a plan. Like the others, it passes what it has read unless a column is wrong.
func (to Rows) plan(c *columns) {
	p := Plan{Name: c.text()}
	p.Limits, p.Test.Minute = c.limits(), c.integer()
	if c.err == nil {
		to.Plan(p)
	}
}

func (to Rows) tenant(c *columns, tenant id.Tenant) {
	t := TenantRow{ID: tenant, Plan: c.text()}
	t.Override, t.MonthStarts, t.Suspended, t.UsedSince = c.limits(), uint8(c.integer()), c.truth(), c.instant()
	if c.err == nil {
		to.Tenant(&t)
	}
}

func (to Rows) key(c *columns) {
	var k KeyRow
	c.hash(&k.Hash)
	c.scan(&k.ID)
	c.scan(&k.Tenant)
	c.scan(&k.Environment)
	k.Scopes = apikey.Scopes(c.text())
	c.scan(&k.Allow)
	k.Name = c.text()
	c.scan(&k.ReplacedBy)
	k.ExpiresAt, k.RevokedAt, k.GraceEndsAt = c.instant(), c.instant(), c.instant()
	k.Limits.Minute, k.Limits.Day = c.integer(), c.integer()
	if c.err == nil {
		to.Key(&k)
	}
}

func (to Rows) ban(c *columns) {
	var b BanRow
	c.scan(&b.Key)
	b.Until, b.Automatic, b.Notice = c.instant(), c.truth(), c.text()
	if c.err == nil {
		to.Ban(b)
	}
}

// columns reads a row from left to right. The first error stays.
type columns struct {
	row []driver.Value
	err error
}

func (c *columns) next() driver.Value {
	v := c.row[0]
	c.row = c.row[1:]
	return v
}

// skipNull reports whether the next n columns hold a record, and skips them if they are NULL.
func (c *columns) skipNull(n int) bool {
	if c.row[0] == nil {
		c.row = c.row[n:]
		return false
	}
	return true
}

func (c *columns) wrong(v driver.Value, want string) {
	if c.err == nil {
		c.err = fmt.Errorf("a column holds %T, not %s", v, want)
	}
}

func (c *columns) integer() int64 {
	v := c.next()
	n, ok := v.(int64)
	if !ok {
		c.wrong(v, "an integer")
	}
	return n
}

func (c *columns) limits() plan.Limits {
	return plan.Limits{Minute: c.integer(), Day: c.integer(), Month: c.integer()}
}

func (c *columns) instant() instant.Millis { return instant.Millis(c.integer()) }

func (c *columns) text() string {
	v := c.next()
	text, ok := v.(string)
	if !ok {
		c.wrong(v, "text")
	}
	return text
}

// truth reads a BOOLEAN, which in SQLite is an integer.
func (c *columns) truth() bool {
	switch v := c.next().(type) {
	case bool:
		return v
	case int64:
		return v != 0
	default:
		c.wrong(v, "a truth value")
		return false
	}
}

func (c *columns) hash(dst *apikey.Hash) {
	v := c.next()
	hash, ok := v.([]byte)
	if !ok || len(hash) != len(dst) {
		c.wrong(v, "a hash")
		return
	}
	copy(dst[:], hash)
}

func (c *columns) scan(dst interface{ Scan(any) error }) {
	if err := dst.Scan(c.next()); err != nil && c.err == nil {
		c.err = err
	}
}

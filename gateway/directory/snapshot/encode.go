package snapshot

import (
	"encoding/binary"

	"petgate/shared/core/plan"
	"petgate/shared/keystore"
)

// A record of a snapshot is a tag and its fields. Numbers are varints; a text follows its length.
const (
	tagHead   = 'H'
	tagPlan   = 'P'
	tagTenant = 'T'
	tagKey    = 'K'
	tagBan    = 'B'
	tagEnd    = 'E' // the end of the state when the snapshot was taken; later changes follow
)

// Head says which state a snapshot has.
type Head struct {
	Position
	gateway  string // which wrote the snapshot
	Seen     int64  // ms: the last contact with the database
	Gateways int64  // registered at that contact
	MaxAge   int64  // ms, as registered; 0: none
}

// Position is the last event that was applied.
type Position struct {
	Last keystore.Change
	UUID string
}

// coder writes records or reads them, so that the fields of each are listed once: its methods write
// the value of a field or, when it reads, set the field. After a failure it reads zeros.
type coder struct {
	bytes  []byte // written, or not read yet
	reads  bool
	failed bool
}

func (c *coder) fail() { c.failed, c.bytes = true, nil }

// raw is for a field of fixed length.
func (c *coder) raw(field []byte) {
	switch {
	case !c.reads:
		c.bytes = append(c.bytes, field...)
	case len(field) > len(c.bytes):
		clear(field)
		c.fail()
	default:
		c.bytes = c.bytes[copy(field, c.bytes):]
	}
}

func number[N ~int | ~int64 | ~uint8](c *coder, field *N) {
	if !c.reads {
		c.bytes = binary.AppendVarint(c.bytes, int64(*field))
		return
	}
	v, n := binary.Varint(c.bytes)
	*field = N(v)
	if n <= 0 {
		c.fail()
		return
	}
	c.bytes = c.bytes[n:]
}

// text keeps the field's memory if the text is the same: many rows have the texts of the row
// before.
func text[T ~string](c *coder, field *T) {
	size := len(*field)
	number(c, &size)
	switch {
	case !c.reads:
		c.bytes = append(c.bytes, *field...)
		return
	case size < 0 || size > len(c.bytes):
		size = 0
		c.fail()
	}
	if read := c.bytes[:size]; string(read) != string(*field) {
		*field = T(read)
	}
	c.bytes = c.bytes[size:]
}

func (c *coder) truth(field *bool) {
	var is [1]byte
	if *field {
		is[0] = 1
	}
	if c.raw(is[:]); c.reads { // look-ups may read a row that is written
		*field = is[0] == 1
	}
}

func (c *coder) limits(l *plan.Limits) {
	number(c, &l.Minute)
	number(c, &l.Day)
	number(c, &l.Month)
}

func (c *coder) head(h *Head) {
	text(c, &h.gateway)
	number(c, &h.Seen)
	number(c, &h.Gateways)
	number(c, &h.MaxAge)
	number(c, &h.Last)
	text(c, &h.UUID)
}

func (c *coder) plan(p *keystore.Plan) {
	text(c, &p.Name)
	c.limits(&p.Limits)
	c.limits(&p.Test)
}

func (c *coder) tenant(t *keystore.TenantRow) {
	c.raw(t.ID[:])
	text(c, &t.Plan)
	c.limits(&t.Override)
	c.truth(&t.Suspended)
	number(c, &t.UsedSince)
	number(c, &t.MonthStarts)
}

func (c *coder) key(k *keystore.KeyRow) {
	c.raw(k.Hash[:])
	c.raw(k.ID[:])
	c.raw(k.Tenant[:])
	c.raw(k.ReplacedBy[:])
	number(c, &k.Environment)
	text(c, &k.Scopes)
	text(c, &k.Name)
	number(c, &k.ExpiresAt)
	number(c, &k.RevokedAt)
	number(c, &k.DisabledAt)
	number(c, &k.GraceEndsAt)
	c.limits(&k.Limits)
	column, _ := k.Allow.Value() // it is always a text
	allow, _ := column.(string)
	if text(c, &allow); c.reads && k.Allow.Scan(allow) != nil {
		c.fail()
	}
}

func (c *coder) ban(b *keystore.BanRow) {
	c.raw(b.Key[:])
	number(c, &b.Until)
	c.truth(&b.Automatic)
	text(c, &b.Notice)
}

// writeRows returns functions that write rows, and then call done.
func (c *coder) writeRows(done func()) keystore.Rows {
	tag := func(tag byte) { c.bytes = append(c.bytes, tag) }
	return keystore.Rows{
		Plan:   func(p keystore.Plan) { tag(tagPlan); c.plan(&p); done() },
		Tenant: func(t *keystore.TenantRow) { tag(tagTenant); c.tenant(t); done() },
		Key:    func(k *keystore.KeyRow) { tag(tagKey); c.key(k); done() },
		Ban:    func(b keystore.BanRow) { tag(tagBan); c.ban(&b); done() },
	}
}

// reader reads records and passes rows to the functions in to.
type reader struct {
	coder
	to         keystore.Rows
	head       Head // the last one
	isComplete bool // the end record was read

	last struct {
		plan   keystore.Plan
		tenant keystore.TenantRow
		key    keystore.KeyRow
		ban    keystore.BanRow
	}
}

// record reads one record, and reports whether it could.
func (r *reader) record() bool {
	var tag [1]byte
	r.raw(tag[:])
	c := &r.coder
	switch tag[0] {
	case tagHead:
		c.head(&r.head)
	case tagPlan:
		c.plan(&r.last.plan)
		r.to.Plan(r.last.plan)
	case tagTenant:
		c.tenant(&r.last.tenant)
		r.to.Tenant(&r.last.tenant)
	case tagKey:
		c.key(&r.last.key)
		r.to.Key(&r.last.key)
	case tagBan:
		c.ban(&r.last.ban)
		r.to.Ban(r.last.ban)
	case tagEnd:
		r.isComplete = true
	default:
		return false
	}
	return !c.failed
}

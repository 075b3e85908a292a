package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
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
	Seen     int64 // ms: the last contact with the database
	Gateways int64 // registered at that contact
	MaxAge   int64 // ms, as registered; 0: none
}

// Position is the last event that was applied.
type Position struct {
	Last keystore.Change
	UUID string
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

func appendHead(b []byte, gateway string, h Head) []byte {
	b = appendText(append(b, tagHead), gateway)
	b = binary.AppendVarint(binary.AppendVarint(binary.AppendVarint(b, h.Seen), h.Gateways), h.MaxAge)
	return appendText(binary.AppendVarint(b, int64(h.Last)), h.UUID)
}

// appendRows returns functions that append rows to b, and then call done.
func appendRows(b *[]byte, done func()) keystore.Rows {
	return keystore.Rows{
		Plan:   func(p keystore.Plan) { *b = appendPlan(*b, p); done() },
		Tenant: func(t *keystore.TenantRow) { *b = appendTenant(*b, t); done() },
		Key:    func(k *keystore.KeyRow) { *b = appendKey(*b, k); done() },
		Ban:    func(ban keystore.BanRow) { *b = appendBan(*b, ban); done() },
	}
}

func appendLimits(b []byte, l plan.Limits) []byte {
	return binary.AppendVarint(binary.AppendVarint(binary.AppendVarint(b, l.Minute), l.Day), l.Month)
}

func appendPlan(b []byte, p keystore.Plan) []byte {
	return appendLimits(appendLimits(appendText(append(b, tagPlan), p.Name), p.Limits), p.Test)
}

func appendTenant(b []byte, t *keystore.TenantRow) []byte {
	b = append(append(b, tagTenant), t.ID[:]...)
	b = appendTruth(appendLimits(appendText(b, t.Plan), t.Override), t.Suspended)
	return append(binary.AppendVarint(b, int64(t.UsedSince)), t.MonthStarts)
}

func appendKey(b []byte, k *keystore.KeyRow) []byte {
	b = append(append(b, tagKey), k.Hash[:]...)
	b = append(append(b, k.ID[:]...), k.Tenant[:]...)
	b = appendText(append(b, byte(k.Environment)), string(k.Scopes))
	b = append(appendText(b, k.Name), k.ReplacedBy[:]...)
	b = binary.AppendVarint(b, int64(k.ExpiresAt))
	b = binary.AppendVarint(b, int64(k.RevokedAt))
	b = binary.AppendVarint(b, int64(k.GraceEndsAt))
	b = binary.AppendUvarint(b, uint64(len(k.Allow)))
	for _, prefix := range k.Allow {
		b = appendText(b, prefix.String())
	}
	return appendLimits(b, k.Limits)
}

func appendBan(b []byte, ban keystore.BanRow) []byte {
	b = binary.AppendVarint(append(append(b, tagBan), ban.Key[:]...), int64(ban.Until))
	return appendText(appendTruth(b, ban.Automatic), ban.Notice)
}

func appendTruth(b []byte, is bool) []byte {
	if is {
		return append(b, 1)
	}
	return append(b, 0)
}

var errRecord = errors.New("a record cannot be read")

// decoder reads records from a frame, and passes rows to the functions in to. After a failure it reads zeros.
type decoder struct {
	to     keystore.Rows
	left   []byte
	failed bool

	gateway    string // which wrote the snapshot
	head       Head   // the last one
	isComplete bool   // the end record was read

	planName string        // of the last tenant; most tenants have the same plan
	keyName  string        // of the last key; most keys have the same name
	scopes   apikey.Scopes // of the last key
}

func (d *decoder) bytes(n int) []byte {
	if n > len(d.left) {
		d.failed, d.left = true, nil
		return make([]byte, min(n, len(apikey.Hash{})))
	}
	b := d.left[:n]
	d.left = d.left[n:]
	return b
}

func (d *decoder) instant() instant.Millis { return instant.Millis(d.varint()) }

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.left)
	if n <= 0 {
		d.failed, d.left = true, nil
		return 0
	}
	d.left = d.left[n:]
	return v
}

func (d *decoder) count() int {
	v, n := binary.Uvarint(d.left)
	if n <= 0 || v > uint64(len(d.left)-n) { // each counted item takes at least one byte
		d.failed, d.left = true, nil
		return 0
	}
	d.left = d.left[n:]
	return int(v)
}

func (d *decoder) truth() bool { return d.bytes(1)[0] == 1 }

func (d *decoder) text() []byte { return d.bytes(d.count()) }

func (d *decoder) limits() plan.Limits {
	return plan.Limits{Minute: d.varint(), Day: d.varint(), Month: d.varint()}
}

// record reads one record.
func (d *decoder) record() error {
	switch tag := d.bytes(1)[0]; tag {
	case tagHead:
		d.gateway = string(d.text())
		d.head.Seen, d.head.Gateways, d.head.MaxAge = d.varint(), d.varint(), d.varint()
		d.head.Last, d.head.UUID = keystore.Change(d.varint()), string(d.text())
	case tagPlan:
		d.to.Plan(keystore.Plan{Name: string(d.text()), Limits: d.limits(), Test: d.limits()})
	case tagTenant:
		var t keystore.TenantRow
		t.ID = id.Tenant(d.bytes(len(t.ID)))
		if name := d.text(); d.planName != string(name) {
			d.planName = string(name)
		}
		t.Plan, t.Override = d.planName, d.limits()
		t.Suspended, t.UsedSince, t.MonthStarts = d.truth(), d.instant(), d.bytes(1)[0]
		d.to.Tenant(&t)
	case tagKey:
		var k keystore.KeyRow
		k.Hash = apikey.Hash(d.bytes(len(k.Hash)))
		k.ID = id.Key(d.bytes(len(k.ID)))
		k.Tenant = id.Tenant(d.bytes(len(k.Tenant)))
		k.Environment = apikey.Environment(d.bytes(1)[0])
		if scopes := d.text(); string(d.scopes) != string(scopes) {
			d.scopes = apikey.Scopes(scopes)
		}
		k.Scopes = d.scopes
		if name := d.text(); d.keyName != string(name) {
			d.keyName = string(name)
		}
		k.Name, k.ReplacedBy = d.keyName, id.Key(d.bytes(len(k.ReplacedBy)))
		k.ExpiresAt, k.RevokedAt, k.GraceEndsAt = d.instant(), d.instant(), d.instant()
		for range d.count() {
			prefix, err := netip.ParsePrefix(string(d.text()))
			if err != nil {
				return errRecord
			}
			k.Allow = append(k.Allow, prefix)
		}
		k.Limits = d.limits()
		d.to.Key(&k)
	case tagBan:
		b := keystore.BanRow{Key: id.Key(d.bytes(len(id.Key{}))), Until: d.instant()}
		b.Automatic, b.Notice = d.truth(), string(d.text())
		d.to.Ban(b)
	case tagEnd:
		d.isComplete = true
	default:
		return fmt.Errorf("%w: unknown tag %d", errRecord, tag)
	}
	if d.failed {
		return errRecord
	}
	return nil
}

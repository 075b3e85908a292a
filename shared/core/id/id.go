// Package id names tenants and keys.
//
// An ID is 80 random bits. Its text is a prefix (`ten_`, `key_`) and 16 characters of lower-case base32 without
// look-alikes. IDs are public: logs, headers and error bodies may contain them. In memory an ID is ten bytes without a
// pointer, so the garbage collector does not scan a directory of a million keys.
//
// All functions are pure and safe for concurrent use.
package id

import (
	"database/sql/driver"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
)

const (
	size    = 10
	textLen = 16
)

// The alphabet (Crockford's) has no i, l, o and u, so that an ID can be read out aloud.
const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// encoding reads IDs.
var encoding = base32.NewEncoding(alphabet).WithPadding(base32.NoPadding)

// Tenant identifies a tenant. The zero value stands for no tenant.
type Tenant [size]byte

// Key identifies an API key's record, not its secret token. The zero value stands for no key.
type Key [size]byte

// TenantPrefix and KeyPrefix begin an ID's text.
const (
	TenantPrefix = "ten_"
	KeyPrefix    = "key_"
)

// NewTenant draws a tenant ID. It fails only if random does.
func NewTenant(random io.Reader) (t Tenant, err error) {
	_, err = io.ReadFull(random, t[:])
	return t, err
}

// NewKey draws a key ID. It fails only if random does.
func NewKey(random io.Reader) (k Key, err error) {
	_, err = io.ReadFull(random, k[:])
	return k, err
}

// ParseTenant reads what Tenant.String wrote.
func ParseTenant(text string) (t Tenant, err error) {
	return t, parse(t[:], TenantPrefix, text)
}

// ParseKey reads what Key.String wrote.
func ParseKey(text string) (k Key, err error) {
	return k, parse(k[:], KeyPrefix, text)
}

func parse(dst []byte, prefix, text string) error {
	digits, ok := strings.CutPrefix(text, prefix)
	if !ok || len(digits) != textLen {
		return fmt.Errorf("%q is not an ID: want %s and %d characters", text, prefix, textLen)
	}
	if _, err := encoding.Decode(dst, []byte(digits)); err != nil {
		return fmt.Errorf("%q is not an ID: %w", text, err)
	}
	return nil
}

// AppendTo appends the ID's text to dst without allocating when dst has room for 20 bytes.
func (t Tenant) AppendTo(dst []byte) []byte {
	return appendText(append(dst, TenantPrefix...), (*[size]byte)(&t))
}

// AppendTo appends the ID's text to dst without allocating when dst has room for 20 bytes.
func (k Key) AppendTo(dst []byte) []byte {
	return appendText(append(dst, KeyPrefix...), (*[size]byte)(&k))
}

// appendText does what encoding does, with fewer instructions: each line of the access log has two IDs.
func appendText(dst []byte, raw *[size]byte) []byte {
	for i := 0; i < size; i += 5 { // five bytes are eight characters
		five := uint64(binary.BigEndian.Uint32(raw[i:]))<<8 | uint64(raw[i+4])
		dst = append(dst,
			alphabet[five>>35], alphabet[five>>30&31], alphabet[five>>25&31], alphabet[five>>20&31],
			alphabet[five>>15&31], alphabet[five>>10&31], alphabet[five>>5&31], alphabet[five&31])
	}
	return dst
}

func (t Tenant) String() string { return string(t.AppendTo(nil)) }
func (k Key) String() string    { return string(k.AppendTo(nil)) }

// IsZero reports whether t is the zero value.
func (t Tenant) IsZero() bool { return t == Tenant{} }

// IsZero reports whether k is the zero value.
func (k Key) IsZero() bool { return k == Key{} }

// MarshalText writes the ID as String does.
func (t Tenant) MarshalText() ([]byte, error) { return t.AppendTo(nil), nil }

// MarshalText writes the ID as String does.
func (k Key) MarshalText() ([]byte, error) { return k.AppendTo(nil), nil }

// UnmarshalText reads what MarshalText wrote.
func (t *Tenant) UnmarshalText(text []byte) error { return parse(t[:], TenantPrefix, string(text)) }

// UnmarshalText reads what MarshalText wrote.
func (k *Key) UnmarshalText(text []byte) error { return parse(k[:], KeyPrefix, string(text)) }

// Value is the ID's text in a database, or empty for the zero ID.
func (t Tenant) Value() (driver.Value, error) { return value(t.IsZero(), t.String()), nil }

// Value is the ID's text in a database, or empty for the zero ID.
func (k Key) Value() (driver.Value, error) { return value(k.IsZero(), k.String()), nil }

func value(isZero bool, text string) driver.Value {
	if isZero {
		return ""
	}
	return text
}

// Scan reads what Value wrote.
func (t *Tenant) Scan(column any) error { return scan(t[:], TenantPrefix, column) }

// Scan reads what Value wrote.
func (k *Key) Scan(column any) error { return scan(k[:], KeyPrefix, column) }

func scan(dst []byte, prefix string, column any) error {
	text, isText := column.(string)
	switch {
	case !isText:
		return fmt.Errorf("an ID is a text column, not %T", column)
	case text == "":
		clear(dst)
		return nil
	}
	return parse(dst, prefix, text)
}

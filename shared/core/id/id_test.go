package id_test

import (
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"petgate/shared/core/id"
	"petgate/shared/testkit/must"
)

// An ID is the same after it was a text or a column.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.OneOf(rapid.Just(make([]byte, 10)), rapid.SliceOfN(rapid.Byte(), 10, 10)).Draw(t, "raw")
		tenant, key := id.Tenant(raw), id.Key(raw)
		if back, err := id.ParseTenant(tenant.String()); err != nil || back != tenant {
			t.Fatalf("ParseTenant(%q) = %v, %v", tenant, back, err)
		}
		if back, err := id.ParseKey(key.String()); err != nil || back != key {
			t.Fatalf("ParseKey(%q) = %v, %v", key, back, err)
		}
		column, _ := key.Value()
		stored := id.Key{1}
		if err := stored.Scan(column); err != nil || stored != key || key.IsZero() != (column == "") {
			t.Fatalf("%v is stored as %q and read as %v, %v", key, column, stored, err)
		}
	})
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{
		"", "key_", "ten_0123456789abcdef", "key_0123456789abcde", "key_0123456789abcdefg",
		"key_0123456789abcdeu", "key_0123456789abcdeF", "KEY_0123456789abcdef", " key_0123456789abcdef",
	} {
		if key, err := id.ParseKey(text); err == nil ||
			err.Error() != strconv.Quote(text)+" is not an ID: want key_ and 16 characters" &&
				!strings.Contains(err.Error(), "illegal base32") {
			t.Errorf("ParseKey(%q) = %v, %v", text, key, err)
		}
	}
	for _, column := range []any{nil, int64(1), "ten_0123456789abcdef"} {
		must.Equal(t, new(id.Key).Scan(column) != nil, true, "%v is refused", column)
	}
}

func TestAppendToAllocatesNothing(t *testing.T) {
	var key id.Key
	dst := make([]byte, 0, 64)
	must.Equal(t, testing.AllocsPerRun(100, func() { dst = key.AppendTo(dst[:0]) }), 0, "allocations")
	must.Equal(t, string(dst), id.KeyPrefix+strings.Repeat("0", 16), "the text")
}

package quota_test

import (
	"encoding/binary"
	"strings"
	"testing"

	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
)

var free = plan.Limits{Minute: 60, Day: 1000}

// asked is the record of a tenant that was admitted twice, half a minute apart.
func asked() (rec quota.Record) {
	for _, now := range []instant.Millis{1_700_000_000_000, 1_700_000_030_000} { // on 2023-11-14
		quota.Product.Take(&rec, now, quota.Demand{Limits: free, Want: 1})
	}
	return rec
}

func TestDecodeRefuses(t *testing.T) {
	rec := asked()
	summary := quota.Product.RecordBytes() - quota.SummaryBytes
	for _, c := range []struct {
		name, want string
		spoil      func([]byte) []byte
	}{
		{"empty", "0 bytes", func([]byte) []byte { return nil }},
		{"too short", "1003 bytes", func(b []byte) []byte { return b[1:] }},
		{"too long", "1005 bytes", func(b []byte) []byte { return append(b, 0) }},
		{"another version", "version 3367", func(b []byte) []byte { b[summary+3]++; return b }},
		{"newest slice after the latest", "disorder", func(b []byte) []byte { b[summary+12]++; return b }},
		{"oldest slice after the newest", "disorder", func(b []byte) []byte { b[summary+21]++; return b }},
		{"oldest slice long before the newest", "disorder", func(b []byte) []byte { b[summary+21]--; return b }},
		{"use outside the window", "disorder", func(b []byte) []byte { b[summary+6]++; return b }},
		{"the newest slice's count lost", "add up to 1", func(b []byte) []byte { clear(b[summary+28 : summary+32]); return b }},
		{"a larger sum", "sum is 3", func(b []byte) []byte { b[summary+36]++; return b }},
		{"a count lost", "add up to 1", func(b []byte) []byte { clear(b[:summary]); return b }},
		{"oldest slice before time", "disorder", func(b []byte) []byte {
			for _, at := range []int{4, 12, 20} {
				binary.LittleEndian.PutUint64(b[summary+at:], ^uint64(0))
			}
			return b
		}},
	} {
		got, err := quota.Product.Decode(c.spoil(quota.Product.Append(nil, &rec)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Decode = %v, want an error with %q", c.name, err, c.want)
		}
		if !got.IsUnused() {
			t.Errorf("%s: Decode returns a record with use beside the error", c.name)
		}
	}
}

func TestVerdictRefuses(t *testing.T) {
	rec := asked()
	form := quota.Product.Append(nil, &rec)
	summary := form[len(form)-quota.SummaryBytes:]
	other := append([]byte{summary[0] + 1}, summary[1:]...)
	for what, src := range map[string][]byte{"that is too short": summary[1:], "of another version": other} {
		if _, err := quota.Product.Verdict(src, nil, 0, &quota.Demand{}, 0, 0, 0); err == nil {
			t.Errorf("a summary %s makes a verdict", what)
		}
	}
}

func TestExpiry(t *testing.T) {
	rec := asked()
	const midnight = 1_700_006_400_000 // 2023-11-15, the end of the day in which it was asked
	if got, want := quota.Product.ExpiresAt(&rec), instant.Millis(midnight+60_000+250+5_000); got != want {
		t.Errorf("ExpiresAt = %d, want %d", got, want)
	}
	if rec.IsUnused() {
		t.Error("a record with use IsUnused")
	}
	quota.Product.Take(&rec, midnight+60_000, quota.Demand{Limits: free})
	if !rec.IsUnused() {
		t.Error("a record whose window and day are past is not IsUnused")
	}
	const december = 1_701_388_800_000
	rec = asked()
	d := quota.Demand{Limits: plan.Limits{Month: 9}, Want: 1}
	quota.Product.Take(&rec, midnight+60_000, d)
	if got, want := quota.Product.ExpiresAt(&rec), instant.Millis(december+60_000+250+5_000); got != want || rec.IsUnused() {
		t.Errorf("a record of a month: ExpiresAt = %d, want %d; unused: %v", got, want, rec.IsUnused())
	}
	form := quota.Product.Append(nil, &rec)
	if again, err := quota.Product.Decode(form); err != nil || len(form) != 1012 || quota.Product.Take(&again, december-1, d).Usages[quota.Month].Used != 2 {
		t.Errorf("a record of a month is encoded in %d bytes, and decoded: %v", len(form), err)
	}
}

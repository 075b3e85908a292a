package quota_test

import (
	"encoding/binary"
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
	const disorder = "a quota record whose slices are in disorder"
	rec := asked()
	summary := quota.Product.RecordBytes() - quota.SummaryBytes
	for _, c := range []struct {
		name, want string
		spoil      func([]byte) []byte
	}{
		{"empty", "a quota record of 0 bytes, want 1004, or 1012 with a month", func([]byte) []byte { return nil }},
		{"too short", "a quota record of 1003 bytes, want 1004, or 1012 with a month", func(b []byte) []byte { return b[1:] }},
		{"too long", "a quota record of 1005 bytes, want 1004, or 1012 with a month", func(b []byte) []byte { return append(b, 0) }},
		{"another version", "a quota record of version 33677470, want 32677470", func(b []byte) []byte { b[summary+3]++; return b }},
		{"newest slice after the latest", disorder, func(b []byte) []byte { b[summary+12]++; return b }},
		{"oldest slice after the newest", disorder, func(b []byte) []byte { b[summary+21]++; return b }},
		{"oldest slice long before the newest", disorder, func(b []byte) []byte { b[summary+21]--; return b }},
		{"use outside the window", disorder, func(b []byte) []byte { b[summary+6]++; return b }},
		{"the newest slice's count lost", "a quota record whose sum is 2 and whose counts add up to 1", func(b []byte) []byte { clear(b[summary+28 : summary+32]); return b }},
		{"a larger sum", "a quota record whose sum is 3 and whose counts add up to 2", func(b []byte) []byte { b[summary+36]++; return b }},
		{"a count lost", "a quota record whose sum is 2 and whose counts add up to 1", func(b []byte) []byte { clear(b[:summary]); return b }},
		{"oldest slice before time", disorder, func(b []byte) []byte {
			for _, at := range []int{4, 12, 20} {
				binary.LittleEndian.PutUint64(b[summary+at:], ^uint64(0))
			}
			return b
		}},
	} {
		got, err := quota.Product.Decode(c.spoil(quota.Product.Append(nil, &rec)))
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: Decode = %v, want the error %q", c.name, err, c.want)
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
	used := func(what string, rec quota.Record, at instant.Millis, want bool) {
		t.Helper()
		if quota.Product.Take(&rec, at, quota.Demand{Limits: free}); rec.IsUnused() == want {
			t.Errorf("%s: unused: %t", what, want)
		}
	}
	used("its day", rec, midnight-1, true)
	used("its window and its day are past", rec, midnight, false)
	quota.Product.Take(&rec, midnight-1, quota.Demand{Limits: free, Want: 1})
	used("its window", rec, midnight, true)
	const december = 1_701_388_800_000
	rec = asked()
	d := quota.Demand{Limits: plan.Limits{Month: 9}, Want: 1}
	quota.Product.Take(&rec, midnight+60_000, d)
	used("its month", rec, midnight+200_000_000, true)
	if got, want := quota.Product.ExpiresAt(&rec), instant.Millis(december+60_000+250+5_000); got != want {
		t.Errorf("a record of a month: ExpiresAt = %d, want %d", got, want)
	}
	form := quota.Product.Append(nil, &rec)
	if again, err := quota.Product.Decode(form); err != nil || len(form) != 1012 || quota.Product.Take(&again, december-1, d).Usages[quota.Month].Used != 2 {
		t.Errorf("a record of a month is encoded in %d bytes, and decoded: %v", len(form), err)
	}
}

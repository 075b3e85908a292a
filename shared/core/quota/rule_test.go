package quota_test

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"time"

	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/testkit/must"
)

// rule has slices of 1 s, a window of 4 s and days of 60 s, so that the tables can be checked
// without a computer.
var rule = quota.Rule{Slice: time.Second, Slices: 4, Day: time.Minute}

// row is one demand on a tenant's record and its expected result; instants are in ms.
type row struct {
	now    instant.Millis
	demand quota.Demand

	granted              int64
	minute, day          int64          // used
	reset, release       instant.Millis // of the minute policy
	retryMinute, retryAt instant.Millis // of the minute policy, of both
}

func at(now, minuteMax, dayMax, want int64) row {
	return row{
		now:    instant.Millis(now),
		demand: quota.Demand{Limits: plan.Limits{Minute: minuteMax, Day: dayMax}, Want: want},
	}
}

func (r row) knowing(day, used int64) row {
	r.demand.Known.Day = quota.Period{Ends: day + 1, Used: used}
	return r
}

func (r row) merging(minute, day, used int64) row {
	r.demand.Unreported = quota.Use{Minute: minute, Day: quota.Period{Ends: day + 1, Used: used}}
	return r
}

func (r row) costing(units int64) row {
	r.demand.Cost = units
	return r
}

func (r row) monthly(limit int64) row {
	r.demand.Limits.Month = limit
	return r
}

func (r row) gives(granted, minute, day int64, reset, release, retryMinute, retryAt instant.Millis) row {
	r.granted, r.minute, r.day = granted, minute, day
	r.reset, r.release, r.retryMinute, r.retryAt = reset, release, retryMinute, retryAt
	return r
}

func TestTake(t *testing.T) {
	f := func(name string, rows ...row) {
		t.Run(name, func(t *testing.T) {
			var rec quota.Record
			for i, r := range rows {
				v := rule.Take(&rec, r.now, r.demand)
				got := r.gives(v.Granted, v.Usages[quota.Minute].Used, v.Usages[quota.Day].Used,
					v.Usages[quota.Minute].ResetAt, v.Usages[quota.Minute].ReleaseAt, v.Usages[quota.Minute].RetryAt,
					v.RetryAt())
				must.Equal(t, got, r, "row %d", i)
				if v.At != r.now || v.Usages[quota.Minute].Limit != r.demand.Limits.Minute ||
					v.Usages[quota.Day].Limit != r.demand.Limits.Day {
					t.Errorf("row %d: the verdict %+v is of another demand", i, v)
				}
			}
		})
	}

	f("a policy that is not set refuses nothing; without any, nothing is admitted",
		at(10_000, 0, 9, 10).gives(9, 9, 9, 15_000, 15_000, 0, 60_000),
		at(60_000, 10, 0, 20).gives(10, 10, 10, 65_000, 65_000, 65_000, 65_000),
		at(70_000, 0, 0, 1).gives(0, 0, 10, 70_000, 70_000, 75_000, 75_000),
	)
	f("all units of a request are charged, or none",
		at(10_000, 10, 99, 4).costing(3).gives(3, 9, 9, 15_000, 15_000, 15_000, 15_000),
		at(11_000, 12, 99, 1).costing(2).gives(1, 11, 11, 16_000, 15_000, 15_000, 15_000),
		at(11_000, 12, 99, 0).costing(3).gives(0, 11, 11, 16_000, 15_000, 15_000, 15_000),
		at(11_000, 12, 99, 0).costing(11).gives(0, 11, 11, 16_000, 15_000, 16_000, 16_000),
		at(11_000, 12, 99, 0).costing(13).gives(0, 11, 11, 16_000, 15_000, 16_000, 16_000),
		at(11_000, 99, 13, 9).costing(2).gives(1, 13, 13, 16_000, 15_000, 0, 60_000),
	)
	f("a clock that steps back a little is waited for",
		at(20_500, 2, 9, 2).gives(2, 2, 2, 25_000, 25_000, 25_000, 25_000),
		at(15_000, 3, 9, 1).gives(1, 3, 3, 25_000, 25_000, 25_000, 25_000),
		at(24_999, 3, 9, 1).gives(0, 3, 3, 25_000, 25_000, 25_000, 25_000),
	)
	f("what was released stays released, and does not come back with the clock",
		at(20_000, 2, 9, 2).gives(2, 2, 2, 25_000, 25_000, 25_000, 25_000),
		at(25_000, 2, 9, 0).gives(0, 0, 2, 25_000, 25_000, 0, 0),
		at(24_000, 2, 9, 3).gives(2, 2, 4, 30_000, 30_000, 30_000, 30_000),
	)
	f("a day that has begun goes on when the clock steps back over its midnight",
		at(59_000, 9, 2, 2).gives(2, 2, 2, 64_000, 64_000, 0, 60_000),
		at(60_000, 9, 2, 1).gives(1, 3, 1, 65_000, 64_000, 0, 0),
		at(59_500, 9, 2, 2).gives(1, 4, 2, 65_000, 64_000, 0, 120_000),
	)
	f("a record from too far ahead counts as made now",
		at(118_000, 9, 9, 2).gives(2, 2, 2, 123_000, 123_000, 0, 0),
		at(119_000, 9, 9, 1).gives(1, 3, 3, 124_000, 123_000, 0, 0),
		at(113_999, 4, 4, 2).gives(1, 4, 4, 118_000, 118_000, 118_000, 120_000),
		at(40_000, 4, 5, 1).gives(0, 4, 4, 45_000, 45_000, 45_000, 45_000),
		at(45_000, 4, 5, 9).gives(1, 1, 5, 50_000, 50_000, 0, 60_000),
	)
	f("the larger of the record's and the asker's day counts",
		at(10_000, 9, 9, 1).knowing(0, 5).gives(1, 1, 6, 15_000, 15_000, 0, 0),
		at(10_000, 9, 9, 1).knowing(0, 5).gives(1, 2, 7, 15_000, 15_000, 0, 0),
		at(10_000, 9, 9, 1).knowing(1, 9).gives(1, 3, 8, 15_000, 15_000, 0, 0),
		at(10_000, 9, 9, 0).knowing(0, 20).gives(0, 3, 20, 15_000, 15_000, 0, 60_000),
		at(60_000, 9, 9, 0).knowing(0, 20).gives(0, 0, 0, 60_000, 60_000, 0, 0),
	)
	f("merged use is charged whatever the limits, and before anything is granted",
		at(10_000, 9, 9, 9).merging(4, 0, 6).gives(3, 7, 9, 15_000, 15_000, 0, 60_000),
		at(11_000, 9, 9, 1).merging(40, 1, 60).gives(0, 47, 9, 16_000, 15_000, 16_000, 60_000),
		at(60_000, 9, 9, 1).knowing(1, 3).merging(0, 1, 2).gives(1, 1, 6, 65_000, 65_000, 0, 0),
	)
	f("a month counts from the day on which it is set, also if nothing is asked for then",
		at(10_000, 9, 9, 5).gives(5, 5, 5, 15_000, 15_000, 0, 0),
		at(60_000, 9, 9, 2).gives(2, 2, 2, 65_000, 65_000, 0, 0),
		at(61_000, 9, 9, 0).monthly(4).gives(0, 2, 2, 65_000, 65_000, 0, 0),
		at(120_000, 9, 9, 9).monthly(4).gives(2, 2, 2, 125_000, 125_000, 0, 31*60_000),
	)
}

func TestCountsSaturate(t *testing.T) {
	if d := (quota.Demand{Cost: 3}); d.Units(5) != 15 || d.Units(-1) != 0 || d.Units(1<<40) != 3*plan.LimitMax {
		t.Errorf("5 requests cost %d units", d.Units(5))
	}
	var rec quota.Record
	huge := quota.Use{
		Minute: 1 << 40,
		Day:    quota.Period{Ends: 1, Used: 1 << 40},
		Month:  quota.Period{Ends: 31, Used: 1 << 41},
	}
	for range 3 {
		v := rule.Take(&rec, 1000, quota.Demand{Limits: plan.Limits{Minute: 1, Day: 1}, Want: 1, Unreported: huge})
		if v.Granted != 0 || v.Usages[quota.Minute].Used != quota.CountMax ||
			v.Usages[quota.Day].Used != quota.CountMax ||
			v.Usages[quota.Month].Used < quota.CountMax {
			t.Fatalf("%+v, want all policies at %d", v, quota.CountMax)
		}
	}
}

func TestViolated(t *testing.T) {
	for _, c := range []struct {
		retry [quota.Policies]instant.Millis
		want  quota.Policy
	}{
		{want: quota.None},
		{[...]instant.Millis{5, 0, 0, 0, 0}, quota.Minute},
		{[...]instant.Millis{0, 5, 0, 0, 0}, quota.Day},
		{[...]instant.Millis{9, 5, 0, 0, 0}, quota.Minute},
		{[...]instant.Millis{5, 5, 0, 0, 0}, quota.Day},
		{[...]instant.Millis{9, 9, 9, 9, 9}, quota.Month},
		{[...]instant.Millis{5, 5, 0, 9, 0}, quota.KeyMinute},
		{[...]instant.Millis{5, 0, 0, 5, 5}, quota.Minute},
		{[...]instant.Millis{0, 0, 0, 5, 5}, quota.KeyDay},
	} {
		var v quota.Verdict
		for p, at := range c.retry {
			v.Usages[p].RetryAt = at
		}
		if got := v.Violated(); got != c.want || v.RetryAt() != slices.Max(c.retry[:]) {
			t.Errorf("retry at %d: the %v policy is violated, until %d; want %v", c.retry, got, v.RetryAt(), c.want)
		}
		must.Equal(t, c.want.IsOfKey(), strings.HasPrefix(c.want.String(), "key-"), "whether %v is a key's own", c.want)
	}
}

func TestBefore(t *testing.T) {
	of := func(minute, day, month quota.Usage) quota.Verdict {
		return quota.Verdict{
			At:     5,
			Usages: [quota.Policies]quota.Usage{quota.Minute: minute, quota.Day: day, quota.Month: month},
		}
	}
	v := of(quota.Usage{Limit: 10, Used: 4, Remaining: 6, ResetAt: 9, RetryAt: 8},
		quota.Usage{Limit: 3, Used: 9, ResetAt: 9}, quota.Usage{Used: 7, ResetAt: 9})
	want := v
	if v.Before(0); v != want {
		t.Errorf("before nothing was charged: %+v", v)
	}
	want = of(quota.Usage{Limit: 10, Used: 2, Remaining: 8, ResetAt: 9}, quota.Usage{Limit: 3, Used: 7, ResetAt: 9},
		quota.Usage{Used: 5, ResetAt: 9})
	if v.Before(2); v != want {
		t.Errorf("before two units were charged: %+v, want %+v", v, want)
	}
}

// A month ends before the day on which the next one begins, in any year.
func TestMonthEnd(t *testing.T) {
	for _, c := range []struct {
		day, want string
		starts    uint8
	}{
		{"2026-03-14", "2026-04-01", 1},
		{"2026-03-14", "2026-04-01", 0},
		{"2026-03-14", "2026-03-15", 15},
		{"2026-03-15", "2026-04-15", 15},
		{"2026-12-31", "2027-01-01", 1},
		{"2026-12-28", "2027-01-28", 28},
		{"2028-02-28", "2028-03-01", 1},
		{"2028-02-28", "2028-03-28", 28},
		{"2028-02-29", "2028-03-01", 1},
		{"2027-02-28", "2027-03-01", 1},
		{"2100-02-28", "2100-03-01", 1},
		{"1970-01-01", "1970-02-01", 1},
	} {
		days := func(text string) int64 {
			return must.Get[time.Time](t)(time.Parse(time.DateOnly, text)).Unix() / 86_400
		}
		must.Equal(t, quota.MonthEnd(days(c.day), c.starts), days(c.want),
			"the day after the month of %s that starts on day %d", c.day, c.starts)
	}
}

// A record that has lost usage gets it from the caller. All of it counts for the day. It also
// counts for the minute, but not more of it than the caller knows to be still in the window.
func TestLostUse(t *testing.T) {
	const now = 1_700_000_000_000
	day := int64(now / quota.Product.Day.Milliseconds())
	limits := plan.Limits{Minute: 60, Day: 1000, Month: 9000}
	for _, c := range []struct{ known, knownMinute, granted, minute, day int64 }{
		{100, 40, 20, 60, 120},
		{10, 40, 50, 60, 60}, // only 10 are lost
		{100, 0, 60, 60, 160},
		{100, -5, 60, 60, 160},
		{990, 100, 0, 100, 990},
	} {
		var rec quota.Record
		d := quota.Demand{
			Limits: limits,
			Want:   60,
			Known:  quota.Use{Minute: c.knownMinute, Day: quota.Period{Ends: day + 1, Used: c.known}},
		}
		d.Known.Month = quota.Period{Ends: quota.MonthEnd(day, 1), Used: c.known + 300} // before today
		v := quota.Product.Take(&rec, now, d)
		u := &v.Usages
		got := [...]int64{v.Granted, u[quota.Minute].Used, u[quota.Day].Used, u[quota.Month].Used - 300}
		if got != [...]int64{c.granted, c.minute, c.day, c.day} {
			t.Errorf("%+v: granted, used in the minute, in the day, and in it by the month: %d", c, got)
		}
		d.Want, d.Known = 0, quota.Product.UseOf(&v)
		if again := quota.Product.Take(&rec, now, d); again.Usages[quota.Minute].Used != v.Usages[quota.Minute].Used ||
			again.Usages[quota.Day].Used != v.Usages[quota.Day].Used {
			t.Errorf("%+v: nothing more is lost, and %+v is charged", c, again)
		}
	}
}

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
	const lost = "a quota record whose sum is 2 and whose counts add up to 1"
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
		{"the newest slice's count lost", lost, func(b []byte) []byte { clear(b[summary+28 : summary+32]); return b }},
		{"a larger sum", "a quota record whose sum is 3 and whose counts add up to 2", func(b []byte) []byte { b[summary+36]++; return b }},
		{"a count lost", lost, func(b []byte) []byte { clear(b[:summary]); return b }},
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
		must.Equal(t, got.IsUnused(), true, "whether the record beside the error has no use: %s", c.name)
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
	must.Equal(t, quota.Product.ExpiresAt(&rec), instant.Millis(midnight+60_000+250+5_000), "the end of a record")
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
	must.Equal(t, quota.Product.ExpiresAt(&rec), instant.Millis(december+60_000+250+5_000),
		"the end of a record of a month")
	form := quota.Product.Append(nil, &rec)
	if again, err := quota.Product.Decode(form); err != nil || len(form) != 1012 ||
		quota.Product.Take(&again, december-1, d).Usages[quota.Month].Used != 2 {
		t.Errorf("a record of a month is encoded in %d bytes, and decoded: %v", len(form), err)
	}
}

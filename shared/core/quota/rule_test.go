package quota_test

import (
	"testing"
	"time"

	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
)

// rule has slices of 1 s, a window of 4 s and days of 60 s, so that tables can be worked out in the head.
var rule = quota.Rule{Slice: time.Second, Slices: 4, Day: time.Minute}

// row is one demand on a tenant's record and what must come of it; instants are in ms.
type row struct {
	now    int64
	limits plan.Limits
	want   int64
	known  quota.DayUse
	spent  quota.Spent

	granted           int64
	minute, day       int64 // used
	reset, release    int64 // of the minute policy
	retryMin, retryAt int64 // of the minute policy, of both
}

func TestTake(t *testing.T) {
	p := func(minute, day int64) plan.Limits { return plan.Limits{Minute: minute, Day: day} }
	f := func(name string, rows ...row) {
		t.Run(name, func(t *testing.T) {
			var rec quota.Record
			for i, r := range rows {
				v := rule.Take(&rec, r.now, quota.Demand{Limits: r.limits, Want: r.want, Known: r.known, Spent: r.spent})
				got := r
				got.granted, got.minute, got.day = v.Granted, v.Minute.Used, v.Day.Used
				got.reset, got.release = v.Minute.ResetAt, v.Minute.ReleaseAt
				got.retryMin, got.retryAt = v.Minute.RetryAt, v.RetryAt()
				if got != r {
					t.Errorf("row %d:\n got %+v\nwant %+v", i, got, r)
				}
				if v.At != r.now || v.Minute.Limit != r.limits.Minute || v.Day.Limit != r.limits.Day {
					t.Errorf("row %d: the verdict %+v is of another demand", i, v)
				}
			}
		})
	}

	f("a tenant that has never asked",
		row{now: 10_500, limits: p(3, 9), reset: 10_500, release: 10_500},
		row{now: 10_500, limits: p(3, 9), want: 1, granted: 1, minute: 1, day: 1, reset: 15_000, release: 15_000},
	)
	f("a slice is released one window after its end, and not before",
		row{now: 10_000, limits: p(1, 9), want: 1, granted: 1, minute: 1, day: 1, reset: 15_000, release: 15_000, retryMin: 15_000, retryAt: 15_000},
		row{now: 10_999, limits: p(1, 9), want: 1, minute: 1, day: 1, reset: 15_000, release: 15_000, retryMin: 15_000, retryAt: 15_000},
		row{now: 14_000, limits: p(1, 9), want: 1, minute: 1, day: 1, reset: 15_000, release: 15_000, retryMin: 15_000, retryAt: 15_000},
		row{now: 14_999, limits: p(1, 9), want: 1, minute: 1, day: 1, reset: 15_000, release: 15_000, retryMin: 15_000, retryAt: 15_000},
		row{now: 15_000, limits: p(1, 9), want: 1, granted: 1, minute: 1, day: 2, reset: 20_000, release: 20_000, retryMin: 20_000, retryAt: 20_000},
	)
	f("slices leave one by one, empty ones between them",
		row{now: 10_000, limits: p(5, 99), want: 2, granted: 2, minute: 2, day: 2, reset: 15_000, release: 15_000},
		row{now: 12_500, limits: p(5, 99), want: 1, granted: 1, minute: 3, day: 3, reset: 17_000, release: 15_000},
		row{now: 13_000, limits: p(5, 99), want: 2, granted: 2, minute: 5, day: 5, reset: 18_000, release: 15_000, retryMin: 15_000, retryAt: 15_000},
		row{now: 15_000, limits: p(5, 99), minute: 3, day: 5, reset: 18_000, release: 17_000},
		row{now: 17_999, limits: p(5, 99), minute: 2, day: 5, reset: 18_000, release: 18_000},
		row{now: 18_000, limits: p(5, 99), minute: 0, day: 5, reset: 18_000, release: 18_000},
	)
	f("a partial grant is what the tighter policy leaves",
		row{now: 10_000, limits: p(3, 9), want: 2, granted: 2, minute: 2, day: 2, reset: 15_000, release: 15_000},
		row{now: 11_000, limits: p(3, 9), want: 5, granted: 1, minute: 3, day: 3, reset: 16_000, release: 15_000, retryMin: 15_000, retryAt: 15_000},
		row{now: 20_000, limits: p(9, 4), want: 5, granted: 1, minute: 1, day: 4, reset: 25_000, release: 25_000, retryAt: 60_000},
	)
	f("both or neither: the day refuses and the minute is not charged, and the other way round",
		row{now: 10_000, limits: p(9, 2), want: 3, granted: 2, minute: 2, day: 2, reset: 15_000, release: 15_000, retryAt: 60_000},
		row{now: 11_000, limits: p(9, 2), want: 1, minute: 2, day: 2, reset: 15_000, release: 15_000, retryAt: 60_000},
		row{now: 11_000, limits: p(2, 9), want: 1, minute: 2, day: 2, reset: 15_000, release: 15_000, retryMin: 15_000, retryAt: 15_000},
		row{now: 11_000, limits: p(2, 2), want: 1, minute: 2, day: 2, reset: 15_000, release: 15_000, retryMin: 15_000, retryAt: 60_000},
	)
	f("the day ends at its midnight, the window goes on over it",
		row{now: 59_999, limits: p(3, 3), want: 3, granted: 3, minute: 3, day: 3, reset: 64_000, release: 64_000, retryMin: 64_000, retryAt: 64_000},
		row{now: 60_000, limits: p(3, 3), want: 1, minute: 3, day: 0, reset: 64_000, release: 64_000, retryMin: 64_000, retryAt: 64_000},
		row{now: 64_000, limits: p(3, 3), want: 1, granted: 1, minute: 1, day: 1, reset: 69_000, release: 69_000},
	)
	f("limits raised: the next request is admitted; use is kept",
		row{now: 10_000, limits: p(2, 9), want: 3, granted: 2, minute: 2, day: 2, reset: 15_000, release: 15_000, retryMin: 15_000, retryAt: 15_000},
		row{now: 10_000, limits: p(5, 9), want: 9, granted: 3, minute: 5, day: 5, reset: 15_000, release: 15_000, retryMin: 15_000, retryAt: 15_000},
	)
	f("limits lowered below use: retry when so many slices have left that use is under the limit",
		row{now: 10_000, limits: p(9, 99), want: 2, granted: 2, minute: 2, day: 2, reset: 15_000, release: 15_000},
		row{now: 11_000, limits: p(9, 99), want: 3, granted: 3, minute: 5, day: 5, reset: 16_000, release: 15_000},
		row{now: 13_000, limits: p(9, 99), want: 4, granted: 4, minute: 9, day: 9, reset: 18_000, release: 15_000, retryMin: 15_000, retryAt: 15_000},
		row{now: 13_000, limits: p(8, 99), want: 1, minute: 9, day: 9, reset: 18_000, release: 15_000, retryMin: 15_000, retryAt: 15_000},
		row{now: 13_000, limits: p(7, 99), want: 1, minute: 9, day: 9, reset: 18_000, release: 15_000, retryMin: 16_000, retryAt: 16_000},
		row{now: 13_000, limits: p(5, 99), want: 1, minute: 9, day: 9, reset: 18_000, release: 15_000, retryMin: 16_000, retryAt: 16_000},
		row{now: 13_000, limits: p(4, 99), want: 1, minute: 9, day: 9, reset: 18_000, release: 15_000, retryMin: 18_000, retryAt: 18_000},
		row{now: 13_000, limits: p(1, 9), want: 1, minute: 9, day: 9, reset: 18_000, release: 15_000, retryMin: 18_000, retryAt: 60_000},
	)
	f("a limit that is not set admits nothing",
		row{now: 10_000, limits: p(0, 9), want: 1, reset: 10_000, release: 10_000, retryMin: 15_000, retryAt: 15_000},
		row{now: 10_000, limits: p(9, 0), want: 1, reset: 10_000, release: 10_000, retryAt: 60_000},
	)
	f("a clock that steps back a little is waited for",
		row{now: 20_500, limits: p(2, 9), want: 2, granted: 2, minute: 2, day: 2, reset: 25_000, release: 25_000, retryMin: 25_000, retryAt: 25_000},
		row{now: 15_000, limits: p(3, 9), want: 1, granted: 1, minute: 3, day: 3, reset: 25_000, release: 25_000, retryMin: 25_000, retryAt: 25_000},
		row{now: 24_999, limits: p(3, 9), want: 1, minute: 3, day: 3, reset: 25_000, release: 25_000, retryMin: 25_000, retryAt: 25_000},
	)
	f("what was released stays released, and does not come back with the clock",
		row{now: 20_000, limits: p(2, 9), want: 2, granted: 2, minute: 2, day: 2, reset: 25_000, release: 25_000, retryMin: 25_000, retryAt: 25_000},
		row{now: 25_000, limits: p(2, 9), minute: 0, day: 2, reset: 25_000, release: 25_000},
		row{now: 24_000, limits: p(2, 9), want: 3, granted: 2, minute: 2, day: 4, reset: 30_000, release: 30_000, retryMin: 30_000, retryAt: 30_000},
	)
	f("a day that has begun goes on when the clock steps back over its midnight",
		row{now: 59_000, limits: p(9, 2), want: 2, granted: 2, minute: 2, day: 2, reset: 64_000, release: 64_000, retryAt: 60_000},
		row{now: 60_000, limits: p(9, 2), want: 1, granted: 1, minute: 3, day: 1, reset: 65_000, release: 64_000},
		row{now: 59_500, limits: p(9, 2), want: 2, granted: 1, minute: 4, day: 2, reset: 65_000, release: 64_000, retryAt: 120_000},
	)
	f("a record from too far ahead counts as made now",
		row{now: 118_000, limits: p(9, 9), want: 2, granted: 2, minute: 2, day: 2, reset: 123_000, release: 123_000},
		row{now: 119_000, limits: p(9, 9), want: 1, granted: 1, minute: 3, day: 3, reset: 124_000, release: 123_000},
		row{now: 113_999, limits: p(4, 4), want: 2, granted: 1, minute: 4, day: 4, reset: 118_000, release: 118_000, retryMin: 118_000, retryAt: 120_000},
		row{now: 40_000, limits: p(4, 5), want: 1, minute: 4, day: 4, reset: 45_000, release: 45_000, retryMin: 45_000, retryAt: 45_000},
		row{now: 45_000, limits: p(4, 5), want: 9, granted: 1, minute: 1, day: 5, reset: 50_000, release: 50_000, retryAt: 60_000},
	)
	f("the larger of the record's and the asker's day counts",
		row{now: 10_000, limits: p(9, 9), want: 1, known: quota.DayUse{Used: 5}, granted: 1, minute: 1, day: 6, reset: 15_000, release: 15_000},
		row{now: 10_000, limits: p(9, 9), want: 1, known: quota.DayUse{Used: 5}, granted: 1, minute: 2, day: 7, reset: 15_000, release: 15_000},
		row{now: 10_000, limits: p(9, 9), want: 1, known: quota.DayUse{Day: 1, Used: 9}, granted: 1, minute: 3, day: 8, reset: 15_000, release: 15_000},
		row{now: 10_000, limits: p(9, 9), known: quota.DayUse{Used: 20}, minute: 3, day: 20, reset: 15_000, release: 15_000, retryAt: 60_000},
		row{now: 60_000, limits: p(9, 9), known: quota.DayUse{Used: 20}, minute: 0, day: 0, reset: 60_000, release: 60_000},
	)
	f("merged use is charged whatever the limits, and before anything is granted",
		row{now: 10_000, limits: p(9, 9), want: 9, spent: quota.Spent{Minute: 4, Day: quota.DayUse{Used: 6}}, granted: 3, minute: 7, day: 9, reset: 15_000, release: 15_000, retryAt: 60_000},
		row{now: 11_000, limits: p(9, 9), want: 1, spent: quota.Spent{Minute: 40, Day: quota.DayUse{Day: 1, Used: 60}}, minute: 47, day: 9, reset: 16_000, release: 15_000, retryMin: 16_000, retryAt: 60_000},
		row{now: 60_000, limits: p(9, 9), want: 1, known: quota.DayUse{Day: 1, Used: 3}, spent: quota.Spent{Day: quota.DayUse{Day: 1, Used: 2}}, granted: 1, minute: 1, day: 6, reset: 65_000, release: 65_000},
	)
}

func TestCountsSaturate(t *testing.T) {
	var rec quota.Record
	huge := quota.Spent{Minute: 1 << 40, Day: quota.DayUse{Used: 1 << 40}}
	for range 3 {
		v := rule.Take(&rec, 1000, quota.Demand{Limits: plan.Limits{Minute: 1, Day: 1}, Want: 1, Spent: huge})
		if v.Granted != 0 || v.Minute.Used != quota.CountMax || v.Day.Used != quota.CountMax {
			t.Fatalf("%+v, want both policies at %d", v, quota.CountMax)
		}
	}
}

func TestViolated(t *testing.T) {
	for _, c := range []struct {
		minute, day int64
		want        quota.Policy
	}{{0, 0, quota.None}, {5, 0, quota.Minute}, {0, 5, quota.Day}, {5, 9, quota.Day}, {9, 5, quota.Minute}, {5, 5, quota.Day}} {
		v := quota.Verdict{Minute: quota.Usage{RetryAt: c.minute}, Day: quota.Usage{RetryAt: c.day}}
		if got := v.Violated(); got != c.want {
			t.Errorf("retry at %d and %d: the %v policy is violated, want %v", c.minute, c.day, got, c.want)
		}
	}
}

func TestRemaining(t *testing.T) {
	for _, c := range []struct{ limit, used, want int64 }{{5, 0, 5}, {5, 5, 0}, {5, 9, 0}} {
		if got := (quota.Usage{Limit: c.limit, Used: c.used}).Remaining(); got != c.want {
			t.Errorf("%d used of %d: Remaining = %d, want %d", c.used, c.limit, got, c.want)
		}
	}
}

func TestTakeAllocatesNothing(t *testing.T) {
	rec, now := quota.Record{}, int64(1_000_000)
	d := quota.Demand{Limits: plan.Limits{Minute: plan.LimitMax, Day: plan.LimitMax}, Want: 1}
	quota.Product.Take(&rec, now, d)
	quota.Product.Take(&rec, now+1000, d) // the ring is made when the first slice is over
	if n := testing.AllocsPerRun(1000, func() {
		now += 100
		quota.Product.Take(&rec, now, d)
	}); n != 0 {
		t.Errorf("Take allocates %v times", n)
	}
}

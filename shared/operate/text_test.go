package operate

import (
	"testing"
	"time"
)

func TestTexts(t *testing.T) {
	t.Parallel()
	const moment = 1500 * time.Millisecond
	few, many, one, none := 0.214, 10_000.0, int64(1), int64(0)
	for _, c := range [][2]string{
		{Span(0), "0 ms"},
		{Span(999 * time.Millisecond), "999 ms"},
		{Span(time.Second), "1 s"},
		{Span(119 * time.Second), "119 s"},
		{Span(2 * time.Minute), "2 min"},
		{Span(3 * time.Hour), "3 h"},
		{Span(49 * time.Hour), "2 days"},
		{Latency(nil), "-"},
		{Latency(&few), "0.21 ms"},
		{Latency(&many), "10,000 ms"},
		{DeprecatedView{Requests: 5}.Trend(), "new"},
		{DeprecatedView{Before: 5}.Trend(), "stopped"},
		{DeprecatedView{Requests: 5, Before: 5}.Trend(), "0 %"},
		{DeprecatedView{Requests: 105, Before: 5}.Trend(), "+2,000 %"},
		{DeprecatedView{Requests: 5, Before: 8}.Trend(), "-37 %"},
		{DeprecatedView{}.EndsIn(), "never"},
		{DeprecatedView{DaysLeft: &none}.EndsIn(), "0 days"},
		{DeprecatedView{DaysLeft: &one}.EndsIn(), "1 day"},
		{Plural(0, "day"), "0 days"},
		{Plural(1, "day"), "1 day"},
		{Plural(1739, "day"), "1,739 days"},
		// The time until an instant is rounded: what was just set to 90 days says so.
		{Until(90*day - moment), "90 days"},
		{Until(90*day - time.Hour), "89 days"},
		{Until(2*day - time.Hour/2), "2 days"},
		{Until(day - moment), "24 h"},
		{Until(2*time.Hour - time.Minute/2), "2 h"},
		{Until(time.Hour - moment), "59 min"},
		{Until(2*time.Minute - moment/10), "2 min"},
		{Until(time.Minute - moment), "59 s"},
		{Until(moment / 2), "1 s"},
	} {
		if c[0] != c[1] {
			t.Errorf("%q, want %q", c[0], c[1])
		}
	}
}

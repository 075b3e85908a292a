package operate

import (
	"testing"
	"time"
)

// The time until an instant is rounded: what was just set to 90 days says so.
func TestUntil(t *testing.T) {
	t.Parallel()
	const moment = 1500 * time.Millisecond
	for want, d := range map[string]time.Duration{
		"90 days": 90*day - moment, "89 days": 90*day - time.Hour, "2 days": 2*day - moment, "24 h": day - moment, "2 h": 2*time.Hour - moment,
		"59 min": time.Hour - moment, "2 min": 2*time.Minute - moment/10, "59 s": time.Minute - moment, "1 s": moment / 2,
	} {
		if got := Until(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

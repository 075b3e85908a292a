package instant

import (
	"testing"
	"time"
)

func TestMillis(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, int(1999*time.Microsecond), time.FixedZone("", 3600))
	m := Of(noon)
	for _, row := range []struct{ what, got, want string }{
		{"rounded down", m.Time().Format(time.RFC3339Nano), "2026-11-21T11:00:00.001Z"},
		{"text", m.String(), "2026-11-21T11:00:00Z"},
		{"text with milliseconds", string(m.AppendTo([]byte("at "))), "at 2026-11-21T11:00:00.001Z"},
		{"all digits", string(Of(noon.Add(300 * time.Millisecond)).AppendTo(nil)), "2026-11-21T11:00:00.301Z"},
		{"none", Millis(0).String(), ""},
		{"added", m.Add(1500 * time.Millisecond).Time().Format(time.RFC3339Nano), "2026-11-21T11:00:01.501Z"},
		{"difference", m.Add(time.Minute).Sub(m).String(), "1m0s"},
		{"seconds", time.Unix(m.Seconds(), 0).UTC().Format(time.RFC3339), "2026-11-21T11:00:01Z"},
		{"hour", m.Truncate(time.Hour).String(), "2026-11-21T11:00:00Z"},
		{"day", m.Truncate(24 * time.Hour).String(), "2026-11-21T00:00:00Z"},
		{"a whole second", time.Unix(Millis(2000).Seconds(), 0).UTC().Format(time.RFC3339), "1970-01-01T00:00:02Z"},
	} {
		if row.got != row.want {
			t.Errorf("%s: %s, want %s", row.what, row.got, row.want)
		}
	}
}

package operate

import (
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	for _, c := range []struct {
		text string
		want time.Duration
		ok   bool
	}{
		{"90d", 90 * day, true},
		{"24h", 24 * time.Hour, true},
		{"1d12h", 36 * time.Hour, true},
		{"30m", 30 * time.Minute, true},
		{"1h30m", 90 * time.Minute, true},
		{"1.5h", 90 * time.Minute, true},
		{"250ms", 250 * time.Millisecond, true},
		{"0", 0, true},
		{"0d", 0, true},
		{"36500d", durationMax, true},
		{"36500d1ns", 0, false},
		{"999999d", 0, false},
		{"9999999d", 0, false},
		{"876001h", 0, false},
		{"", 0, false},
		{"5", 0, false},
		{"d", 0, false},
		{"1w", 7 * day, true},
		{"1w2d", 9 * day, true},
		{"1d1w", 0, false},
		{"w", 0, false},
		{"1.5d", 0, false},
		{"12h1d", 0, false},
		{"-1d", 0, false},
		{"-1h", 0, false},
		{"1d-1h", 0, false},
		{"1 d", 0, false},
		{"١d", 0, false},
	} {
		got, err := ParseDuration(c.text)
		if (err == nil) != c.ok || err == nil && got != c.want {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v, ok %t", c.text, got, err, c.want, c.ok)
		}
	}
}

func FuzzParseDuration(f *testing.F) {
	for _, text := range []string{"90d", "1d12h", "36500d", "0", "-1h", "1e9h"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := ParseDuration(text); err == nil && (d < 0 || d > durationMax) {
			t.Errorf("ParseDuration(%q) = %v", text, d)
		}
	})
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 ms", 14 * time.Millisecond: "14 ms", 999 * time.Millisecond: "999 ms", time.Second: "1 s", 119 * time.Second: "119 s",
		2 * time.Minute: "2 min", 3 * time.Hour: "3 h", 49 * time.Hour: "2 days",
	} {
		if got := Span(d); got != want {
			t.Errorf("span(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestPlural(t *testing.T) {
	for n, want := range map[int]string{0: "0 days", 1: "1 day", 2: "2 days", 1739: "1,739 days"} {
		if got := Plural(n, "day"); got != want {
			t.Errorf("Plural(%d) = %q, want %q", n, got, want)
		}
	}
}

package main

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// Charged and refused requests can be told apart without colour, and a few of them have a sign, too. Bars fit every width.
func TestBars(t *testing.T) {
	t.Parallel()
	plain := func(_, text string) string { return text }
	b := bars{period: "hour", limit: "3,600 in each hour", rows: []barRow{
		{"2026-03-01T08:00:00Z", 0, 0},
		{"2026-03-01T09:00:00Z", 1, 0},
		{"2026-03-01T10:00:00Z", 0, 1},
		{"2026-03-01T11:00:00Z", 3600, 2400},
		{"2026-03-01T12:00:00Z", 5999, 1},
	}}
	const want = `HOUR (UTC)            CHARGED  REFUSED
2026-03-01T08:00:00Z        0        0
2026-03-01T09:00:00Z        1        0  █
2026-03-01T10:00:00Z        0        1  ░
2026-03-01T11:00:00Z    3,600    2,400  ████████████░░░░░░░░
2026-03-01T12:00:00Z    5,999        1  ███████████████████░

█ charged  ░ refused  limit: 3,600 in each hour`
	if got := strings.Join(b.lines(60, plain), "\n"); got != want {
		t.Errorf("bars:\n%s\nwant:\n%s", got, want)
	}
	for _, width := range []int{0, 51, 80, 200} {
		for _, line := range b.lines(width, plain) {
			if n := utf8.RuneCountInString(line); n > width && width > 0 || n > barsWidth && width == 0 {
				t.Errorf("at %d columns, a line of %d characters:\n%s", width, n, line)
			}
		}
	}
}

package main

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// A few refused requests have a sign, also if the charged ones fill the bar.
func TestBarShowsRefused(t *testing.T) {
	for _, r := range []barRow{{"", 9999, 1}, {"", 0, 1}, {"", 5000, 1}, {"", 1, 9999}} {
		text := r.draw(20, 10_000, -1, plain)
		if !strings.Contains(text, refusedSign) || utf8.RuneCountInString(text) > 20 {
			t.Errorf("%+v: %q", r, text)
		}
	}
}

// Bars fit every width, and charged, refused and the limit can be told apart without colour.
func TestBars(t *testing.T) {
	b := bars{period: "hour", limit: 3600, rows: []barRow{
		{"2026-03-01T08:00:00Z", 0, 0},
		{"2026-03-01T09:00:00Z", 1, 0},
		{"2026-03-01T10:00:00Z", 0, 1},
		{"2026-03-01T11:00:00Z", 1234, 0},
		{"2026-03-01T12:00:00Z", 3600, 0},
		{"2026-03-01T13:00:00Z", 3600, 2400},
		{"2026-03-01T14:00:00Z", 2000, 3000},
	}}
	colour := func(code, text string) string { return "\x1b[" + code + "m" + text + "\x1b[0m" }
	s := newShell(t, "")
	for _, c := range []struct {
		name  string
		width int
		limit int64
		style func(code, text string) string
	}{
		{"60 columns", 60, 3600, plain},
		{"80 columns", 80, 3600, colour},
		{"200 columns", 200, 3600, plain},
		{"no terminal", 0, 3600, plain},
		{"a limit far away", 80, 1_000_000, plain},
		{"no limit", 80, 0, plain},
	} {
		b.limit = c.limit
		lines := b.lines(c.width, c.style)
		fmt.Fprintf(&s.record, "%s:\n%s\n\n", c.name, strings.Join(lines, "\n"))
		for _, line := range lines {
			if n := utf8.RuneCountInString(stripStyle(line)); c.width > 0 && n > c.width {
				t.Errorf("%s: a line of %d characters:\n%s", c.name, n, line)
			}
		}
	}
	s.golden("bars")
}

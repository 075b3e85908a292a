package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
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

func TestUsagePlot(t *testing.T) {
	s := newMigrated(t, testkit.SQLite(t))
	s.ok("tenant", "create", "acme")
	s.ok("key", "create", "acme")
	s.ok("usage", "show", "acme", "--plot")
	store := s.store()
	key, err := id.ParseKey(keyID(s, "acme"))
	must.Do(t, err)
	g := s.gateway(store, "gw-1", "10.0.0.4:9090")
	var rows []keystore.UsageRow
	add := func(hoursAgo int, outcome string, charged bool, n int64) {
		hour := instant.Of(s.now.Truncate(time.Hour)).Add(-time.Duration(hoursAgo) * time.Hour)
		rows = append(rows, keystore.UsageRow{Tenant: tenantID(s, "acme"), Key: key, Outcome: outcome, Charged: charged, Hour: hour, Requests: n})
	}
	for ago := range 30 {
		if ago%7 != 3 {
			add(ago, "ok", true, int64(20*(ago%6)))
		}
	}
	add(5, "upstream_unavailable", true, 40)
	add(5, "minute_quota_exceeded", false, 60)
	add(25, "day_quota_exceeded", false, 500)
	add(2, "report", false, 100_000) // neither charged nor refused
	must.Do(t, store.AddUsage(t.Context(), g.Registration, 1, rows, nil))
	s.ok("usage", "show", "acme", "--plot")
	s.ok("usage", "show", "acme", "--plot", "--by", "hour", "--since", "12h")
	s.keyadmin("usage", "show", "acme", "--plot", "-o", "csv")
	s.keyadmin("usage", "show", "acme", "--plot", "--by", "operation,key")
	s.terminal = true
	for _, s.width = range []int{60, 80, 200} {
		s.ok("usage", "show", "acme", "--plot", "--by", "hour", "--since", "12h")
	}
	s.env = append(s.env, "NO_COLOR=1", "TERM=dumb", "COLUMNS=60")
	s.ok("usage", "show", "acme", "--plot", "--by", "day,outcome")
	s.golden("usage-plot")
}

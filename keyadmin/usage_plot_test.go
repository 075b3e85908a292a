package main

import (
	"testing"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
)

func TestUsagePlot(t *testing.T) {
	s := newMigrated(t, testkit.SQLite(t))
	s.ok("tenant", "create", "acme")
	s.ok("key", "create", "acme")
	s.ok("usage", "show", "acme", "--plot")
	store := s.store()
	key, err := id.ParseKey(keyID(s, "acme"))
	if err != nil {
		t.Fatal(err)
	}
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
	if err := store.AddUsage(t.Context(), g.Registration, 1, rows, nil); err != nil {
		t.Fatal(err)
	}
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

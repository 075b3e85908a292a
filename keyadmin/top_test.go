package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/operate"
	"petgate/shared/testkit"
	"petgate/shared/testkit/golden"
	"petgate/shared/testkit/must"
)

// busyGateway stands for a gateway's /live. Each answer is a second after the one before and has the given requests more.
type busyGateway struct {
	mu     sync.Mutex
	answer operate.Live
	more   []int64 // requests a second, by tenant
	status int
}

func (g *busyGateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.status != 0 || r.URL.Path != "/live" || r.URL.Query().Get("n") == "" {
		w.WriteHeader(max(g.status, http.StatusNotFound))
		return
	}
	g.answer.Elapsed += 1000
	for i, requests := range []uint64{10, 10, 15} {
		g.answer.Took[i] += requests
	}
	for i, more := range g.more {
		t := &g.answer.Tenants[i]
		t.Requests, t.Refused = t.Requests+more, t.Refused+more/10
		t.MinuteUsed, t.DayUsed, t.MonthUsed = min(t.Limits.Minute, t.MinuteUsed+more), t.DayUsed+more, t.MonthUsed+more
		g.answer.Requests, g.answer.Refused = g.answer.Requests+more, g.answer.Refused+more/10
	}
	_ = json.NewEncoder(w).Encode(g.answer)
}

// start serves g and registers it as a gateway.
func (g *busyGateway) start(s *shell, store *keystore.Store, name string, tenants ...string) {
	s.t.Helper()
	g.answer.Mode, g.answer.Since, g.answer.Within, g.answer.Took = "shared", 1, []float64{0.0005, 0.001, 0.01}, make([]uint64, 3)
	g.answer.Active, g.answer.Bans = len(tenants)+2, 4
	for _, tenant := range tenants {
		g.answer.Tenants = append(g.answer.Tenants, operate.LiveTenant{ID: tenant, Plan: "free", Limits: plan.Limits{Minute: 60, Day: 1000, Month: 5000}})
	}
	server := httptest.NewServer(g)
	s.t.Cleanup(server.Close)
	s.gateway(store, name, strings.TrimPrefix(server.URL, "http://")).follow()
}

// watched is a shell whose database has two tenants, and two gateways that answer and two that do not.
func watched(t *testing.T) (s *shell, one, two *busyGateway) {
	s = newMigrated(t, testkit.SQLite(t))
	acme, globex := s.ok("tenant", "create", "acme"), s.ok("tenant", "create", "globex")
	s.ok("key", "create", "globex")
	s.ok("ban", "add", keyID(s, "globex"), "--for", "1h", "--reason", "scraping", "--yes")
	one, two = &busyGateway{more: []int64{20, 1}}, &busyGateway{more: []int64{10}}
	store := s.store()
	one.start(s, store, "gw-1", acme, globex)
	two.start(s, store, "gw-2", acme)
	s.gateway(store, "gw-3", "127.0.0.1:1")
	old := &busyGateway{status: http.StatusNotFound}
	old.start(s, store, "gw-4")
	s.record.Reset()
	return s, one, two
}

func TestTopOnce(t *testing.T) {
	t.Parallel()
	s, _, _ := watched(t)
	s.ok("top", "--once")
	s.ok("top", "-o", "csv")
	s.terminal, s.width = true, 40
	s.ok("top", "--once")
	s.golden("top")
}

// On a terminal, the screen is cleared before each refresh, which is no longer or wider than the terminal and shows what is wrong.
func TestTopOnATerminal(t *testing.T) {
	t.Parallel()
	s, _, _ := watched(t)
	s.terminal, s.width, s.height = true, 80, 12
	sleeps := 0
	s.onSleep = func() { sleeps++; s.ended = sleeps == 3 }
	screens := strings.Split(s.want(exitDone, "", "top").stdout, clearScreen)
	if len(screens) != 3 || screens[0] != "" {
		t.Fatalf("%q, want two screens", screens)
	}
	if lines := strings.Count(screens[1], "\n"); lines != s.height-1 || !strings.Contains(screens[1], "! gw-3: ") {
		t.Errorf("%d lines:\n%s", lines, screens[1])
	}
}

// A gateway that is without Redis is named, and no text of a gateway moves the cursor. CSV, too, says that the database cannot be read.
func TestTopLines(t *testing.T) {
	t.Parallel()
	v := topView{Problem: "The database is away.", Gateways: []topGateway{{ID: "gw-5", Mode: "outage"}}, Tenants: []topTenant{{Tenant: "\x1b[31mred", MinuteShare: 0.5}}}
	var said strings.Builder
	a := &app{stdio: stdio{Out: io.Discard, Err: &said}, cli: &cli{Output: "csv"}}
	if must.Do(t, a.printTop(v, true)); !strings.HasPrefix(said.String(), v.Problem+"\n") {
		t.Errorf("CSV: %q", said.String())
	}
	golden.Check(t, "top_lines", said.String()+strings.Join(a.topLines(v), "\n"))
}

func TestFiguresAreShort(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"0.0": rate(0), "999.9": rate(999.9), "1,000": rate(1000), "12,345": rate(12345.6), "0 %": percent(0), "<1 %": percent(0.0001), "29 %": percent(0.29),
		"99 %": percent(0.999), "100 %": percent(1), "1,200 %": percent(12),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/keystore/usage"
	"petgate/shared/operate"
	"petgate/shared/testkit"
	"petgate/shared/testkit/golden"
	"petgate/shared/testkit/must"
)

// useHours stores usage of two tenants in each of the last five hours. A gateway has stored
// everything before the hour that began an hour ago.
func useHours(s *shell) (use func(tenant string, ago int, requests int64)) {
	s.t.Helper()
	s.ok("tenant", "create", "acme")
	s.ok("tenant", "create", "globex")
	store := s.store()
	g := s.gateway(store, "gw-1", "127.0.0.1:1")
	batch := int64(0)
	hour := func(ago int) instant.Millis {
		return instant.Of(s.now).Truncate(time.Hour).Add(-time.Duration(ago) * time.Hour)
	}
	use = func(tenant string, ago int, requests int64) {
		s.t.Helper()
		t := must.Get[keystore.Tenant](s.t)(store.Tenant(s.t.Context(), tenant))
		batch++
		rows := []usage.Row{
			{Tenant: t.ID, Operation: "listPets", Outcome: "ok", Charged: true, Hour: hour(ago), Requests: requests, MoreUnits: requests},
		}
		must.Do(s.t, usage.Of(store).AddUsage(s.t.Context(), g.Registration, batch, rows, nil))
	}
	for n, name := range []string{"acme", "globex"} {
		for ago := range 5 { // of the hour that has just begun, too
			use(name, ago, int64(10*ago+n+1))
		}
	}
	g.UsageThrough = hour(1)
	g.follow()
	return use
}

// A receiver gets the token and what it has not got yet.
func TestUsageExportTo(t *testing.T) {
	t.Parallel()
	s := newMigrated(t, testkit.SQLite(t))
	use := useHours(s)
	status := http.StatusOK
	meter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		want := "Bearer secret"
		if r.URL.Path == "/open" { // this receiver has no token
			want = ""
		}
		if r.Header.Get("Authorization") != want ||
			r.Header.Get("Content-Type") != "text/csv; charset=utf-8; header=present" {
			t.Errorf("%v", r.Header)
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(meter.Close)
	token := filepath.Join(t.TempDir(), "token")
	must.Do(t, os.WriteFile(token, []byte("secret\n"), 0o600))
	export := func(code exitCode, says string, more ...string) {
		t.Helper()
		s.want(
			code,
			says,
			append(
				[]string{"usage", "export", "--format", "csv", "--to", meter.URL, "--token-file", token},
				more...)...)
	}
	export(
		exitDone,
		"Sent 6 events: 189 requests with live keys, 189 charged, 378 units. "+meter.URL+" has got every hour before 2026-03-01T11:00:00Z.",
		"--since",
		"1d",
	)
	export(exitDone, "Sent 0 events")
	export(
		exitDone, "Sent 0 events", "--until", "30d",
	) // before the default of --since, which a receiver with a cursor ignores
	use("globex", 3, 7)
	status = http.StatusForbidden
	export(exitFailed,
		"403 Forbidden: \n"+meter.URL+" has got every hour before 2026-03-01T11:00:00Z. Repeat the command to continue")
	status = http.StatusServiceUnavailable
	s.onSleep = func() { status = http.StatusOK }
	export(exitDone,
		"503 Service Unavailable: : next try in 1 s\nSent 1 event: 7 requests with live keys, 7 charged, 14 units.")
	s.want(exitDone, "No hour since 2026-03-01T11:00:00Z is closed.", "usage", "export", "--format", "csv", "--since",
		"1h")
	const noon = "2026-03-01T12:00:00Z"
	s.want(exitDone, "0 events of "+noon+" to "+noon, "usage", "export", "--format", "csv", "--since", noon)
	s.want(exitDone, "Sent 7 events: 196 requests", "usage", "export", "--format", "csv", "--to", meter.URL+"/open")
}

// Whatever table is away, a list says so or is the same, and a list that cannot be written is a
// failure.
func TestListsWithoutATable(t *testing.T) {
	t.Parallel()
	s := newMigrated(t, testkit.SQLite(t))
	useHours(s)
	s.keyadmin("key", "create", "acme") // the gateway does not confirm it
	key := keyID(s, "acme")
	s.keyadmin("ban", "add", key, "--for", "7d", "--reason", "scraping", "-y")
	s.ok("operator", "create", "terraform", "--role", "admin")
	db, all := s.registry, map[string]string{}
	s.registry = nil
	for _, list := range []string{
		"usage show acme", "usage show acme --by hour --plot", "usage show acme --by minute", "usage top",
		"usage export --format csv", "ban list",
		"ban list -o json", "tenant list", "key show " + key, "plan list", "gateway list", "operator list", "audit", "export",
	} {
		all[list] = s.run(strings.Fields(list)).stdout
		s.broken = true
		if r := s.run(strings.Fields(list)); r.code == exitDone && all[list] != "" {
			t.Errorf("keyadmin %s into a broken pipe: exit 0", list)
		}
		s.broken = false
	}
	for _, table := range []string{
		"plans", "tenants", "tenant_keys", "bans", "gateways", "usage_hours",
		"usage_minutes", "usage_gaps", "usage_ledger",
	} {
		must.Get[sql.Result](t)(db.Exec("ALTER TABLE " + table + " RENAME TO away"))
		for list, want := range all {
			if !strings.HasPrefix(list, "usage") && !strings.HasPrefix(list, "ban") {
				continue
			}
			if r := s.run(strings.Fields(list)); r.code == exitDone && r.stdout != want {
				t.Errorf("without %s, keyadmin %s:\n%s\nwant\n%s", table, list, r.stdout, want)
			}
		}
		must.Get[sql.Result](t)(db.Exec("ALTER TABLE away RENAME TO " + table))
	}
}

// busyGateway stands for a gateway's /live. Each answer is a second after the one before and has
// the given requests more.
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
	g.answer.Mode, g.answer.Since, g.answer.Within, g.answer.Took = "shared", 1, []float64{0.0005, 0.001, 0.01}, make(
		[]uint64, 3)
	g.answer.Active, g.answer.Bans = len(tenants)+2, 4
	for _, tenant := range tenants {
		g.answer.Tenants = append(g.answer.Tenants,
			operate.LiveTenant{ID: tenant, Plan: "free", Limits: plan.Limits{Minute: 60, Day: 1000, Month: 5000}})
	}
	server := httptest.NewServer(g)
	s.t.Cleanup(server.Close)
	s.gateway(store, name, strings.TrimPrefix(server.URL, "http://")).follow()
}

// watched is a shell whose database has two tenants, and two gateways that answer and two that do
// not.
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
	return s, one, two
}

func TestTopOnce(t *testing.T) {
	t.Parallel()
	s, _, _ := watched(t)
	var all strings.Builder
	top := func(flags ...string) {
		r := s.want(exitDone, "", append([]string{"top"}, flags...)...)
		fmt.Fprintln(&all, "#", flags)
		all.WriteString(r.stdout + r.stderr)
	}
	top()
	top("-o", "csv")
	s.terminal, s.width = true, 40
	top("--once")
	top("-o", "json")
	golden.Check(t, "top", regexp.MustCompile(`127\.0\.0\.1:\d{4,5}`).ReplaceAllString(all.String(), "(address)"))
}

// On a terminal, the screen is cleared before each refresh, which is no longer or wider than the
// terminal and shows what is wrong.
func TestTopOnATerminal(t *testing.T) {
	t.Parallel()
	s, _, _ := watched(t)
	s.terminal, s.width, s.height = true, 80, 9
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

// A gateway that is without Redis is named, and no text of a gateway moves the cursor. CSV, too,
// says that the database cannot be read.
func TestTopLines(t *testing.T) {
	t.Parallel()
	v := topView{
		Problem:  "The database is away.",
		Gateways: []topGateway{{ID: "gw-5", Mode: "outage"}},
		Tenants:  []topTenant{{Tenant: "\x1b[31mred", MinuteShare: 0.5}},
	}
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
		"0.0": rate(0), "999.9": rate(999.9), "1,000": rate(1000), "12,345": rate(12345.6),
		"0 %": percent(0), "<1 %": percent(0.0001), "29 %": percent(0.29),
		"99 %": percent(0.999), "100 %": percent(1), "1,200 %": percent(12),
	} {
		must.Equal(t, got, want, "a figure")
	}
}

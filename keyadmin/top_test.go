package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/operate"
	"petgate/shared/service"
	"petgate/shared/testkit"
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
	for i, more := range g.more {
		t := &g.answer.Tenants[i]
		t.Requests, t.Refused = t.Requests+more, t.Refused+more/10
		t.MinuteUsed, t.DayUsed = min(t.Limits.Minute, t.MinuteUsed+more), t.DayUsed+more
		g.answer.Requests, g.answer.Refused = g.answer.Requests+more, g.answer.Refused+more/10
	}
	_ = json.NewEncoder(w).Encode(g.answer)
}

// start serves g and registers it as a gateway.
func (g *busyGateway) start(s *shell, store *keystore.Store, id string, tenants ...string) {
	s.t.Helper()
	g.answer.Mode, g.answer.Since, g.answer.P50, g.answer.P99 = "shared", 1, pointer(0.25), pointer(8)
	g.answer.Active = len(tenants)
	for _, tenant := range tenants {
		g.answer.Tenants = append(g.answer.Tenants, operate.LiveTenant{ID: tenant, Plan: "free", Limits: plan.Limits{Minute: 60, Day: 1000}})
	}
	server := httptest.NewServer(g)
	s.t.Cleanup(server.Close)
	s.gateway(store, id, strings.TrimPrefix(server.URL, "http://")).follow()
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
	s, _, _ := watched(t)
	s.ok("top", "--once")
	s.ok("top", "--once", "-o", "json")
	s.ok("top", "--once", "-o", "csv", "--by", "bans")
	s.terminal, s.width = true, 80
	s.ok("top", "--once", "-n", "1", "--by", "minute")
	s.env = append(s.env, "NO_COLOR=1", "COLUMNS=60")
	s.ok("top", "--once", "-n", "1", "--by", "refused")
	s.keyadmin("top", "--by", "name", "--every", "2m", "-n", "0")
	s.golden("top")
}

// Without a terminal, and on a dumb one, each refresh is a block of lines, an object or rows, until a signal ends it.
func TestTopLines(t *testing.T) {
	for _, dumb := range []bool{false, true} {
		s, _, _ := watched(t)
		if s.terminal = dumb; dumb {
			s.env = append(s.env, "TERM=dumb")
		}
		for format, want := range map[string][]string{
			"table": {" 31.0 req/s", "acme ", "\n\n"},
			"json":  {`"requestsPerSecond":30,`, "}\n{", `"error":"connection refused`},
			"csv":   {"at,tenantId,tenant,plan,requestsPerSecond,", ",acme,free,30,3,"},
		} {
			sleeps := 0
			s.ended, s.onSleep = false, func() { sleeps++; s.ended = sleeps == 3 }
			args := []string{"top", "-o", format}
			if !s.terminal {
				args = append(args, "--every", "1s")
			}
			r := s.want(exitDone, "", args...)
			for _, text := range want {
				if !strings.Contains(r.stdout, text) || strings.Contains(r.stdout, "\x1b[") {
					t.Errorf("top -o %s, dumb %t: no %q in\n%s", format, dumb, text, r.stdout)
				}
			}
			if n := strings.Count(r.stdout, "req/s") + strings.Count(r.stdout, `{"at"`) + strings.Count(r.stdout, "\r\n")/2; n != 2 {
				t.Errorf("top -o %s: %d refreshes, want 2:\n%s", format, n, r.stdout)
			}
		}
	}
}

// As CSV, too, it is said that the database cannot be read.
func TestTopCSVNamesTheProblem(t *testing.T) {
	var said strings.Builder
	a := &app{stdio: stdio{Out: io.Discard, Err: &said}, cli: &cli{}}
	a.cli.Output = "csv"
	if err := (&topCommand{Limit: 1}).print(a, topView{Problem: "The database cannot be read"}); err != nil {
		t.Fatal(err)
	}
	if want := "The database cannot be read\n"; said.String() != want {
		t.Errorf("%q, want %q", said.String(), want)
	}
}

// A pipe gets one refresh, unless an interval is given.
func TestTopInAPipe(t *testing.T) {
	s, _, _ := watched(t)
	sleeps := 0
	s.onSleep = func() { sleeps++; s.ended = sleeps == 3 }
	if r := s.want(exitDone, "", "top"); strings.Count(r.stdout, "req/s") != 1 || sleeps != 1 {
		t.Errorf("top in a pipe, after %d sleeps:\n%s", sleeps, r.stdout)
	}
}

// A gateway that hangs delays a refresh by the limit, and is named. The others have all of the limit to respond.
func TestTopWithAHangingGateway(t *testing.T) {
	within(t, &operate.LiveWithin, 3*time.Second)
	s, one, _ := watched(t)
	mute, err := net.Listen("tcp", "127.0.0.1:0") // it accepts, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	a := &app{stdio: stdio{Clock: func() time.Time { return s.now }, Random: s.random}, cli: &cli{}, env: environment(s.env)}
	a.cli.DatabaseURL = service.Secret(strings.TrimPrefix(s.env[0], "DATABASE_URL="))
	if _, err := a.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer a.db.Close()
	w := newWatch(a)
	w.refresh(t.Context(), "rate")
	s.gateway(s.store(), "gw-5", mute.Addr().String())
	v := w.refresh(t.Context(), "rate")
	if len(v.Gateways) != 5 || v.Gateways[4].Error != "no answer within 3 s" || v.Gateways[0].Error != "" || len(v.Tenants) != 2 || v.Tenants[0].Tenant != "acme" {
		t.Errorf("%+v", v)
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.answer.Elapsed != 2000 {
		t.Errorf("gateway 1 was asked for %d ms, want 2000", one.answer.Elapsed)
	}
}

// A limit that is not set is null, and no rate is known before the second refresh.
func TestTopWithoutALimit(t *testing.T) {
	w := newWatch(&app{stdio: stdio{Clock: time.Now}})
	view := w.view([]operate.Figures{{Live: operate.Live{Tenants: []operate.LiveTenant{{ID: "ten_1", Limits: plan.Limits{Minute: 60}}}}}})
	text, err := json.Marshal(view)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"minuteLimit":60,`, `"dayLimit":null,`} {
		if !strings.Contains(string(text), want) || strings.Contains(string(text), `"p50Millis"`) {
			t.Errorf("%s lacks %s", text, want)
		}
	}
}

// Each key does what the last line says.
func TestTopKeys(t *testing.T) {
	view := busyView()
	a := &app{stdio: stdio{Clock: func() time.Time { return view.at }}, cli: &cli{}}
	s := &screen{topCommand: &topCommand{By: "rate", Limit: 30}, app: a, width: 80, height: 24}
	if text := s.View().Content; !strings.Contains(text, "q quit") || !s.View().AltScreen {
		t.Errorf("before the first refresh:\n%s", text)
	}
	s.Update(tea.WindowSizeMsg{Width: 100, Height: 30})
	s.Update(&view)
	for _, step := range []struct{ key, has, lacks string }{
		{"", "acme", "any key"},
		{"?", "any key: back", "acme"},
		{"x", "s order: rate", "any key"},
		{"s", "s order: minute", ""},
		{"s", "s order: day", ""},
		{"s", "s order: refused", ""},
		{"s", "s order: bans", ""},
		{"up", "s order: bans", ""},
		{"/", "Filter by tenant or plan: _", ""},
		{"Q", ": Q_", "acme"},
		{"u", ": Qu_", "acme"},
		{"x", ": Qux_", "quiet"},
		{"backspace", ": Qu_", "acme"},
		{"paste", ": Quie_", "acme"},
		{"enter", "/ filter: Quie  Esc all", "acme"},
		{"esc", "/ filter  s order", ""},
		{"/", ": _", ""},
		{"q", ": q_", ""},
		{"esc", "/ filter  s order: bans", ""},
		{"s", "s order: rate", ""},
	} {
		message := tea.Msg(tea.KeyPressMsg{Code: []rune(step.key + " ")[0], Text: step.key})
		switch step.key {
		case "":
			message = nil
		case "paste":
			message = tea.PasteMsg{Content: "ie"}
		case "esc", "enter", "backspace", "up":
			codes := map[string]rune{"esc": tea.KeyEscape, "enter": tea.KeyEnter, "backspace": tea.KeyBackspace, "up": tea.KeyUp}
			message = tea.KeyPressMsg{Code: codes[step.key]}
		}
		if _, command := s.Update(message); command != nil {
			t.Errorf("%q ends it", step.key)
		}
		text := s.View().Content
		if !strings.Contains(text, step.has) || step.lacks != "" && strings.Contains(text, step.lacks) {
			t.Errorf("after %q, want %q and not %q:\n%s", step.key, step.has, step.lacks, text)
		}
		if n := strings.Count(text, "\n") + 1; n != 30 {
			t.Errorf("%d lines in a screen of 30", n)
		}
	}
	for _, key := range []tea.KeyPressMsg{{Code: 'q', Text: "q"}, {Code: 'c', Mod: tea.ModCtrl}, {Code: 'd', Mod: tea.ModCtrl}} {
		if _, command := s.Update(key); command == nil {
			t.Errorf("%s does not end it", key)
		}
	}
}

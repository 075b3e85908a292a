package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/operate"
	"petgate/shared/service"
	"petgate/shared/testkit"
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
	must.Do(t, (&topCommand{Limit: 1}).print(a, topView{Problem: "The database cannot be read"}))
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
	must.Do(t, err)
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
	must.Do(t, err)
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

func plain(_, text string) string { return text }

func pointer(x float64) *float64 { return &x }

// busyView is a refresh with all that can be shown: gateways that answer and one that does not, and tenants small and large.
func busyView() topView {
	now := time.Date(2026, 3, 1, 12, 0, 5, 0, time.UTC)
	wave := func(most float64) (h history) {
		for second := range 60 {
			h.add(now.Add(time.Duration(second-59)*time.Second), 1, most*float64(second%20)/20)
		}
		return h
	}
	var last history
	last.add(now, 2, 1)
	return topView{
		At: "2026-03-01T12:00:05Z", at: now, By: "rate", Active: 1234, rate: 12345.6, refused: 678.9,
		Gateways: []topGateway{
			{ID: "gw-1.eu-central.example.com-8080-x7k2", Mode: "shared", RequestsPerSecond: pointer(6000.5), RefusedPerSecond: pointer(0), P50: pointer(0.21), P99: pointer(12.34)},
			{ID: "gw-2", Mode: "outage", RequestsPerSecond: pointer(6345.1), RefusedPerSecond: pointer(678.9), P50: pointer(250), P99: pointer(10000)},
			{ID: "gw-3", AdminAddress: "10.0.0.6:9090", Error: "no answer within 1 s"},
			{ID: "gw-4", Mode: "shared"},
		},
		Tenants: []topTenant{
			{TenantID: "ten_1", Tenant: "acme", Plan: "enterprise", RequestsPerSecond: 11000, RefusedPerSecond: 678.9, MinuteShare: 1, DayShare: 0.999, BannedKeys: 2, history: wave(11000)},
			{TenantID: "ten_2", Tenant: "a tenant with a long name and many words in it", Plan: "a-plan-with-a-long-name", RequestsPerSecond: 1344.6, MinuteShare: 0.5, DayShare: 0.001, history: wave(3)},
			{TenantID: "ten_3", Tenant: "\x1b[31mred", Plan: "free", RequestsPerSecond: 1, MinuteShare: 12, DayShare: 0.2, history: last},
			{TenantID: "ten_4", Tenant: "日本語の会社 quiet", Plan: "free"},
		},
	}
}

func TestTopFrame(t *testing.T) {
	s := newShell(t, "")
	colour := func(code, text string) string { return "\x1b[" + code + "m" + text + "\x1b[0m" }
	for _, c := range []struct {
		name  string
		frame frame
	}{
		{"60 columns", frame{width: 60, height: 24, style: colour}},
		{"80 columns", frame{width: 80, height: 24, style: colour}},
		{"80 columns, NO_COLOR", frame{width: 80, height: 24, style: plain}},
		{"200 columns", frame{width: 200, height: 24, style: colour}},
		{"no terminal", frame{style: plain}},
		{"40 columns and 12 lines", frame{width: 40, height: 12, style: plain}},
	} {
		fmt.Fprintf(&s.record, "%s:\n%s\n\n", c.name, strings.Join(c.frame.lines(busyView()), "\n"))
	}
	empty := topView{at: busyView().at, Problem: "The database cannot be read"}
	fmt.Fprintf(&s.record, "nothing:\n%s\n", strings.Join(frame{width: 80, style: plain}.lines(empty), "\n"))
	s.golden("top-frame")
}

// A gateway that does not answer is not counted among those for which there is no room.
func TestTopFrameCountsGatewaysOnce(t *testing.T) {
	v := topView{}
	for i := range 9 {
		g := topGateway{ID: fmt.Sprintf("gw-%d", i)}
		if i%3 == 2 {
			g.Error = "no answer within 1 s"
		}
		v.Gateways = append(v.Gateways, g)
	}
	lines := frame{width: 80, height: 12, style: plain}.gateways(v.Gateways)
	shown, more := 0, 0
	for _, line := range lines {
		if strings.Contains(line, "gw-") {
			shown++
		}
		_, _ = fmt.Sscanf(line, "and %d more", &more)
	}
	if more == 0 || shown+more != len(v.Gateways) {
		t.Errorf("%d gateways are shown and %d more, of %d:\n%s", shown, more, len(v.Gateways), strings.Join(lines, "\n"))
	}
}

// No line is wider or the screen longer than the terminal, and no column moves, whatever the figures are.
func TestTopFrameKeepsItsWidths(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	figure := func() float64 { return random.ExpFloat64() * []float64{0, 0.001, 1, 1e3, 1e6, 1e9}[random.IntN(6)] }
	for width := widthMin; width <= 220; width += 15 {
		for range 4 {
			v := busyView()
			for i := range v.Tenants {
				tenant := &v.Tenants[i]
				tenant.RequestsPerSecond, tenant.RefusedPerSecond = figure(), figure()
				tenant.MinuteShare, tenant.DayShare, tenant.BannedKeys = figure(), figure(), random.IntN(9999)
			}
			g := &v.Gateways[0]
			g.RequestsPerSecond, g.P50, g.P99 = pointer(figure()), pointer(figure()), pointer(figure())
			v.rate, v.refused, v.Active = figure(), figure(), random.IntN(99_999)
			f := frame{width: width, height: 8 + random.IntN(20), style: plain}
			lines := f.lines(v)
			if len(lines) > f.height+1 {
				t.Errorf("%d lines in a screen of %d", len(lines), f.height)
			}
			for _, line := range lines {
				if ansi.StringWidth(line) > width {
					t.Errorf("%d columns: a line of %d characters:\n%s", width, ansi.StringWidth(line), line)
				}
			}
			rows := f.tenants(v, v.Tenants)
			for _, line := range rows[1:] { // the last column is on the right
				if ansi.StringWidth(line) != ansi.StringWidth(rows[0]) {
					t.Errorf("%d columns: the columns have moved:\n%s\n%s", width, rows[0], line)
				}
			}
		}
	}
}

func TestFiguresAreShort(t *testing.T) {
	for _, c := range []struct {
		write func(float64) string
		x     float64
		want  string
	}{
		{rate, 0, "0.0"},
		{rate, 999.94, "999.9"},
		{rate, 999.95, "1,000"},
		{rate, 999_999, "999,999"},
		{rate, 1e6, "1.0M"},
		{rate, 1e12, "9999.0M"},
		{percent, 0, "0 %"},
		{percent, 0.0001, "<1 %"},
		{percent, 0.999, "99 %"},
		{percent, 1, "100 %"},
		{percent, 12, ">999 %"},
		{millis, 0.214, "0.21 ms"},
		{millis, 99.94, "99.9 ms"},
		{millis, 250, "250 ms"},
		{millis, 10_000, "10 s"},
	} {
		if got := c.write(c.x); got != c.want {
			t.Errorf("%v: %q, want %q", c.x, got, c.want)
		}
	}
}

// A part of a sparkline is the mean of its time. What is not known is blank, and a rate stays in its part as time goes on.
func TestHistory(t *testing.T) {
	at := func(second float64) time.Time {
		return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(second * float64(time.Second)))
	}
	var h history
	for second := 31; second <= 48; second++ {
		h.add(at(float64(second)), 1, max(0, float64(second-42)))
	}
	h.add(at(58), 10, 3) // a refresh came late
	for _, c := range []struct {
		now  float64
		n    int
		want string
	}{
		{58, 12, "      ▁▁▂█▆▆"}, {59.9, 12, "      ▁▁▂█▆▆"}, {60, 12, "     ▁▁▂█▆▆ "}, {58, 6, "   ▁▇█"}, {119, 12, "            "},
	} {
		if got := spark(h.bins(at(c.now), c.n)); got != c.want {
			t.Errorf("at %v in %d parts: %q, want %q", c.now, c.n, got, c.want)
		}
	}
	if h.isOver(at(117)) || !h.isOver(at(118)) {
		t.Error("a history is over when a minute has passed")
	}
}

package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

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
	if err := a.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer a.db.Close()
	w := newWatch(a)
	w.refresh(t.Context(), "rate")
	s.gateway(s.store(), "gw-5", mute.Addr().String())
	if err := w.read(t.Context()); err != nil {
		t.Fatal(err)
	}
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

// A limit that is not set is null.
func TestTopWithoutALimit(t *testing.T) {
	s := &sums{LiveTenant: operate.LiveTenant{Limits: plan.Limits{Minute: 60}}}
	row, err := json.Marshal(newWatch(nil).tenant("ten_1", s, time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"minuteLimit":60,`, `"dayLimit":null,`} {
		if !strings.Contains(string(row), want) {
			t.Errorf("%s lacks %s", row, want)
		}
	}
}

// Rates are exact: over several gateways, for a tenant that begins to call, and after a gateway's restart.
func TestTopRates(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	w := newWatch(&app{stdio: stdio{Clock: func() time.Time { return now }}})
	g := func(id string, since, elapsed int64, tenants ...operate.LiveTenant) asked {
		a := operate.Live{Since: since, Elapsed: elapsed, Tenants: tenants}
		for _, t := range tenants {
			a.Requests += t.Requests
		}
		return asked{gateway: keystore.Gateway{ID: id}, answer: a}
	}
	for _, c := range []struct {
		name    string
		answers []asked
		want    map[string]float64
		all     float64
	}{
		{"the first answers", []asked{g("1", 1, 1000, operate.LiveTenant{ID: "a", Requests: 500}), g("2", 1, 99, operate.LiveTenant{ID: "a", Requests: 7})}, map[string]float64{"a": 0}, 0},
		{"two gateways", []asked{g("1", 1, 3000, operate.LiveTenant{ID: "a", Requests: 520}), g("2", 1, 2099, operate.LiveTenant{ID: "a", Requests: 17})}, map[string]float64{"a": 15}, 15},
		{"b begins, and c was there but not listed", []asked{
			g("1", 1, 4000, operate.LiveTenant{ID: "a", Requests: 520}, operate.LiveTenant{ID: "b", Requests: 3, Since: 3500}, operate.LiveTenant{ID: "c", Requests: 900, Since: 2000}),
		}, map[string]float64{"a": 0, "b": 3, "c": 0}, 903},
		{"b was idle, and begins again", []asked{g("1", 1, 5000, operate.LiveTenant{ID: "b", Requests: 5, Since: 4800}, operate.LiveTenant{ID: "c", Requests: 901, Since: 2000})}, map[string]float64{"b": 5, "c": 1}, -517},
		{"a restart", []asked{g("1", 2, 800, operate.LiveTenant{ID: "b", Requests: 9, Since: 1})}, map[string]float64{"b": 0}, 0},
		{"after the restart", []asked{g("1", 2, 1800, operate.LiveTenant{ID: "b", Requests: 10, Since: 1})}, map[string]float64{"b": 1}, 1},
	} {
		now = now.Add(time.Second)
		v := w.view(c.answers, "rate")
		got := map[string]float64{}
		for _, tenant := range v.Tenants {
			got[tenant.TenantID] = tenant.RequestsPerSecond
		}
		if len(got) != len(c.want) || v.rate != c.all {
			t.Errorf("%s: %v and %v in all, want %v and %v", c.name, got, v.rate, c.want, c.all)
		}
		for id, want := range c.want {
			if got[id] != want {
				t.Errorf("%s: %v, want %v", c.name, got, c.want)
			}
		}
	}
}

// The use of a quota is that of the gateway that has decided last, not what another remembers.
func TestTopTakesTheLatestUse(t *testing.T) {
	all := map[string]*sums{}
	was := operate.Live{Tenants: []operate.LiveTenant{{ID: "a", Requests: 5}}}
	compare(operate.Live{Tenants: []operate.LiveTenant{{ID: "a", Requests: 5, MinuteUsed: 60, DayUsed: 100}}}, was, 1, all)
	compare(operate.Live{Tenants: []operate.LiveTenant{{ID: "a", Requests: 6, MinuteUsed: 3, DayUsed: 103}}}, was, 1, all)
	compare(operate.Live{Tenants: []operate.LiveTenant{{ID: "a", Requests: 7, MinuteUsed: 4, DayUsed: 102}}}, was, 1, all)
	if got := all["a"]; got.MinuteUsed != 4 || got.DayUsed != 103 {
		t.Errorf("minute %d, day %d, want 4 and 103", got.MinuteUsed, got.DayUsed)
	}
}

// typist types a key at each sleep of the program, and is a terminal otherwise.
type typist struct {
	keys  []string
	typed chan string
}

func (k *typist) Read(buffer []byte) (int, error) {
	key, ok := <-k.typed
	if !ok {
		return 0, io.EOF
	}
	return copy(buffer, key), nil
}

// watchScreen runs top on a terminal of a size. Keys are typed while it waits for the next refresh: one for each screen.
func watchScreen(t *testing.T, s *shell, columns, rows int, keys ...string) (frames []string, code exitCode) {
	t.Helper()
	k := &typist{keys: keys, typed: make(chan string)}
	restored := 0
	out := &screenWriter{}
	code = run([]string{"top"}, s.env, stdio{
		In: k, Out: out, Err: io.Discard, InTerminal: true, OutTerminal: true, ErrTerminal: true,
		Raw:   func() (func(), error) { return func() { restored++ }, nil },
		Size:  func() (int, int) { return columns, rows },
		Clock: func() time.Time { return s.now }, Random: s.random,
		Sleep: func(ctx context.Context, d time.Duration) error {
			for len(k.keys) > 0 {
				key := k.keys[0]
				k.keys = k.keys[1:]
				if key == "" { // no key: the next refresh
					break
				}
				k.typed <- key
			}
			if len(k.keys) == 0 {
				<-ctx.Done()
				return ctx.Err()
			}
			s.now = s.now.Add(d)
			return nil
		},
	})
	if restored != 1 || !strings.HasSuffix(out.all.String(), screenLeave) {
		t.Errorf("the terminal was restored %d times; the output ends with %q", restored, out.all.String()[max(0, out.all.Len()-20):])
	}
	return out.frames, code
}

// screenWriter keeps each screen that was drawn.
type screenWriter struct {
	all    strings.Builder
	frames []string
}

func (w *screenWriter) Write(p []byte) (int, error) {
	if text := string(p); strings.HasPrefix(text, screenHome) {
		text = strings.ReplaceAll(strings.TrimPrefix(text, screenHome), lineEnd, "\n")
		w.frames = append(w.frames, strings.TrimSuffix(text, "\x1b[K"+screenRest))
	}
	return w.all.Write(p)
}

func TestTopScreen(t *testing.T) {
	for _, size := range [][2]int{{60, 16}, {80, 24}, {200, 24}} {
		s, _, _ := watched(t)
		frames, code := watchScreen(t, s, size[0], size[1], "", "", "q")
		if code != exitDone || len(frames) != 3 {
			t.Fatalf("exit %d after %d screens", code, len(frames))
		}
		for _, frame := range frames[1:] {
			if n := strings.Count(frame, "\n"); n != size[1]-1 {
				t.Errorf("%d columns: a screen of %d lines:\n%s", size[0], n+1, frame)
			}
		}
		s.record.WriteString(frames[2])
		s.golden("top-screen-" + map[int]string{60: "60", 80: "80", 200: "200"}[size[0]])
	}
}

func TestTopKeys(t *testing.T) {
	s, _, _ := watched(t)
	frames, code := watchScreen(t, s, 100, 30, "", "?", "x", "s", "s", "s", "s", "\x1b[A", "/", "G", "l", "o", "o", "\x7f", "\r", "\x1b", "/", "\x1b", "\x03")
	if code != exitDone {
		t.Errorf("exit %d", code)
	}
	wants := []struct{ has, lacks string }{
		{"acme", "any key"},
		{"acme", "any key"},
		{"any key: back", "LAST 60 S  ▁"},
		{"s order: rate", "any key"},
		{"s order: minute", ""},
		{"s order: day", ""},
		{"s order: refused", ""},
		{"s order: bans", ""},
		{"s order: bans", ""},
		{"Filter by tenant or plan: _", ""},
		{": G_", "acme"},
		{": Gl_", "acme"},
		{": Glo_", "acme"},
		{": Gloo_", "globex"},
		{": Glo_", "acme"},
		{"/ filter: Glo  Esc all", "acme"},
		{"/ filter  s order", ""},
		{"plan: _", ""},
		{"/ filter  s order", ""},
	}
	if len(frames) != len(wants) {
		t.Fatalf("%d screens, want %d", len(frames), len(wants))
	}
	for i, want := range wants {
		if !strings.Contains(frames[i], want.has) || want.lacks != "" && strings.Contains(frames[i], want.lacks) {
			t.Errorf("screen %d: want %q and not %q:\n%s", i, want.has, want.lacks, frames[i])
		}
	}
	if bans := frames[7]; strings.Index(bans, "globex") > strings.Index(bans, "acme") {
		t.Errorf("by bans, globex comes first:\n%s", bans)
	}
}

package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/keystore/usage"
	"petgate/shared/operate"
	"petgate/shared/testkit"
	"petgate/shared/testkit/golden"
	"petgate/shared/testkit/must"
)

func TestTable(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	table{
		head: []string{"NAME", "N"},
		rows: [][]string{{"é", "1"}, {"日本語の会社", "4"}, {"a\x1b[31m\nb", "22"}, {"\u202eevil", "3"}},
	}.write(&out, 0)
	want := "NAME          N\n" +
		"é             1\n" +
		"日本語の会社  4\n" +
		"a?[31m?b      22\n" +
		"?evil         3\n"
	must.Equal(t, out.String(), want, "table")
}

func TestReadToken(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken pipe")
	for stdin, want := range map[string]string{
		"token\n": "token", "token": "token", "token\r\n": "token", "\n\n \t token \t\nrest\n": "token", "": "", " \n\t\n": "",
		strings.Repeat("x", 10*tokenBytesMax): strings.Repeat("x", tokenBytesMax),
	} {
		a := &app{stdio: stdio{In: strings.NewReader(stdin)}}
		if got, err := a.token(); string(got) != want || (err == nil) != (want != "") {
			t.Errorf("%.20q: token = %.20q, %v", stdin, got, err)
		}
	}
	a := &app{stdio: stdio{In: iotest.ErrReader(broken)}}
	if _, err := a.token(); !errors.Is(err, broken) {
		t.Errorf("token from a broken pipe: %v", err)
	}
	var said bytes.Buffer
	a = &app{stdio: stdio{InTerminal: true, Err: &said, Secret: func() ([]byte, error) { return nil, broken }}}
	if _, err := a.token(); !errors.Is(err, broken) || said.String() != "Token (not shown): \n" {
		t.Errorf("token from a broken terminal: %v, after %q", err, said.String())
	}
}

// If the output cannot be written, the command fails: a token that was not shown is lost.
func TestBrokenOutput(t *testing.T) {
	t.Parallel()
	a := &app{stdio: stdio{Out: brokenWriter{}}, cli: &cli{Output: "json"}}
	if err := a.printSecret(operate.KeyView{}, "token"); err == nil {
		t.Error("JSON to a broken pipe is no error")
	}
	a.cli.Output = "table"
	if err := a.printSecret(operate.KeyView{}, "token"); err == nil {
		t.Error("a token to a broken pipe is no error")
	}
}

// Tables fit the terminal, and each knows what it leaves out. Without a terminal they have their
// own width.
func TestWidths(t *testing.T) {
	t.Parallel()
	s := newMigrated(t, testkit.SQLite(t))
	s.ok("tenant", "create", "a tenant with a long name")
	s.ok("key", "create", "a tenant with a long name", "--name",
		"one-word-without-any-space-that-is-as-long-as-names-may-become")
	key := keyID(s, "a tenant with a long name")
	s.ok("ban", "add", key, "--for", "1h", "--reason", "it scrapes all pets, and its owner does not answer", "--yes")
	store := s.store()
	must.Get[keystore.Change](t)(
		store.ReportLost(t.Context(),
			[]keystore.LostRefusal{{Kind: keystore.LostSuspension, Tenant: tenantID(s, "a tenant with a long name")}}),
	)
	g := s.gateway(store, "gw-1.example.com", "10.0.0.5:9090")
	tenant := tenantID(s, "a tenant with a long name")
	used := []usage.Row{
		{Tenant: tenant, Key: must.Get[id.Key](t)(id.ParseKey(key)), Outcome: "ok", Hour: instant.Of(s.now), Requests: 1},
	}
	must.Do(t, usage.Of(store).AddUsage(t.Context(), g.Registration, 1, used, nil))
	s.terminal = true
	for _, s.width = range []int{80, 40} { // at 40, every table has to be narrowed
		for _, command := range []string{
			"tenant list", "plan list", "key list", "key show " + key, "ban list", "usage show --by key,outcome " +
				tenant.String(), "usage show --by outcome " +
				tenant.String(), "audit", "gateway list", "gateway lost", "doctor",
			"usage top", "operator list",
		} {
			for text := range strings.Lines(s.keyadmin(strings.Fields(command)...).stdout) {
				text = strings.TrimSuffix(text, "\n")
				if textWidth(text) > s.width {
					t.Errorf("keyadmin %s prints a line that is wider than %d columns:\n%s", command, s.width, text)
				}
			}
		}
	}
	s.width, s.env = 200, append(s.env[:2:2], "COLUMNS=60")
	for _, s.terminal = range []bool{true, false} {
		got := s.keyadmin("plan", "list")
		if strings.Contains(got.stdout, "CREATED") == s.terminal ||
			strings.Contains(got.stderr, "is too narrow for: CREATED. ") != s.terminal {
			t.Errorf("with COLUMNS=60, on a terminal: %t:\n%+v", s.terminal, got)
		}
	}
}

// A table on a terminal has 30 rows, and says if there are more, unless a limit was given.
func TestLongLists(t *testing.T) {
	t.Parallel()
	s := newMigrated(t, testkit.SQLite(t))
	tenants := "version: 1\ntenants:\n"
	for n := range rowsOnTerminal + 1 {
		tenants += fmt.Sprintf("- {name: tenant %d, plan: free}\n", n)
		if n+1 < rowsOnTerminal {
			continue
		}
		s.terminal = false
		s.ok("apply", s.file(tenants), "--yes")
		s.terminal = true
		for _, limit := range []struct {
			flag string
			rows int
			says string // if there are more rows
		}{
			{"", rowsOnTerminal, "There are more: --limit 0 shows all.\n"}, {"-n30", 30, ""}, {"-n31", 31, ""},
		} {
			r := s.keyadmin(strings.Fields("tenant list " + limit.flag)...)
			if n+1 <= rowsOnTerminal {
				limit.says = ""
			}
			must.Equal(t, strings.Count(r.stdout, "\n"), 1+min(n+1, limit.rows), "lines of %d tenants with %q", n+1,
				limit.flag)
			must.Equal(t, r.stderr, limit.says, "what is said of %d tenants with %q", n+1, limit.flag)
		}
	}
}

// A table goes through three steps until it fits: columns left out, cells broken at spaces, words
// cut.
func TestFit(t *testing.T) {
	t.Parallel()
	wide := table{
		head:  []string{"ID", "NOTE", "WHEN", "N"},
		rows:  [][]string{{"key_0123456789abcdef", "two words", "2026-03-01T12:00:00Z", "1"}},
		spare: []string{"WHEN", "N"},
	}
	sheet := table{rows: [][]string{{"The name", "a text of more words"}, {"Empty", ""}}}
	var all bytes.Buffer
	for _, width := range []int{0, 20, 24, 26, 27, 28, 40, 52, 53, 54} {
		fitting, omitted := wide.fit(width)
		fmt.Fprintf(&all, "# %d columns, without %v\n", width, omitted)
		fitting.write(&all, width)
		sheet.write(&all, width)
	}
	golden.Check(t, "fit", all.String())
}

// Charged and refused requests can be told apart without colour, and a few of them have a sign,
// too. Bars fit the width.
func TestBars(t *testing.T) {
	t.Parallel()
	hour := instant.Of(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC))
	row := func(n time.Duration, outcome string, requests int64) usage.Row {
		return usage.Row{
			Hour:     hour.Add(n * time.Hour),
			Outcome:  outcome,
			Charged:  outcome == "ok",
			Requests: requests,
		}
	}
	rows := []usage.Row{
		row(0, "ok", 1), row(1, "minute_quota_exceeded", 1), row(1, "report", 9), row(3, "ok", 3600),
		row(3, "key_banned", 2400), row(4, "ok", 5999), row(4, "key_banned", 1),
	}
	const want = `HOUR (UTC)            CHARGED  REFUSED
2026-03-01T09:00:00Z        1        0  █
2026-03-01T10:00:00Z        0        1  ░
2026-03-01T11:00:00Z        0        0
2026-03-01T12:00:00Z    3,600    2,400  ████████████░░░░░░░░
2026-03-01T13:00:00Z    5,999        1  ███████████████████░
`
	var got bytes.Buffer
	barsOf(rows, time.Hour, 60).write(&got, 60)
	must.Equal(t, got.String(), want, "bars")
	for got, want := range map[string]string{
		share(999, 0): "-", share(999, 1000): "99 %",
		operate.Listed(nil): "none", operate.Listed([]string{"a", "b"}): "a, b",
	} {
		must.Equal(t, got, want, "a text")
	}
	for limits, want := range map[plan.Limits]string{
		{Minute: 60}: "3,600 in each hour", {Minute: 60, Day: 3600}: "3,600 in each hour", {
			Minute: 60,
			Day:    3599,
		}: "3,599 in each day", {}: "",
	} {
		must.Equal(t, limitOf(limits, time.Hour), want, "the limit of %v", limits)
	}
}

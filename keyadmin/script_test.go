package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/keystore/usage"
	"petgate/shared/testkit"
	"petgate/shared/testkit/golden"
	"petgate/shared/testkit/must"
)

// Sessions, a file for each noun, as a person or a script has them. The database is SQLite: which
// one it is does not matter to keyadmin. The sentences of changes are tested in package operate, so
// sessions do not repeat them. After a change of a table or of JSON: go test -run TestScripts
// -update.
//
// A session has these commands beside those of testscript:
//
//	keyadmin ARGS       runs a command; it has to end with 0, and after ! with another code
//	ends CODE           checks the code with which the last command has ended
//	input TEXT          is the standard input of the next commands; of a file, if it is named
//	terminal WIDTH      has the next commands run at a terminal; off ends that
//	keep NAME PATTERN   sets a variable to what the last command has said: the pattern's group
//	database NAME       has the next commands use a database of its own; the usual one is first
//	gateway ID WHERE    registers a gateway with an address, or with a folder of answers
//	document ID FILE    says which document a gateway serves
//	follow ID HOURS     has a gateway apply all changes, and say until when it has stored usage
//	leave ID            has a gateway sign off
//	used ROW            stores usage: tenant, key, operation, outcome, hours ago, requests,
//	                    more units
//	minutes ROW         stores attempts: tenant, hours ago, and a minute with its attempts
//	lose KIND TENANT KEY reports a refusal that the database has lost
//
// A row that ends with the word test is of test keys. An argument - is empty.
func TestScripts(t *testing.T) {
	t.Parallel()
	commands := map[string]func(*testscript.TestScript, bool, []string){"keyadmin": runKeyadmin}
	for name, run := range map[string]func(*session, *testscript.TestScript, []string){
		"ends": (*session).ends, "input": (*session).input, "terminal": (*session).atTerminal, "keep": (*session).keep,
		"database": (*session).database,
		"gateway":  (*session).addGateway, "document": (*session).document, "follow": (*session).follow,
		"leave": (*session).leave, "used": (*session).used, "minutes": (*session).minutes, "lose": (*session).lose,
	} {
		commands[name] = func(ts *testscript.TestScript, _ bool, args []string) {
			run(ts.Value("session").(*session), ts, args)
		}
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", UpdateScripts: golden.Updates(), RequireUniqueNames: true, Cmds: commands,
		Setup: func(e *testscript.Env) error {
			t := e.T().(testing.TB)
			s := &session{shell: newMigrated(t, testkit.SQLite(t)), gateways: map[string]*gateway{}}
			s.store = s.shell.store()
			s.databases = map[string]string{"first": s.env[0]}
			e.Values["session"] = s
			return nil
		},
	})
}

// session is what a session needs beside a shell.
type session struct {
	*shell
	store    *keystore.Store
	gateways map[string]*gateway
	batches  int64 // of usage

	databases map[string]string // URLs, as the environment has them
	last      result
}

// unstable is what differs from run to run: the port and the files of a test, what is random, and
// what the database's own clock says.
var unstable = []struct {
	pattern *regexp.Regexp
	text    string
}{
	{regexp.MustCompile("\x1b"), "␛"},
	{regexp.MustCompile(`login#\w+`), "login#(code)"},
	{regexp.MustCompile(`\d+ (ms|s) ago`), "(age) ago"},
	{regexp.MustCompile(`(\(age\) ago|LAST SEEN) {2,}`), "$1  "}, // the column is as wide as the ages
	{regexp.MustCompile(`"(ageMillis|age|seenAt|registeredAt)": ("2[^"]*"|-?\d+)`), `"$1": (database's clock)`},
	{regexp.MustCompile(`127\.0\.0\.1:\d{4,5}`), "127.0.0.1:(port)"},
}

// epochMillis matches a time in ms. All output has times as text.
var epochMillis = regexp.MustCompile(`\b1[0-9]{12}\b`)

func runKeyadmin(ts *testscript.TestScript, isToFail bool, args []string) {
	s := ts.Value("session").(*session)
	s.last = s.shell.keyadmin(args...)
	for _, text := range []*string{&s.last.stdout, &s.last.stderr} {
		*text = strings.ReplaceAll(*text, ts.Getenv("WORK"), "$WORK")
		if ms := epochMillis.FindString(*text); ms != "" {
			ts.Fatalf("a time is written as %s", ms)
		}
		for _, u := range unstable {
			*text = u.pattern.ReplaceAllString(*text, u.text)
		}
	}
	fmt.Fprint(ts.Stdout(), s.last.stdout)
	fmt.Fprint(ts.Stderr(), s.last.stderr)
	if (s.last.code != exitDone) != isToFail {
		ts.Fatalf("exit %d: %s", s.last.code, s.last.stderr)
	}
}

func (s *session) ends(ts *testscript.TestScript, args []string) {
	if fmt.Sprint(s.last.code) != args[0] {
		ts.Fatalf("exit %d, want %s", s.last.code, args[0])
	}
}

func (s *session) input(ts *testscript.TestScript, args []string) {
	s.stdin = args[0] + "\n"
	if text, err := os.ReadFile(ts.MkAbs(args[0])); err == nil {
		s.stdin = string(text)
	}
}

func (s *session) atTerminal(_ *testscript.TestScript, args []string) {
	s.terminal = args[0] != "off"
	s.width, _ = strconv.Atoi(args[0])
}

func (s *session) database(_ *testscript.TestScript, args []string) {
	if s.databases[args[0]] == "" {
		s.databases[args[0]] = newMigrated(s.t, testkit.SQLite(s.t)).env[0]
	}
	s.env[0] = s.databases[args[0]]
}

func (s *session) keep(ts *testscript.TestScript, args []string) {
	found := regexp.MustCompile(args[1]).FindStringSubmatch(s.last.stdout + s.last.stderr)
	if found == nil {
		ts.Fatalf("the last command has not said %s", args[1])
	}
	ts.Setenv(args[0], found[len(found)-1])
}

func (s *session) addGateway(ts *testscript.TestScript, args []string) {
	address := args[1]
	if files, err := os.ReadDir(ts.MkAbs(address)); err == nil {
		answers := map[string]any{}
		for _, file := range files {
			answer := json.RawMessage(ts.ReadFile(address + "/" + file.Name()))
			answers["/"+file.Name()], answers["/"+file.Name()+"/"] = answer, answer
		}
		address = testkit.AdminPort(s.t, answers)
	}
	s.gateways[args[0]] = s.shell.gateway(s.store, args[0], address)
}

func (s *session) document(ts *testscript.TestScript, args []string) {
	var d keystore.Document
	must.Do(s.t, json.Unmarshal([]byte(ts.ReadFile(args[1])), &d))
	must.Do(s.t, s.store.DescribeGateway(s.t.Context(), s.gateways[args[0]].Registration, d))
}

func (s *session) follow(_ *testscript.TestScript, args []string) {
	g := s.gateways[args[0]]
	if len(args) > 1 {
		g.UsageThrough = s.hour(args[1])
	}
	g.follow()
}

func (s *session) leave(_ *testscript.TestScript, args []string) {
	must.Do(s.t, s.store.SignOff(s.t.Context(), s.gateways[args[0]].Registration))
}

// hour is when the hour began that many hours ago.
func (s *session) hour(ago string) instant.Millis {
	return instant.Of(s.now).Truncate(time.Hour).Add(-time.Duration(number(s.t, ago)) * time.Hour)
}

func (s *session) used(_ *testscript.TestScript, args []string) {
	row := usage.Row{
		Tenant: tenantID(s.shell, args[0]), Operation: strings.TrimPrefix(args[2], "-"), Outcome: args[3],
		Charged: args[3] == "ok", Hour: s.hour(args[4]), IsTest: args[len(args)-1] == "test",
		Requests: number(s.t, args[5]), MoreUnits: number(s.t, args[6]), LastAt: instant.Of(s.now),
	}
	if args[1] != "-" {
		row.Key = must.Get[id.Key](s.t)(id.ParseKey(args[1]))
	}
	s.add([]usage.Row{row}, nil)
}

func (s *session) minutes(_ *testscript.TestScript, args []string) {
	row := usage.Minutes{
		Tenant: tenantID(s.shell, args[0]), Hour: s.hour(args[1]), IsTest: args[len(args)-1] == "test",
	}
	row.Attempts[number(s.t, args[2])] = number(s.t, args[3])
	s.add(nil, []usage.Minutes{row})
}

// add stores usage in the name of the first gateway.
func (s *session) add(rows []usage.Row, minutes []usage.Minutes) {
	s.batches++
	must.Do(s.t, usage.Of(s.store).AddUsage(s.t.Context(), s.gateways["gw-1"].Registration, s.batches, rows, minutes))
}

func (s *session) lose(_ *testscript.TestScript, args []string) {
	lost := keystore.LostRefusal{Kind: args[0], Tenant: tenantID(s.shell, args[1])}
	if args[2] != "-" {
		lost.Key, lost.At = must.Get[id.Key](s.t)(id.ParseKey(args[2])), instant.Of(s.now)
	}
	must.Get[keystore.Change](s.t)(s.store.ReportLost(s.t.Context(), []keystore.LostRefusal{lost}))
}

func number(t testing.TB, text string) int64 {
	t.Helper()
	return must.Get[int64](t)(strconv.ParseInt(text, 10, 64))
}

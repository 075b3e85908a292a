package main

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// Every command has a help text with an example. Its arguments and flags are in the golden file: scripts rely on them.
func TestHelp(t *testing.T) {
	s := newShell(t, testkit.SQLite(t))
	parser, err := kong.New(&cli{}, kong.Name("keyadmin"), kong.Vars{"version": "-"})
	must.Do(t, err)
	if got := s.ok("--version"); !strings.HasPrefix(got, "keyadmin ") {
		t.Errorf("--version = %q", got)
	}
	s.want(exitDone, "", "--help")
	s.record.Reset()
	list := func(of *kong.Node) {
		for _, argument := range of.Positional {
			fmt.Fprintf(&s.record, " %s", argument.Summary())
		}
		for _, flag := range of.Flags {
			if flag.Name != "help" && !flag.Hidden {
				fmt.Fprintf(&s.record, " %s", strings.ReplaceAll(flag.String(), ", ", "|"))
			}
		}
		s.record.WriteString("\n")
	}
	list(parser.Model.Node)
	for _, command := range parser.Model.Leaves(true) {
		path := command.Path()
		s.record.WriteString(path)
		list(command)
		recorded := s.record.String()
		for _, width := range []int{60, 100} {
			t.Setenv("COLUMNS", strconv.Itoa(width))
			help := s.want(exitDone, "", append(strings.Fields(path), "--help")...).stdout
			if !strings.Contains(help, "Examples:\n\n") || !strings.Contains(help, "    keyadmin "+path) {
				t.Errorf("the help of %s has no example:\n%s", path, help)
			}
			_, flags, _ := strings.Cut(help, "\nFlags:\n")
			for line := range strings.Lines(flags) {
				if line = strings.TrimSuffix(line, "\n"); utf8.RuneCountInString(line) > width {
					t.Errorf("the help of %s is wider than %d columns:\n%s", path, width, line)
				}
			}
		}
		s.record.Reset()
		s.record.WriteString(recorded)
	}
	s.golden("help")
}

// Invalid command lines end with 2, name every problem that can be found at once, and never reach the database.
func TestBadUsage(t *testing.T) {
	t.Parallel()
	s := newShell(t, "sqlite:/nowhere/at/all.db")
	const key = "key_0123456789abcdef"
	for _, c := range []struct{ args, want string }{
		{"key revoke --ye", `did you mean one of "--yes"`},
		{"tenant create acme --minute 1,000 --day 1.5 --plan Pro -o xml", "4 problems"},
		{"tenant create ten_1", "may not begin with ten_"},
		{"tenant set-quota acme --clear --minute 1", "do not combine it with --minute, --day or --month"},
		{"key create acme --wait -o xml", "--wait: it needs a value"},
		{"key show " + strings.ToUpper(key), "is not an ID"},
		{"usage show acme --by month --since never", "2 problems"},
	} {
		if r := s.want(exitUsage, c.want, strings.Fields(c.args)...); r.stdout != "" {
			t.Errorf("keyadmin %s: bad usage on standard output:\n%s", c.args, r.stdout)
		}
	}
}

// Every user can read arguments in ps. A secret argument is therefore refused and not repeated.
func TestSecretsAreNoArguments(t *testing.T) {
	t.Parallel()
	s := newMigrated(t, testkit.SQLite(t))
	s.ok("tenant", "create", "acme")
	token := s.ok("key", "create", "acme")
	for _, args := range [][]string{
		{"key", "whoami", token},
		{"key", "whoami", "  " + strings.ToUpper(token)},
		{"key", "show", token[:20]},
		{"usage", "explain", "--token=" + token},
		{"key", "create", "acme", "--name", "was " + token},
		{token},
		{"tenant", "list", "--database-url", "postgres://root:hunter2@db/petgate"},
		{"tenant", "list", "--database-url=postgres://root:hunter2@db/petgate"},
	} {
		r := s.want(exitUsage, "it is not repeated here", args...)
		if said := strings.ToLower(r.stdout + r.stderr); strings.Contains(said, strings.ToLower(token[9:15])) || strings.Contains(said, "hunter2") {
			t.Errorf("keyadmin repeats a secret:\n%s%s", r.stdout, r.stderr)
		}
	}
}

func TestDatabaseURL(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	good, empty := file("good", "sqlite:good.db\n"), file("empty", " \n")
	for _, c := range []struct {
		name, flag string
		env        map[string]string
		want, fail string
	}{
		{name: "default", want: "sqlite:var/petgate.db"},
		{name: "environment", env: map[string]string{"DATABASE_URL": "sqlite:env.db"}, want: "sqlite:env.db"},
		{name: "flag", flag: good, env: map[string]string{"DATABASE_URL": "sqlite:env.db"}, want: "sqlite:good.db"},
		{name: "no file", flag: filepath.Join(dir, "none"), fail: "no such file"},
		{name: "an empty file", flag: empty, fail: "is empty"},
	} {
		a, args, got := &app{cli: &cli{}, env: c.env}, []string{"tenant", "list"}, ""
		if c.flag != "" {
			args = append(args, "--database-url-file", c.flag)
		}
		_, err := a.parse(args)
		if err == nil {
			got, err = a.databaseURL()
		}
		if got != c.want || (err != nil) != (c.fail != "") || err != nil && !strings.Contains(err.Error(), c.fail) {
			t.Errorf("%s: databaseURL = %q, %v; want %q, %q", c.name, got, err, c.want, c.fail)
		}
	}
}

func TestDatabaseErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, url string
		code      exitCode
		want      string
	}{
		{"missing file", testkit.SQLite(t), exitFailed, "`keyadmin migrate` creates it"},
		{"another kind", "mysql://root:hunter2@db/petgate", exitUsage, "invalid database URL"},
		{"broken", "postgres://root:hunt%er2@db/petgate", exitUsage, "percent-encode"},
		{"not a database", "sqlite:../README.md", exitFailed, "the file is not a SQLite database, or it is damaged"},
		{"nobody there", "postgres://root:hunter2@127.0.0.1:1/petgate?sslmode=disable", exitFailed, "check that it is running"},
	} {
		s := newShell(t, c.url)
		for _, args := range [][]string{{"tenant", "list"}, {"key", "list", "-o", "json"}, {"tenant", "create", "acme"}} {
			if r := s.want(c.code, c.want, args...); r.stdout != "" || strings.Contains(r.stderr, "operate.") || strings.Contains(r.stderr, "hunt") {
				t.Errorf("%s: standard output %q, standard error %q", c.name, r.stdout, r.stderr)
			}
		}
		if c.name == "nobody there" {
			s.want(c.code, c.want, "migrate")
		}
		if path, ok := strings.CutPrefix(c.url, "sqlite:"); ok && c.name == "missing file" {
			if _, err := os.Stat(path); err == nil {
				t.Errorf("%s: a command that is not migrate created the file", c.name)
			}
		}
	}
}

// Commands refuse to work on tables of another version than their own.
func TestSchema(t *testing.T) {
	t.Parallel()
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		s := newMigrated(t, url)
		db := s.open()
		if _, err := db.Exec(`UPDATE keystore_schema SET version_id = version_id + 1000`); err != nil {
			t.Fatal(err)
		}
		s.want(exitFailed, "upgrade the program", "tenant", "list")
		s.want(exitFailed, "use a newer keyadmin", "migrate")
		if _, err := db.Exec(`DROP TABLE keystore_schema`); err != nil {
			t.Fatal(err)
		}
		s.want(exitFailed, "with `keyadmin migrate`", "tenant", "list")
	})
}

// At a terminal, each destructive verb asks a question, and goes on only if the answer is yes.
func TestQuestions(t *testing.T) {
	t.Parallel()
	s := newMigrated(t, testkit.SQLite(t))
	s.ok("tenant", "create", "acme")
	s.ok("tenant", "create", "globex", "--minute", "500")
	s.ok("key", "create", "acme")
	key := keyID(s, "acme")
	s.gateway(s.store(), "gw-1", "10.0.0.5:9090")
	s.terminal = true
	for i, args := range [][]string{
		{"tenant", "set-quota", "globex", "--minute", "499"},
		{"plan", "update", "free", "--minute", "10"},
		{"key", "rotate", key, "--grace", "1h"},
		{"key", "revoke", key},
		{"gateway", "forget", "gw-1"},
	} {
		before := s.events()
		answers := []string{"n\n"}
		if i == 0 {
			answers = []string{"", "\n", "n\n", "no\n", "yesterday\n", "\x04"}
		}
		for _, answer := range answers {
			s.stdin = answer
			r := s.want(exitFailed, "nothing was changed", args...)
			if !strings.Contains(r.stderr, "[y/N] ") {
				t.Errorf("keyadmin %s did not ask:\n%s", quoted(args), r.stderr)
			}
		}
		if after := s.events(); after != before {
			t.Errorf("keyadmin %s, answered no, made %d events", quoted(args), after-before)
		}
		s.stdin = "Yes\r\n"
		if r := s.keyadmin(append(args, "--output", "json")...); r.code == exitFailed || r.code == exitUsage {
			t.Errorf("keyadmin %s, answered yes: exit %d\n%s", quoted(args), r.code, r.stderr)
		}
		if s.events() == before {
			t.Errorf("keyadmin %s, answered yes, changed nothing", quoted(args))
		}
	}
	// A script is not asked about what takes nothing away. TestWrongCalls has the questions for which it needs --yes.
	s.terminal = false
	s.keyadmin("key", "create", "acme", "--wait", "0")
	key = keyID(s, "acme")
	for _, args := range [][]string{
		{"plan", "update", "free", "--day", "2000"}, {"key", "rotate", key, "--grace", "1h"}, {"ban", "lift", key},
	} {
		if r := s.keyadmin(append(args, "--wait", "0")...); r.code == exitFailed || r.code == exitUsage {
			t.Errorf("keyadmin %s takes nothing away and needs --yes: exit %d\n%s", quoted(args), r.code, r.stderr)
		}
	}
}

// Colour is for terminals that want it.
func TestColour(t *testing.T) {
	t.Parallel()
	s := newMigrated(t, testkit.SQLite(t))
	for _, c := range []struct {
		terminal bool
		env      string
		want     bool
	}{
		{true, "", true},
		{true, "NO_COLOR=", true},
		{true, "TERM=xterm", true},
		{true, "NO_COLOR=1", false},
		{true, "TERM=dumb", false},
		{false, "TERM=xterm", false},
	} {
		s.terminal, s.env = c.terminal, append(s.env[:2:2], c.env)
		good, bad := s.keyadmin("plan", "list"), s.keyadmin("plan", "list", "-o", "xml")
		for stream, text := range map[string]string{"output": good.stdout, "error": bad.stderr} {
			if got := strings.Contains(text, "\x1b["); got != c.want {
				t.Errorf("terminal %t, %q: colour on standard %s: %t\n%s", c.terminal, c.env, stream, got, text)
			}
		}
		if r := s.keyadmin("plan", "list", "-o", "json"); strings.Contains(r.stdout, "\x1b") {
			t.Errorf("terminal %t, %q: colour in JSON", c.terminal, c.env)
		}
	}
}

func TestActor(t *testing.T) {
	t.Parallel()
	system, err := user.Current()
	must.Do(t, err)
	for _, c := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"SUDO_USER": "anna", "USER": "root"}, "keyadmin:anna"},
		{map[string]string{"USER": "root"}, "keyadmin:root"},
		{map[string]string{"LOGNAME": "bert"}, "keyadmin:bert"},
		{nil, "keyadmin:" + system.Username},
	} {
		if got := (&app{env: c.env}).actor(); got != c.want {
			t.Errorf("actor of %v = %q, want %q", c.env, got, c.want)
		}
	}
}

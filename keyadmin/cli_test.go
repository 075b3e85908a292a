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
		if r := s.want(c.code, c.want, "tenant", "list"); r.stdout != "" || strings.Contains(r.stderr, "operate.") || strings.Contains(r.stderr, "hunt") {
			t.Errorf("%s: standard output %q, standard error %q", c.name, r.stdout, r.stderr)
		}
		if path, ok := strings.CutPrefix(c.url, "sqlite:"); ok && c.name == "missing file" {
			if _, err := os.Stat(path); err == nil {
				t.Errorf("%s: a command that is not migrate created the file", c.name)
			}
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

// At a terminal, a command that takes something away goes on only if the answer is yes. TestVerbs of package operate has the questions, and
// TestWrongCalls those for which a script needs --yes.
func TestQuestions(t *testing.T) {
	t.Parallel()
	s := newMigrated(t, testkit.SQLite(t))
	s.ok("tenant", "create", "acme")
	s.terminal = true
	before := s.events()
	for _, s.stdin = range []string{"", "\n", "n\n", "no\n", "yesterday\n", "\x04"} {
		if r := s.want(exitFailed, "nothing was changed", "tenant", "suspend", "acme"); !strings.Contains(r.stderr, "[y/N] ") || s.events() != before {
			t.Errorf("answered %q: %d events\n%s", s.stdin, s.events()-before, r.stderr)
		}
	}
	s.stdin = "Yes\r\n"
	if s.ok("tenant", "suspend", "acme", "-o", "json"); s.events() != before+1 {
		t.Error("answered yes, it changed nothing")
	}
}

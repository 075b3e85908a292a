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
	parser := must.Get[*kong.Kong](t)(kong.New(&cli{}, kong.Name("keyadmin"), kong.Vars{"version": "-"}))
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

// A flag goes before the environment.
func TestDatabaseURL(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"good": "sqlite:good.db\n", "empty": " \n"} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for _, c := range []struct{ file, env, want string }{
		{"", "", "sqlite:var/petgate.db"},
		{"", "sqlite:env.db", "sqlite:env.db"},
		{"good", "sqlite:env.db", "sqlite:good.db"},
		{"none", "", "no such file or directory"},
		{"empty", "", "is empty"},
	} {
		a, args := &app{cli: &cli{}, env: map[string]string{}}, []string{"tenant", "list"}
		if c.env != "" {
			a.env["DATABASE_URL"] = c.env
		}
		if c.file != "" {
			args = append(args, "--database-url-file", filepath.Join(dir, c.file))
		}
		must.Get[*kong.Context](t)(a.parse(args))
		if got, err := a.databaseURL(); got != c.want && (err == nil || !strings.HasSuffix(err.Error(), c.want)) {
			t.Errorf("%+v: %q, %v", c, got, err)
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
	system := must.Get[*user.User](t)(user.Current())
	for _, c := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"SUDO_USER": "anna", "USER": "root"}, "anna"},
		{map[string]string{"USER": "carl", "LOGNAME": "bert"}, "carl"},
		{map[string]string{"LOGNAME": "bert"}, "bert"},
		{nil, system.Username},
	} {
		if got := (&app{env: c.env}).actor(); got != "keyadmin:"+c.want {
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
		if r := s.want(exitFailed, "keyadmin: not confirmed; nothing was changed\n", "tenant", "suspend", "acme"); !strings.Contains(r.stderr, "[y/N] ") || s.events() != before {
			t.Errorf("answered %q: %d events\n%s", s.stdin, s.events()-before, r.stderr)
		}
	}
	s.stdin = "Yes\r\n"
	if s.ok("tenant", "suspend", "acme", "-o", "json"); s.events() != before+1 {
		t.Error("answered yes, it changed nothing")
	}
}

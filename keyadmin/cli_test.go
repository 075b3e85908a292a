package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"petgate/shared/keystore"
	"petgate/shared/operate"
	"petgate/shared/testkit"
	"petgate/shared/testkit/golden"
	"petgate/shared/testkit/must"
)

// Every command has a help text with an example. Its arguments and flags are in the golden file:
// scripts rely on them.
func TestHelp(t *testing.T) {
	const width = 60
	t.Setenv("COLUMNS", strconv.Itoa(width))
	s := newShell(t, testkit.SQLite(t))
	parser := must.Get[*kong.Kong](t)(kong.New(&cli{}, kong.Name("keyadmin"), kong.Vars{"version": "-"}))
	if got := s.ok("--version"); !strings.HasPrefix(got, "keyadmin ") {
		t.Errorf("--version = %q", got)
	}
	s.want(exitDone, "", "--help")
	var all strings.Builder
	list := func(of *kong.Node) {
		for _, argument := range of.Positional {
			fmt.Fprintf(&all, " %s", argument.Summary())
		}
		for _, flag := range of.Flags {
			if flag.Name != "help" && !flag.Hidden {
				fmt.Fprintf(&all, " %s", strings.ReplaceAll(flag.String(), ", ", "|"))
			}
		}
		all.WriteString("\n")
	}
	list(parser.Model.Node)
	for _, command := range parser.Model.Leaves(true) {
		path := command.Path()
		all.WriteString(path)
		list(command)
		help := s.want(exitDone, "", append(strings.Fields(path), "--help")...).stdout
		if !strings.Contains(help, "Examples:\n\n") || !strings.Contains(help, "    keyadmin "+path) {
			t.Errorf("the help of %s has no example:\n%s", path, help)
		}
		_, flags, _ := strings.Cut(help, "\nFlags:\n")
		for line := range strings.Lines(flags) {
			line = strings.TrimSuffix(line, "\n")
			if utf8.RuneCountInString(line) > width {
				t.Errorf("the help of %s is wider than %d columns:\n%s", path, width, line)
			}
		}
	}
	golden.Check(t, "help", all.String())
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
		if said := strings.ToLower(r.stdout + r.stderr); strings.Contains(said, strings.ToLower(token[9:15])) ||
			strings.Contains(said, "hunter2") {
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
		if r := s.want(c.code, c.want, "tenant", "list"); r.stdout != "" || strings.Contains(r.stderr, "operate.") ||
			strings.Contains(r.stderr, "hunt") {
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
		must.Equal(t, (&app{env: c.env}).actor(), "keyadmin:"+c.want, "actor of %v", c.env)
	}
}

// fleetOf are gateways that do not change.
type fleetOf []keystore.Gateway

func (f fleetOf) Gateways(context.Context) ([]keystore.Gateway, error) { return f, nil }

// A change that is not confirmed ends with 3, and what to do about it are commands of keyadmin.
// TestWait of package operate has the waiting.
func TestConfirm(t *testing.T) {
	t.Parallel()
	const laggards = "done, but confirmed by only 0 of 1 gateways after 0 ms:\n  gw-1, "
	silent := keystore.Gateway{ID: "gw-1", Applied: 6, Age: 43_000, MaxAge: 60_000}
	for _, c := range []struct {
		gateway keystore.Gateway
		code    exitCode
		want    string
	}{
		{keystore.Gateway{ID: "gw-1", Applied: 7}, exitDone, "confirmed by 1 of 1 gateways in 0 ms\n"},
		{silent, exitUnconfirmed, laggards + "silent for 43 s, may still accept this key\n" +
			"A silent gateway refuses every call once its maximum age has passed: repeat the command with --wait 1m2s " +
			"to see the change confirmed.\n"},
		{keystore.Gateway{ID: "gw-1", Applied: 6}, exitUnconfirmed, laggards +
			"last seen 0 ms ago, may still accept this key\n" +
			"Gateways seen recently are probably still catching up; check the LAG column of `keyadmin gateway list`.\n"},
	} {
		var said bytes.Buffer
		a := &app{stdio: stdio{Err: &said, Clock: func() time.Time { return time.UnixMilli(0) }, Sleep: operate.Sleep}}
		code := a.report(
			a.confirm(t.Context(), fleetOf{c.gateway}, 7, "may still accept this key", operate.Delay{Given: true}),
		)
		if code != c.code || said.String() != c.want {
			t.Errorf("exit %d: %s\nwant %s", code, said.String(), c.want)
		}
	}
}

// The built program, as scripts use it: streams, exit codes, and no questions to a person.
func TestBinary(t *testing.T) {
	t.Parallel()
	path := testkit.Build(t, "petgate/keyadmin")
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		env := []string{"DATABASE_URL=" + url, "USER=script"}
		want := func(code int, stdin string, args ...string) string {
			t.Helper()
			var stdout, stderr bytes.Buffer
			cmd := exec.CommandContext(t.Context(), path, args...)
			cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, strings.NewReader(stdin), &stdout, &stderr
			if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
				t.Fatalf("keyadmin %s: %v, want %d\n%s%s", quoted(args), err, code, stdout.String(), stderr.String())
			}
			return stdout.String()
		}
		want(1, "", "tenant", "list")
		want(0, "", "migrate")
		want(2, "", "tenant", "list", "-o", "xml")
		want(0, "", "tenant", "create", "acme")
		token := want(0, "", "key", "create", "acme", "--name", "ci")
		if !strings.HasPrefix(token, "ptg_live_") || strings.Count(token, "\n") != 1 {
			t.Fatalf("key create prints %q", token)
		}
		var key struct{ ID string }
		must.Do(t, json.Unmarshal([]byte(want(0, token, "key", "whoami", "--output", "json")), &key))

		// A gateway never answers: an interrupt ends the wait, and keyadmin says so.
		s := newShell(t, url)
		s.gateway(s.store(), "gw-1", "10.0.0.5:9090")
		p := testkit.Start(t, path, env, "key", "revoke", key.ID, "--yes", "--wait", "10m")
		testkit.Eventually(t, time.Minute, "the key is revoked", func() bool {
			return strings.Contains(p.Stderr.String(), "Revoked key "+key.ID)
		})
		p.Signal(os.Interrupt)
		must.Equal(t, p.ExitCode(t), int(exitUnconfirmed), "exit code after an interrupt")
		if got := p.Stderr.String(); !strings.Contains(
			got, "gw-1 (10.0.0.5), still starting, may still accept this key",
		) {
			t.Errorf("after an interrupt it says:\n%s", got)
		}
		want(3, "", "key", "revoke", key.ID, "-y", "--wait", "0")
		want(0, "", "gateway", "forget", "gw-1", "--yes")
		want(0, "", "key", "revoke", key.ID, "--yes")
	})
}

// candidatesOf completes the last of the words and returns the candidates without their
// descriptions.
func candidatesOf(s *shell, words ...string) string {
	s.t.Helper()
	r := s.keyadmin(append([]string{completeCommand}, words...)...)
	if r.code != exitDone || r.stderr != "" {
		s.t.Errorf("%s: exit %d\n%s", quoted(words), r.code, r.stderr)
	}
	var all []string
	for line := range strings.Lines(r.stdout) {
		word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
		all = append(all, word)
	}
	return strings.Join(all, " ")
}

func TestComplete(t *testing.T) {
	t.Parallel()
	s := newShell(t, "sqlite:/nowhere/none.db")
	const nouns = "migrate tenant plan key ban usage top audit gateway doctor export diff apply backup " +
		"restore operator console completion"
	for _, c := range []struct{ words, want string }{
		{"|", nouns},
		{"te|", "tenant"},
		{"tenant s|", "show suspend set-plan set-quota"},
		{"help tenant s|", "show suspend set-plan set-quota"},
		{"key create acme --if|", "--if-not-exists"},
		{"key create --test --if|", "--if-not-exists"},
		{"-o json te|", "tenant"},
		{"restore |", ""},
		{"-o |", ""},
		{"nosuch command |", nouns},
	} {
		words := strings.Split(strings.TrimSuffix(c.words, "|"), " ")
		must.Equal(t, candidatesOf(s, words...), c.want, "%s", c.words)
	}
}

// Bash completes a command, a flag and the value of a flag.
func TestCompletionInBash(t *testing.T) {
	t.Parallel()
	const complete = `source <(keyadmin completion bash)
read -ra COMP_WORDS <<<"$1"
[[ $1 == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_keyadmin && echo "${COMPREPLY[*]}"`
	dir := t.TempDir()
	must.Do(t, os.Symlink(testkit.Build(t, "petgate/keyadmin"), filepath.Join(dir, "keyadmin")))
	for line, want := range map[string]string{
		"keyadmin ten": "tenant", "keyadmin tenant sho": "show", "keyadmin plan ": "list create update delete",
		"keyadmin plan list --out": "--output", "keyadmin backup file --key-": "--key-file",
	} {
		cmd := exec.Command("bash", "--norc", "-c", complete, "bash", line)
		cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
		if got, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%s: %s, %v, want %s", line, got, err, want)
		}
	}
}

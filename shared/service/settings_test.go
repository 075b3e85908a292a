package service_test

import (
	"bytes"
	_ "embed"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"petgate/shared/service"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

//go:embed settings_test.go
var source string

type settings struct {
	service.Settings `embed:"" envprefix:"TEST_"`

	// Public address. Its help is this comment,
	// up to the first empty line.
	//
	// This is for readers of the code.
	Listen string `env:"TEST_LISTEN" default:"127.0.0.1:8080"`

	Admin    string         `name:"admin-listen" env:"TEST_ADMIN_LISTEN" default:"127.0.0.1:1" help:"Private address."`
	File     string         `env:"TEST_FILE" help:"It is written."`
	After    int            `name:"ban-after" env:"TEST_BAN_AFTER" default:"30" help:"Strikes."`
	Proxies  []netip.Prefix `env:"TEST_PROXIES" help:"Trusted."`
	Database service.Secret `name:"database-url" env:"TEST_DATABASE" default:"sqlite:var/x.db" help:"Where data is."`
}

func (s *settings) Source() string                    { return source }
func (s *settings) Addresses() (public, admin string) { return s.Listen, s.Admin }
func (s *settings) Written() []string                 { return []string{"", s.File} }

func (s *settings) BadSettings() service.BadSettings {
	bad := s.Settings.BadSettings()
	bad.Require(s.After >= 0, "ban-after", "it must not be negative")
	bad.Require(s.Database != "", "database-url", "it is empty")
	return bad
}

// loaded is what service.Load made of arguments and the environment.
type loaded struct {
	settings  settings
	code      int
	done      bool // the program ends
	out, errs string
}

func load(args ...string) (l loaded) {
	var out, errs bytes.Buffer
	l.code, l.done = service.Load(&l.settings, "prog", "A program.", args, &out, &errs)
	l.out, l.errs = out.String(), errs.String()
	return l
}

func TestPrecedence(t *testing.T) {
	f := func(listen string, delay time.Duration, database service.Secret, proxies int, args ...string) {
		t.Helper()
		l := load(args...)
		must.Equal(t, l.done, false, "the program ends with %s", l.errs)
		must.Equal(t, l.settings.Listen, listen, "listen")
		must.Equal(t, l.settings.DrainDelay, delay, "drain-delay")
		must.Equal(t, string(l.settings.Database), string(database), "database")
		must.Equal(t, len(l.settings.Proxies), proxies, "proxies")
	}
	f("127.0.0.1:8080", 5*time.Second, "sqlite:var/x.db", 0)
	t.Setenv("TEST_LISTEN", ":1")
	t.Setenv("TEST_DRAIN_DELAY", "7s")
	t.Setenv("TEST_PROXIES", "10.0.0.0/8,::1/128")
	t.Setenv("TEST_DATABASE", "postgres://u:pw@h/d")
	f(":1", 9*time.Second, "postgres://u:pw@h/d", 2, "--drain-delay", "9s")
	t.Setenv("TEST_PROXIES", "")
	f(":1", 7*time.Second, "postgres://u:pw@h/d", 0)
}

func TestEveryProblemIsNamed(t *testing.T) {
	t.Setenv("TEST_BAN_AFTER", "many")
	t.Setenv("TEST_PROXIES", "10.0.0.0/8,nonsense")
	t.Setenv("TEST_DATABASE", "sqlite:x")
	t.Setenv("TEST_DATABASE_FILE", "/nonexistent")
	f := func(args []string, problems ...string) {
		t.Helper()
		l := load(args...)
		must.Equal(t, l.code, 2, "%q: exit code", args)
		must.Equal(t, l.done, true, "%q: the program ends", args)
		must.Equal(t, l.out, "", "%q: output", args)
		for _, problem := range append(problems, fmt.Sprintf("prog: %d problems:", len(problems))) {
			if !strings.Contains(l.errs, problem) {
				t.Errorf("%q: not named: %s\n%s", args, problem, l.errs)
			}
		}
		for _, raw := range []string{"netip", "slog", "time:", "strconv", "u:pw"} {
			if strings.Contains(l.errs, raw) {
				t.Errorf("the text of a Go package, or a secret, %s:\n%s", raw, l.errs)
			}
		}
	}
	ofEnvironment := []string{
		`TEST_BAN_AFTER (--ban-after) is "many": use a whole number`,
		`TEST_PROXIES (--proxies) is "10.0.0.0/8,nonsense": use CIDR blocks`,
		"TEST_DATABASE and TEST_DATABASE_FILE are both set",
	}
	f([]string{"--drain-delay=soon", "--log-level=loud", "--drain-limit=0s"}, append(
		ofEnvironment,
		`TEST_DRAIN_DELAY (--drain-delay) is "soon": use a duration`,
		`TEST_LOG_LEVEL (--log-level) is "loud": use debug, info`,
		`TEST_DRAIN_LIMIT (--drain-limit) is "0s": it must be positive`,
	)...)
	// After an argument that cannot be placed, no arguments are read. Earlier arguments and the
	// environment are read.
	f([]string{"--drain-delay=soon", "--what"}, append(ofEnvironment, `"soon"`, "unknown flag --what")...)
	f([]string{"stray"}, append(ofEnvironment, "unexpected argument stray")...)
	f([]string{"--database-url=postgres://u:pw@h/d"},
		append(ofEnvironment, "set TEST_DATABASE or TEST_DATABASE_FILE")...)
	t.Setenv("TEST_DATABASE_FILE", "")
	t.Setenv("TEST_PROXIES", "")
	t.Setenv("TEST_BAN_AFTER", "-1")
	f([]string{"--drain-delay=-1s"}, `TEST_DRAIN_DELAY (--drain-delay) is "-1s": it must not be negative`,
		`TEST_BAN_AFTER (--ban-after) is "-1"`)
	must.Equal(t, load().errs, "prog: TEST_BAN_AFTER (--ban-after) is \"-1\": it must not be negative\n", "one problem")
}

func TestSecretFromFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	must.Do(t, os.WriteFile(path, []byte("postgres://u:pw@h/d \r\n"), 0o600))
	t.Setenv("TEST_DATABASE_FILE", path)
	l := load()
	must.Equal(t, string(l.settings.Database), "postgres://u:pw@h/d ", "the secret, with %s", l.errs)
	if shown := l.settings.Database.String(); strings.Contains(shown, "pw") {
		t.Errorf("the secret prints as %s", shown)
	}
	t.Setenv("TEST_DATABASE_FILE", path+"x")
	if l := load(); l.code != 2 || !strings.Contains(l.errs, "prog: TEST_DATABASE_FILE: ") {
		t.Errorf("a missing file: code %d, %s", l.code, l.errs)
	}
}

func TestUnknownVariables(t *testing.T) {
	environ := []string{
		"TEST_LISTEN=:1", "TEST_DRAIN_DELAY=1s", "TEST_DATABASE_FILE=/x", "OTHER_LISTN=1", "PATH=/bin",
		"TEST_SERVICE_HOST=a", "TEST_PORT_80_TCP=b",
	}
	must.Equal(t, len(service.Unknown(&settings{}, []string{"TEST_"}, environ)), 0, "unknown variables among good ones")
	names := service.Unknown(&settings{}, []string{"TEST_", "OTHER_"},
		append(environ, "TEST_LISTN=hunter2", "TEST_LISTEN_FILE=/x"))
	if !slices.Equal(names, []string{"OTHER_LISTN", "TEST_LISTN", "TEST_LISTEN_FILE"}) {
		t.Errorf("misspelt variables: %q", names)
	}
}

func TestAskedFor(t *testing.T) {
	t.Setenv("TEST_BAN_AFTER", "many") // --help and --version need no valid settings
	for arg, want := range map[string]string{"--help": "TEST_DATABASE", "--version": "prog "} {
		if l := load(arg); l.code != 0 || !l.done || !strings.Contains(l.out, want) {
			t.Errorf("%s: code %d, done %t, output %q", arg, l.code, l.done, l.out)
		}
	}
	if l := load("--check"); l.code != 2 || !l.done {
		t.Errorf("--check of bad settings: code %d", l.code)
	}
}

// --check finds what the values do not show, all at once.
func TestCheck(t *testing.T) {
	port := func() string { return fmt.Sprint("127.0.0.1:", testkit.FreePort(t)) }
	dir := t.TempDir()
	t.Setenv("TEST_LISTEN", port())
	t.Setenv("TEST_ADMIN_LISTEN", port())
	t.Setenv("TEST_FILE", filepath.Join(dir, "not", "made", "yet"))
	check := func(want int, says ...string) {
		t.Helper()
		l := load("--check")
		for _, text := range says {
			if l.code != want || !l.done || !strings.Contains(l.out+l.errs, text) {
				t.Errorf("code %d, done %t, want %d and %q in\n%s%s", l.code, l.done, want, text, l.out, l.errs)
			}
		}
	}
	check(0, "the settings are good; the database and other servers were not asked\n")
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it has left %v, %v", left, err)
	}
	defer must.Get[net.Listener](t)(service.Listen(os.Getenv("TEST_LISTEN"), "")).Close()
	t.Setenv("TEST_ADMIN_LISTEN", "192.0.2.1:1")
	t.Setenv("TEST_FILE", filepath.Join(os.Args[0], "file"))
	t.Setenv("PROG_LISTN", ":1")
	check(2, "4 problems", os.Getenv("TEST_LISTEN")+" is in use", "PROG_LISTEN or --listen", "listen on 192.0.2.1:1",
		"cannot be written", "PROG_LISTN is not a setting")

	// The program itself has the ports.
	ln := must.Get[net.Listener](t)(service.Listen("127.0.0.1:0", ""))
	admin := service.NewAdmin(quiet, service.Settings{}, "")
	must.Do(t, admin.Start(ln))
	defer admin.Close()
	t.Setenv("TEST_ADMIN_LISTEN", ln.Addr().String())
	check(2, "2 problems", "cannot be written", "PROG_LISTN is not a setting")
}

func TestProbe(t *testing.T) {
	ln := must.Get[net.Listener](t)(service.Listen("127.0.0.1:0", "--admin-listen"))
	admin := service.NewAdmin(quiet, service.Settings{}, "")
	must.Do(t, admin.Start(ln))
	defer admin.Close()
	f := func(address string, want int, wantOut, wantErr string) {
		t.Helper()
		l := load("--probe", "--admin-listen", address)
		must.Equal(t, l.done, true, "the program ends")
		must.Equal(t, l.code, want, "exit code")
		must.Equal(t, l.out, wantOut, "output")
		if !strings.HasPrefix(l.errs, wantErr) || (l.errs == "") != (wantErr == "") {
			t.Errorf("errors %q, want %q", l.errs, wantErr)
		}
	}
	f(ln.Addr().String(), 1, "", "prog: not ready\n  start: the program is starting\n")
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	admin.SetReady(func() []service.Problem {
		return []service.Problem{{Name: "clock", Detail: "it is late", Serving: true}}
	})
	f(ln.Addr().String(), 0, "prog: ready\n  clock: it is late\n", "")
	f("0.0.0.0:"+port, 0, "prog: ready\n  clock: it is late\n", "")
	path := filepath.Join(t.TempDir(), "s")
	f("unix:"+path, 1, "", "prog: not ready: Get \"http://localhost/readyz\": dial unix "+path)

	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	_, address, _ := strings.Cut(other.URL, "//")
	f(address, 1, "", "prog: not ready: the admin port "+address+" answers 404 Not Found, and not as this program does")
}

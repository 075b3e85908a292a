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

func load(args ...string) (s settings, code int, done bool, stdout, stderr string) {
	var out, errs bytes.Buffer
	code, done = service.Load(&s, "prog", "A program.", args, &out, &errs)
	return s, code, done, out.String(), errs.String()
}

func TestPrecedence(t *testing.T) {
	s, _, done, _, errs := load()
	if done || s.Listen != "127.0.0.1:8080" || s.Database != "sqlite:var/x.db" || s.DrainDelay != 5*time.Second {
		t.Fatalf("defaults: %+v, %s", s, errs)
	}
	t.Setenv("TEST_LISTEN", ":1")
	t.Setenv("TEST_DRAIN_DELAY", "7s")
	t.Setenv("TEST_PROXIES", "10.0.0.0/8,::1/128")
	t.Setenv("TEST_DATABASE", "postgres://u:pw@h/d")
	s, _, done, _, errs = load("--drain-delay", "9s")
	if done || s.Listen != ":1" || s.DrainDelay != 9*time.Second || len(s.Proxies) != 2 ||
		s.Database != "postgres://u:pw@h/d" {
		t.Fatalf("environment and flag: %+v, %s", s, errs)
	}
	t.Setenv("TEST_PROXIES", "")
	if s, _, done, _, errs = load(); done || len(s.Proxies) != 0 {
		t.Errorf("an empty list: %+v, %s", s, errs)
	}
}

func TestEveryProblemIsNamed(t *testing.T) {
	t.Setenv("TEST_BAN_AFTER", "many")
	t.Setenv("TEST_PROXIES", "10.0.0.0/8,nonsense")
	t.Setenv("TEST_DATABASE", "sqlite:x")
	t.Setenv("TEST_DATABASE_FILE", "/nonexistent")
	f := func(args []string, problems ...string) {
		t.Helper()
		_, code, done, out, errs := load(args...)
		if code != 2 || !done || out != "" {
			t.Errorf("code %d, done %t, output %q", code, done, out)
		}
		want := fmt.Sprintf("prog: %d problems:", len(problems))
		for _, problem := range append(problems, want) {
			if !strings.Contains(errs, problem) {
				t.Errorf("%q: not named: %s\n%s", args, problem, errs)
			}
		}
		for _, raw := range []string{"netip", "slog", "time:", "strconv", "u:pw"} {
			if strings.Contains(errs, raw) {
				t.Errorf("the text of a Go package, or a secret, %s:\n%s", raw, errs)
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
	_, _, _, _, errs := load()
	must.Equal(t, errs, "prog: TEST_BAN_AFTER (--ban-after) is \"-1\": it must not be negative\n", "one problem")
}

func TestSecretFromFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	must.Do(t, os.WriteFile(path, []byte("postgres://u:pw@h/d \r\n"), 0o600))
	t.Setenv("TEST_DATABASE_FILE", path)
	s, _, done, _, errs := load()
	if done || string(s.Database) != "postgres://u:pw@h/d " || strings.Contains(s.Database.String(), "pw") {
		t.Errorf("%q prints as %v: %s", string(s.Database), s.Database, errs)
	}
	t.Setenv("TEST_DATABASE_FILE", path+"x")
	if _, code, _, _, errs := load(); code != 2 || !strings.Contains(errs, "prog: TEST_DATABASE_FILE: ") {
		t.Errorf("a missing file: code %d, %s", code, errs)
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
		if _, code, done, out, _ := load(arg); code != 0 || !done || !strings.Contains(out, want) {
			t.Errorf("%s: code %d, done %t, output %q", arg, code, done, out)
		}
	}
	if _, code, done, _, _ := load("--check"); code != 2 || !done {
		t.Errorf("--check of bad settings: code %d", code)
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
		_, code, done, out, errs := load("--check")
		for _, text := range says {
			if code != want || !done || !strings.Contains(out+errs, text) {
				t.Errorf("code %d, done %t, want %d and %q in\n%s%s", code, done, want, text, out, errs)
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
		_, code, done, out, errs := load("--probe", "--admin-listen", address)
		if !done || code != want || out != wantOut || !strings.HasPrefix(errs, wantErr) ||
			(errs == "") != (wantErr == "") {
			t.Errorf("code %d, done %t, output %q, errors %q", code, done, out, errs)
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

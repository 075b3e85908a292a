package service_test

import (
	"bytes"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"petgate/shared/service"
)

type settings struct {
	service.Settings `embed:"" envprefix:"TEST_"`

	Listen   string         `env:"TEST_LISTEN" default:"127.0.0.1:8080" help:"Public address."`
	After    int            `name:"ban-after" env:"TEST_BAN_AFTER" default:"30" help:"Strikes."`
	Proxies  []netip.Prefix `env:"TEST_PROXIES" help:"Trusted."`
	Database service.Secret `name:"database-url" env:"TEST_DATABASE" default:"sqlite:var/x.db" help:"Where data is."`
}

func (s *settings) Problems() []string {
	problems := s.Settings.Problems()
	if s.After < 0 {
		problems = append(problems, "--ban-after must not be negative")
	}
	if s.Database == "" {
		problems = append(problems, "TEST_DATABASE is empty")
	}
	return problems
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
	if done || s.Listen != ":1" || s.DrainDelay != 9*time.Second || len(s.Proxies) != 2 || s.Database != "postgres://u:pw@h/d" {
		t.Fatalf("environment and flag: %+v, %s", s, errs)
	}
}

func TestEmptyList(t *testing.T) {
	t.Setenv("TEST_PROXIES", "")
	if s, _, done, _, errs := load(); done || len(s.Proxies) != 0 {
		t.Errorf("%+v, %s", s, errs)
	}
}

func TestEveryProblemIsNamed(t *testing.T) {
	t.Setenv("TEST_BAN_AFTER", "many")
	t.Setenv("TEST_PROXIES", "10.0.0.0/8,nonsense")
	t.Setenv("TEST_DATABASE", "sqlite:x")
	t.Setenv("TEST_DATABASE_FILE", "/nonexistent")
	_, code, done, out, errs := load("--what", "--drain-delay=soon", "stray", "--log-level=loud", "--drain-limit=0s", "--database-url=postgres://u:pw@h/d")
	if code != 2 || !done || out != "" {
		t.Errorf("code %d, done %t, output %q", code, done, out)
	}
	for _, want := range []string{
		"prog: the settings have 9 problems", "--what", "stray", "TEST_BAN_AFTER (--ban-after): \"many\"", "TEST_PROXIES", "nonsense",
		"TEST_DRAIN_DELAY (--drain-delay): \"soon\"", "TEST_LOG_LEVEL (--log-level)", "TEST_DRAIN_LIMIT (--drain-limit) must be positive",
		`TEST_BAN_AFTER (--ban-after): "many" is no whole number`, `"soon" is no duration`, `"loud" is no level`, "is no list of CIDR blocks",
		"set TEST_DATABASE or TEST_DATABASE_FILE", "TEST_DATABASE and TEST_DATABASE_FILE are both set",
	} {
		if !strings.Contains(errs, want) {
			t.Errorf("not named: %s\n%s", want, errs)
		}
	}
	for _, raw := range []string{"netip", "slog", "time:", "strconv"} {
		if strings.Contains(errs, raw) {
			t.Errorf("the text of a Go package, %s:\n%s", raw, errs)
		}
	}
	if strings.Contains(errs, "u:pw") {
		t.Errorf("a secret is repeated:\n%s", errs)
	}
}

func TestSecretFromFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte("postgres://u:pw@h/d\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TEST_DATABASE_FILE", path)
	s, _, done, _, errs := load()
	if done || string(s.Database) != "postgres://u:pw@h/d" || strings.Contains(s.Database.String(), "pw") {
		t.Errorf("%q prints as %v: %s", string(s.Database), s.Database, errs)
	}
	t.Setenv("TEST_DATABASE_FILE", path+"x")
	if _, code, _, _, errs := load(); code != 2 || !strings.Contains(errs, "1 problem:\n  TEST_DATABASE_FILE: ") {
		t.Errorf("a missing file: code %d, %s", code, errs)
	}
}

func TestUnknownVariablesAreNamed(t *testing.T) {
	var out bytes.Buffer
	log := service.NewLog(&out, slog.LevelInfo, "prog")
	environ := []string{"TEST_LISTEN=:1", "TEST_DRAIN_DELAY=1s", "TEST_DATABASE_FILE=/x", "OTHER_LISTN=1", "PATH=/bin"}
	service.WarnUnknown(log, &settings{}, "TEST_", environ)
	if out.Len() != 0 {
		t.Errorf("good variables: %s", &out)
	}
	service.WarnUnknown(log, &settings{}, "TEST_", append(environ, "TEST_LISTN=hunter2", "TEST_LISTEN_FILE=/x"))
	if !strings.Contains(out.String(), `["TEST_LISTN","TEST_LISTEN_FILE"]`) || strings.Contains(out.String(), "hunter2") {
		t.Errorf("misspelt variables: %s", &out)
	}
}

func TestAskedFor(t *testing.T) {
	t.Setenv("TEST_BAN_AFTER", "many") // none of --help and --version needs good settings
	for arg, want := range map[string]string{"--help": "TEST_DATABASE", "--version": "prog "} {
		if _, code, done, out, _ := load(arg); code != 0 || !done || !strings.Contains(out, want) {
			t.Errorf("%s: code %d, done %t, output %q", arg, code, done, out)
		}
	}
	if _, code, done, _, _ := load("--check"); code != 2 || !done {
		t.Errorf("--check of bad settings: code %d", code)
	}
	t.Setenv("TEST_BAN_AFTER", "1")
	if _, code, done, out, _ := load("--check"); code != 0 || !done || !strings.Contains(out, "good") {
		t.Errorf("--check of good settings: code %d, %q", code, out)
	}
}

func TestDescribe(t *testing.T) {
	described, err := service.Describe(&settings{})
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]service.Setting)
	for _, s := range described {
		found[s.Env+s.Flag] = s
	}
	if s := found["TEST_DATABASE"]; !s.Secret || s.Default != "sqlite:var/x.db" {
		t.Errorf("the secret: %+v", s)
	}
	if s := found["TEST_DRAIN_DELAY--drain-delay"]; s.Secret || s.Default != "5s" || s.Help == "" {
		t.Errorf("--drain-delay: %+v", s)
	}
}

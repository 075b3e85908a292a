package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/keystore/lists"
	"petgate/shared/keystore/schema"
	"petgate/shared/operate"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

func init() {
	os.Setenv("COLUMNS", "100") // kong asks the process's own environment for the width of help
	for _, limit := range []*time.Duration{&operate.LiveWithin, &operate.AskWithin, &readWithin} {
		*limit = time.Minute
	}
}

// shell runs commands against one database. Only Sleep moves its clock. The IDs and tokens that a
// command makes depend on its arguments alone, and on how often it was run before: they stay the
// same when other commands come between.
type shell struct {
	t        testing.TB
	terminal bool
	width    int // of the terminal; 0: not known
	height   int
	stdin    string // of the next commands
	program  string // how keyadmin is called
	env      []string
	now      time.Time
	random   io.Reader
	ended    bool           // Sleep reports an interrupt
	broken   bool           // standard output cannot be written
	onSleep  func()         // what happens elsewhere while a command waits
	onClock  func()         // what happens elsewhere when a command looks at the clock; may be nil
	registry *database.DB   // has the gateways of the test; nil: there is none
	called   map[string]int // how often each command was run
}

func newShell(t testing.TB, url string) *shell {
	t.Helper()
	return &shell{
		t: t, env: []string{"DATABASE_URL=" + url, "USER=anna"}, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		random: rand.NewChaCha8([32]byte{}), onSleep: func() {}, called: map[string]int{},
	}
}

// newMigrated is newShell on a new database, which it migrates. A SQLite file is copied, so that a
// process migrates one.
func newMigrated(t testing.TB, url string) *shell {
	t.Helper()
	s := newShell(t, url)
	s.now = s.now.Add(time.Second)
	path, isFile := strings.CutPrefix(url, "sqlite:")
	if !isFile {
		testkit.Open(t, url, schema.Migrations)
		return s
	}
	migrated.Do(func() {
		first := testkit.SQLite(t)
		must.Do(t, testkit.Open(t, first, schema.Migrations).Close())
		migratedFile = must.Get[[]byte](t)(os.ReadFile(strings.TrimPrefix(first, "sqlite:")))
	})
	must.Do(t, os.WriteFile(path, migratedFile, 0o600))
	return s
}

var (
	migrated     sync.Once
	migratedFile []byte
)

type result struct {
	stdout, stderr string
	code           exitCode
}

// keyadmin runs one command.
func (s *shell) keyadmin(args ...string) result {
	s.t.Helper()
	r := s.run(args)
	s.now = s.now.Add(time.Second)
	return r
}

func (s *shell) run(args []string) result {
	s.t.Helper()
	s.keepSeen()
	var stdout, stderr bytes.Buffer
	line := quoted(args)
	seed := sha256.Sum256(fmt.Append(nil, line, s.called[line]))
	s.called[line]++
	io := stdio{
		In: strings.NewReader(s.stdin), Out: &stdout, Err: &stderr,
		InTerminal: s.terminal, OutTerminal: s.terminal, ErrTerminal: s.terminal,
		Size:    func() (width, height int) { return s.width, s.height },
		Program: s.program, Secret: func() ([]byte, error) { return []byte(s.stdin), nil },
		Clock: func() time.Time {
			if s.onClock != nil {
				s.onClock()
			}
			return s.now
		},
		Random: rand.NewChaCha8(seed),
		Sleep: func(_ context.Context, d time.Duration) error {
			s.now = s.now.Add(d)
			s.onSleep()
			if s.ended {
				return context.Canceled
			}
			return nil
		},
	}
	if s.broken {
		io.Out = brokenWriter{}
	}
	code := run(args, s.env, io)
	return result{stdout.String(), stderr.String(), code}
}

// ok runs a command that has to succeed and returns the first line of what it prints.
func (s *shell) ok(args ...string) string {
	s.t.Helper()
	r := s.keyadmin(args...)
	if r.code != exitDone {
		s.t.Fatalf("keyadmin %s: exit %d\n%s", quoted(args), r.code, r.stderr)
	}
	line, _, _ := strings.Cut(r.stdout, "\n")
	return line
}

// want runs a command and checks how it ends, and that its standard error has the given text.
func (s *shell) want(code exitCode, stderr string, args ...string) result {
	s.t.Helper()
	r := s.keyadmin(args...)
	if r.code != code || !strings.Contains(r.stderr, stderr) {
		s.t.Errorf("keyadmin %s: exit %d, want %d and %q on standard error:\n%s", quoted(args), r.code, code, stderr,
			r.stderr)
	}
	return r
}

func quoted(args []string) string {
	shown := make([]string, len(args))
	for i, arg := range args {
		shown[i] = arg
		if arg == "" || strings.ContainsAny(arg, " \n\x1b\"") {
			shown[i] = fmt.Sprintf("%q", arg)
		}
	}
	return strings.Join(shown, " ")
}

// open opens the shell's database as another program would.
func (s *shell) open() *database.DB {
	s.t.Helper()
	return testkit.Open(s.t, strings.TrimPrefix(s.env[0], "DATABASE_URL="))
}

func (s *shell) store() *keystore.Store {
	s.t.Helper()
	return keystore.New(s.open(), func() time.Time { return s.now }, s.random, "gw-1")
}

// events counts the changes so far.
func (s *shell) events() int {
	s.t.Helper()
	return len(
		must.Get[[]keystore.Event](s.t)(keystore.Collect(lists.Of(s.store()).Events(s.t.Context(),
			lists.EventFilter{}, 0))),
	)
}

// gateway is the part of a gateway that keyadmin can see: a registration that reports what it has
// applied.
type gateway struct {
	shell *shell
	store *keystore.Store
	keystore.Registration
}

func (s *shell) gateway(store *keystore.Store, id, address string) *gateway {
	s.t.Helper()
	if s.registry == nil {
		s.registry = s.open()
	}
	g := &gateway{s, store, keystore.Registration{ID: id, Incarnation: id + "-1", AdminAddress: address}}
	g.Generation = must.Get[int64](s.t)(store.Register(s.t.Context(), g.Registration, nil))
	return g
}

// keepSeen makes the database see, until a while from now, what it has seen in the last 50 s. The
// gateways of a test report only when the test says so: on a busy machine, they would be silent
// before the command has looked. The database has the clock of this host.
func (s *shell) keepSeen() {
	s.t.Helper()
	if s.registry == nil {
		return
	}
	now := instant.Of(time.Now())
	if _, err := s.registry.Exec(`UPDATE gateways SET seen_at = $1 WHERE seen_at > $2`, now+20_000,
		now-50_000); err != nil {
		s.t.Error(err)
	}
}

// follow applies all events.
func (g *gateway) follow() {
	g.shell.t.Helper()
	events, err := keystore.Collect(lists.Of(g.store).Events(g.shell.t.Context(), lists.EventFilter{}, 0))
	must.Do(g.shell.t, err)
	last := keystore.Event{}
	if len(events) > 0 {
		last = events[len(events)-1]
	}
	must.Get[keystore.Beat](g.shell.t)(g.store.Heartbeat(g.shell.t.Context(), g.Registration, last.ID, last.UUID))
}

func keyID(s *shell, tenant string) string {
	s.t.Helper()
	keys, err := keystore.Collect(lists.Of(s.store()).Keys(s.t.Context(), tenantID(s, tenant)))
	if err != nil || len(keys) == 0 {
		s.t.Fatalf("%d keys, %v", len(keys), err)
	}
	return keys[len(keys)-1].ID.String()
}

func tenantID(s *shell, name string) id.Tenant {
	s.t.Helper()
	return must.Get[keystore.Tenant](s.t)(s.store().Tenant(s.t.Context(), name)).ID
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

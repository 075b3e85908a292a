//go:build e2e && linux

package main

import (
	"bytes"
	"database/sql/driver"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"modernc.org/sqlite"

	"petgate/shared/database"
	"petgate/shared/testkit"
)

// Variables of a child process, which is keyadmin as it is.
const (
	childArgs   = "KEYADMIN_CHILD_ARGS"
	childIsHeld = "KEYADMIN_CHILD_IS_HELD" // it stops at the write that holds names
)

// In SQLite, the trigger of plantHolds stops the process itself.
func init() {
	sqlite.MustRegisterScalarFunction("hold", 0, func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
		if os.Getenv(childIsHeld) == "" {
			return nil, nil
		}
		return nil, syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	})
}

// TestChild is the child process.
func TestChild(*testing.T) {
	if args := os.Getenv(childArgs); args != "" {
		os.Exit(int(run(strings.Split(args, "\n"), os.Environ(), system())))
	}
}

// holds stops a child process at one of its writes. Every row counts as a write.
type holds struct {
	t   *testing.T
	db  *database.DB
	url string
}

// holdLock is a lock of PostgreSQL for which a held process waits.
const holdLock = 4711

func plantHolds(t *testing.T, url string, db *database.DB) holds {
	t.Helper()
	statements := []string{`CREATE TABLE holds (remaining INT)`, `INSERT INTO holds VALUES (1000000)`}
	body := `BEGIN UPDATE holds SET remaining = remaining - 1; SELECT hold() WHERE (SELECT remaining FROM holds) = 0; END`
	if db.Dialect() == database.Postgres {
		body = "FOR EACH ROW EXECUTE FUNCTION count_down()"
		statements = append(statements, fmt.Sprintf(`CREATE FUNCTION count_down() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF current_setting('application_name') = 'held' THEN
				UPDATE holds SET remaining = remaining - 1;
				IF (SELECT remaining FROM holds) = 0 THEN PERFORM pg_advisory_xact_lock(%d); END IF;
			END IF;
			RETURN COALESCE(NEW, OLD); END $$`, holdLock))
		// Carried out by COMMIT.
		statements = append(statements, `CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON events DEFERRABLE INITIALLY DEFERRED `+body)
	}
	plantTriggers(t, db, statements, body)
	return holds{t, db, url}
}

// child starts keyadmin.
func (h holds) child(url string, env []string, args ...string) *testkit.Process {
	h.t.Helper()
	self, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	env = append(env, "DATABASE_URL="+url, "USER=anna", childArgs+"="+strings.Join(args, "\n"))
	return testkit.Start(h.t, self, env, "-test.run=^TestChild$")
}

// kill runs keyadmin until its nth write, and kills the process. It returns false and the exit code if the process has
// ended before.
func (h holds) kill(n int, args ...string) (killed bool, code int) {
	h.t.Helper()
	if _, err := h.db.Exec(`UPDATE holds SET remaining = $1`, n); err != nil {
		h.t.Fatal(err)
	}
	url := h.url
	if h.db.Dialect() == database.Postgres {
		url += map[bool]string{true: "&", false: "?"}[strings.Contains(url, "?")] + "application_name=held"
		conn, err := h.db.Conn(h.t.Context())
		if err != nil {
			h.t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.ExecContext(h.t.Context(), `SELECT pg_advisory_lock($1)`, holdLock); err != nil {
			h.t.Fatal(err)
		}
		defer h.awaitEnd()
		defer conn.ExecContext(h.t.Context(), `SELECT pg_advisory_unlock($1)`, holdLock)
	}
	p := h.child(url, []string{childIsHeld + "=1"}, args...)
	testkit.Eventually(h.t, time.Minute, "the process is held or ends", func() (isDone bool) {
		code, isDone = p.Wait(0)
		killed = !isDone && h.isHeld(p)
		return isDone || killed
	})
	if killed {
		p.Kill()
	}
	return killed, code
}

// killAnywhere kills keyadmin at every write, until it ends with 0 or isWritten says that all is written: then it was killed during COMMIT.
func (h holds) killAnywhere(isWritten func(n int) bool, args ...string) {
	h.t.Helper()
	n := 1
	for ; ; n++ {
		killed, code := h.kill(n, args...)
		if !killed && code != 0 {
			h.t.Errorf("keyadmin %s ends with %d", quoted(args), code)
		}
		if all := isWritten(n); all || !killed {
			if !all {
				h.t.Errorf("keyadmin %s has ended, and not all is written", quoted(args))
			}
			break
		}
	}
	h.t.Logf("killed at %d writes", n-1)
	if n < 10 {
		h.t.Errorf("killed at only %d writes", n-1)
	}
}

func (h holds) isHeld(p *testkit.Process) (is bool) {
	if h.db.Dialect() == database.Postgres {
		err := h.db.GetContext(h.t.Context(), &is, `SELECT EXISTS (SELECT 1 FROM pg_locks WHERE objid = $1 AND NOT granted)`, holdLock)
		return err == nil && is
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID()) + "/stat")
	_, state, _ := bytes.Cut(stat, []byte(") "))
	return err == nil && bytes.HasPrefix(state, []byte("T"))
}

// awaitEnd waits until the server has noticed that the process is gone.
func (h holds) awaitEnd() {
	h.t.Helper()
	testkit.Eventually(h.t, time.Minute, "the server ends the transaction", func() (is bool) {
		err := h.db.GetContext(h.t.Context(), &is, `SELECT NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE application_name = 'held')`)
		return err == nil && is
	})
}

// Keyadmin is killed at every write of apply, and for PostgreSQL during COMMIT too. Either all changes are made or none.
func TestApplyIsKilledAnywhere(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		s := newMigrated(t, url)
		wanted := s.everyChange()
		before, events := s.keyadmin("export").stdout, s.events()
		plantHolds(t, url, s.open()).killAnywhere(func(n int) bool {
			after := s.keyadmin("export").stdout
			if after == before && s.events() == events {
				return false
			}
			if r := s.want(exitDone, "There is nothing to change.", "diff", wanted); r.stdout != "" {
				t.Fatalf("killed at write %d: %d events, and\n%s", n, s.events()-events, after)
			}
			return true
		}, "apply", wanted, "--yes")
	})
}

// Ten thousand tenants in one document take at most 30 s.
func TestApplyTenThousandTenants(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		s := newMigrated(t, url)
		text := "version: 1\ntenants:\n"
		for n := range 10_000 {
			text += fmt.Sprintf("- {name: tenant-%05d, plan: enterprise, minute: %d, day: 100000}\n", n, n+1)
		}
		path := s.file(text)
		s.terminal, s.stdin = true, "y\n"
		begin := time.Now()
		r := s.want(exitDone, "", "apply", path)
		if took := time.Since(begin); took > 30*time.Second || !strings.Contains(r.stderr, "Applied 10,000 changes.") {
			t.Errorf("took %v:\n%s", took, r.stderr)
		} else {
			t.Logf("took %v", took)
		}
		begin = time.Now()
		s.want(exitDone, "There is nothing to change.", "diff", path)
		t.Logf("diff took %v", time.Since(begin))
	})
}

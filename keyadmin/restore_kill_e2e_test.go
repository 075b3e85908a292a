//go:build e2e && linux

package main

import (
	"bytes"
	"database/sql"
	"database/sql/driver"
	"fmt"
	neturl "net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"modernc.org/sqlite"

	"petgate/shared/core/id"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/keystore/lists"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
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
	body := `BEGIN UPDATE holds SET remaining = remaining - 1;
		SELECT hold() WHERE (SELECT remaining FROM holds) = 0; END`
	if db.Dialect() == database.Postgres {
		body = "FOR EACH ROW EXECUTE FUNCTION count_down()"
		statements = append(
			statements,
			fmt.Sprintf(`CREATE FUNCTION count_down() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF current_setting('application_name') = 'held' THEN
				UPDATE holds SET remaining = remaining - 1;
				IF (SELECT remaining FROM holds) = 0 THEN PERFORM pg_advisory_xact_lock(%d); END IF;
			END IF;
			RETURN COALESCE(NEW, OLD); END $$`, holdLock),
		)
		// Carried out by COMMIT.
		statements = append(statements,
			`CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON events DEFERRABLE INITIALLY DEFERRED `+body)
	}
	plantTriggers(t, db, statements, body)
	return holds{t, db, url}
}

// kill runs keyadmin until its nth write, and kills the process. It returns false and the exit code
// if the process has ended before.
func (h holds) kill(n int, args ...string) (killed bool, code int) {
	h.t.Helper()
	must.Get[sql.Result](h.t)(h.db.Exec(`UPDATE holds SET remaining = $1`, n))
	url := h.url
	if h.db.Dialect() == database.Postgres {
		at := must.Get[*neturl.URL](h.t)(neturl.Parse(url))
		query := at.Query()
		query.Set("application_name", "held")
		at.RawQuery = query.Encode()
		url = at.String()
		conn := must.Get[*sql.Conn](h.t)(h.db.Conn(h.t.Context()))
		defer conn.Close()
		must.Get[sql.Result](h.t)(conn.ExecContext(h.t.Context(), `SELECT pg_advisory_lock($1)`, holdLock))
		defer h.awaitEnd()
		defer conn.ExecContext(h.t.Context(), `SELECT pg_advisory_unlock($1)`, holdLock)
	}
	self := must.Get[string](h.t)(os.Executable())
	env := []string{childIsHeld + "=1", "DATABASE_URL=" + url, "USER=anna", childArgs + "=" + strings.Join(args, "\n")}
	p := testkit.Start(h.t, self, env, "-test.run=^TestChild$")
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

func (h holds) isHeld(p *testkit.Process) (is bool) {
	if h.db.Dialect() == database.Postgres {
		err := h.db.GetContext(h.t.Context(), &is,
			`SELECT EXISTS (SELECT 1 FROM pg_locks WHERE objid = $1 AND NOT granted)`, holdLock)
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
		err := h.db.GetContext(h.t.Context(), &is,
			`SELECT NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE application_name = 'held')`)
		return err == nil && is
	})
}

// Keyadmin is killed at every write of restore, and for PostgreSQL during COMMIT too. Either the
// database is as it was, or it is restored. The backup stays good, and the key that was revoked
// after the backup is never accepted.
func TestRestoreIsKilledAnywhere(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		s := newMigrated(t, url)
		s.ok("tenant", "create", "acme")
		s.ok("key", "create", "acme", "--name", "kept")
		s.ok("key", "create", "acme", "--name", "leaked")
		leaked := keyID(s, "acme")
		path := filepath.Join(t.TempDir(), "backup")
		s.ok("backup", path)
		whole := must.Get[[]byte](t)(os.ReadFile(path))
		s.ok("key", "revoke", leaked, "-y")
		s.ok("tenant", "set-plan", "acme", "pro")
		look := func() string {
			return s.keyadmin("tenant", "list", "-o", "csv").stdout + s.keyadmin("key", "list", "-o", "csv").stdout
		}
		before, events := look(), s.events()
		h, n := plantHolds(t, url, s.open()), 1
		for isRestored := false; !isRestored; n++ {
			killed, code := h.kill(n, "restore", path, "--yes")
			k, err := keystore.Collect(lists.Of(s.store()).Keys(t.Context(), id.Tenant{}))
			if err != nil || len(k) != 2 || k[0].RevokedAt+k[1].RevokedAt == 0 {
				t.Fatalf("killed at write %d: %+v, %v", n, k, err)
			}
			isRestored = look() != before || s.events() != events
			if !killed && (code != 0 || !isRestored) {
				t.Fatalf("it ends with %d, and has restored: %t", code, isRestored)
			}
		}
		t.Logf("killed at %d writes", n-2)
		if n < 12 {
			t.Errorf("killed at only %d writes", n-2)
		}
		s.want(exitDone, "Restored 1 tenant and 2 keys", "restore", path, "--yes")
		if tenant, err := s.store().Tenant(t.Context(), "acme"); err != nil || tenant.Plan != "free" {
			t.Errorf("the tenant: %+v, %v", tenant, err)
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != string(whole) {
			t.Errorf("the backup has changed, or %v", err)
		}
	})
}

package main

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// hold takes the writers' lock in a session of its own, until the test ends.
func hold(t *testing.T, s *shell) (pid int) {
	t.Helper()
	session := must.Get[*sql.DB](t)(sql.Open("postgres", s.env[0][len("DATABASE_URL="):]+"&application_name=intruder"))
	session.SetMaxOpenConns(1)
	t.Cleanup(func() { session.Close() })
	must.Do(t, session.QueryRow(`SELECT pg_backend_pid() FROM pg_advisory_lock(123581046915073)`).Scan(&pid))
	return pid
}

// A change that waits too long for the lock of all changes says who holds it, and so does doctor.
func TestHeldLockIsNamed(t *testing.T) {
	t.Parallel()
	s := newMigrated(t, testkit.Postgres(t))
	s.ok("tenant", "create", "acme")
	pid := hold(t, s)
	cure := fmt.Sprintf("SELECT pg_terminate_backend(%d)", pid)
	s.env[0] += "&statement_timeout=2000"
	for _, change := range [][]string{
		{"tenant", "suspend", "acme", "--yes"}, {"key", "create", "acme"}, {"tenant", "set-plan", "acme", "pro"}, {"console", "--end-sessions", "--yes"},
	} {
		if r := s.keyadmin(change...); r.code == exitDone || !strings.Contains(r.stderr, "application intruder") || !strings.Contains(r.stderr, cure) {
			t.Errorf("%v: exit %d: %s", change, r.code, r.stderr)
		}
	}
	testkit.Eventually(t, 5*lagMax, "doctor names the holder", func() bool {
		out := s.keyadmin("doctor", "-o", "json").stdout
		return strings.Contains(out, "application intruder") && strings.Contains(out, cure)
	})
	must.Get[sql.Result](t)(s.open().Exec(`SELECT pg_terminate_backend($1)`, pid))
	testkit.Eventually(t, time.Minute, "the cure helps", func() bool { return s.keyadmin("tenant", "suspend", "acme", "--yes").code == exitDone })
}

package database_test

import (
	"bytes"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"petgate/shared/database"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// Errors that an operator has to mend are named with a cure, and none of them looks like a mistake
// of the program.
func TestCure(t *testing.T) {
	f := func(name string, err error, cure string, needsOperator bool) {
		t.Helper()
		if err == nil {
			t.Errorf("%s: no error", name)
			return
		}
		if got := database.Cure(err); !strings.Contains(got, cure) {
			t.Errorf("%s: %v: the cure is %q, want %q", name, err, got, cure)
		}
		if !database.IsUnavailable(err) {
			t.Errorf("%s: %v is not unavailable", name, err)
		}
		must.Equal(t, database.NeedsOperator(err), needsOperator, "%s: %v: needs an operator", name, err)
	}
	server := testkit.StartPostgres(t)
	files := testkit.NewAuthority(t).SaveServer(2, time.Now().Add(-time.Minute))
	owned := open(t, server.URL)
	for name, path := range map[string]string{"server.crt": files.Cert, "server.key": files.Key} {
		text := must.Get[[]byte](t)(os.ReadFile(path))
		// Through the server, which accepts only a key file of its own user.
		exec(t, owned,
			`COPY (SELECT UNNEST(STRING_TO_ARRAY('`+string(text)+`', E'\n'))) TO PROGRAM 'umask 077; cat >`+name+`'`)
	}
	exec(t, owned, `ALTER SYSTEM SET ssl = on`)
	exec(t, owned, `SELECT pg_reload_conf()`)
	for _, mode := range []string{"verify-full", "verify-ca&sslrootcert=" + files.CA} {
		db := open(t, strings.Replace(server.URL, "sslmode=disable", "sslmode="+mode, 1))
		var err error
		testkit.Eventually(t, time.Minute, "a connection with TLS", func() bool {
			err = db.Check()
			return !errors.Is(err, pq.ErrSSLNotSupported)
		})
		f(mode, err, "the server's certificate expired at ", false)
	}
	filled := func() (path string, db *database.DB) {
		t.Helper()
		u := testkit.SQLite(t)
		db = open(t, u)
		exec(t, db, `CREATE TABLE notes (note TEXT)`)
		for range 200 {
			exec(t, db, `INSERT INTO notes VALUES ('`+strings.Repeat("x", 1000)+`')`)
		}
		return strings.TrimPrefix(u, "sqlite:"), db
	}
	count := func(path string) error {
		db, err := database.Open("sqlite:" + path)
		if err != nil {
			return err
		}
		defer db.Close()
		var n int
		return db.Get(&n, `SELECT COUNT(note) FROM notes WHERE note LIKE 'x%'`)
	}
	damage := func(path string, at int64, text []byte) {
		t.Helper()
		file := must.Get[*os.File](t)(os.OpenFile(path, os.O_RDWR, 0))
		must.Get[int](t)(file.WriteAt(text, at))
		must.Do(t, file.Close())
	}

	path, db := filled()
	db.SetMaxOpenConns(1)
	exec(t, db, `PRAGMA max_page_count = 10`)
	_, err := db.Exec(`INSERT INTO notes VALUES ('` + strings.Repeat("y", 100_000) + `')`)
	f("a full disk", err, "full: make room", true)
	db.Close()

	damage(path, 3*4096, bytes.Repeat([]byte{0xff}, 20*4096))
	f("damaged pages", count(path), "damaged", true)
	damage(path, 0, []byte("not a database at all"))
	f("not a database", count(path), "not a SQLite database", true)

	path, db = filled()
	must.Do(t, os.Remove(path))
	err = db.Check()
	f("a removed file", err, "put the file back with its -wal and -shm", false)
	if err != nil && !strings.Contains(err.Error(), path+" was removed") {
		t.Errorf("the file is not named: %v", err)
	}
	_, err = db.Exec(`SELECT 1`)
	f("a new connection without the file", err, "cannot be opened", false)

	u := must.Get[*url.URL](t)(url.Parse(testkit.Postgres(t)))
	_, err = open(t, u.String()+"&statement_timeout=20").Exec(`SELECT pg_sleep(5)`)
	f("a slow statement", err, "ask for less", false)
	u.Path = "/nothing_of_this_name"
	f("no such database on the server", open(t, u.String()).Check(), "no such database", false)
	u.RawQuery = "sslmode=require"
	f("a server without TLS", open(t, u.String()).Check(), "?sslmode=disable", false)
	for code, cure := range map[pqerror.Code]string{
		"40001": "in the way", "40P01": "in the way", "55P03": "holds a lock", "53300": "has its maximum of connections",
	} {
		f("error "+string(code), &pq.Error{Code: code}, cure, false)
	}
	for code, cure := range map[pqerror.Code]string{
		"25006": "accepts no writes",
		"42501": "roles.sql",
		"53100": "make room",
	} {
		if err := (&pq.Error{Code: code}); !database.NeedsOperator(err) || !strings.Contains(database.Cure(err), cure) {
			t.Errorf("error %s needs no operator, or has the cure %q", code, database.Cure(err))
		}
	}
	if cure := database.Cure(nil); cure != "" || database.NeedsOperator(nil) {
		t.Errorf("no error: %q", cure)
	}
}

// A connection that was in use when the file was removed or replaced does not write to the old file
// afterwards.
func TestConnectionsToAReplacedFileEnd(t *testing.T) {
	u := testkit.SQLite(t)
	path := strings.TrimPrefix(u, "sqlite:")
	db := open(t, u)
	exec(t, db, `CREATE TABLE notes (note TEXT)`)
	busy := must.Get[*sqlx.Conn](t)(db.Connx(t.Context()))
	must.Get[sql.Result](t)(busy.ExecContext(t.Context(), `INSERT INTO notes VALUES ('old')`))
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Rename(path+suffix, path+".away"+suffix); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	exec(t, open(t, u), `CREATE TABLE notes (note TEXT)`)
	if err := db.CheckFile(); err == nil || !strings.Contains(err.Error(), "was replaced") {
		t.Errorf("the replaced file: %v", err)
	}
	_ = busy.Close()           // it goes back to the pool
	must.Do(t, db.CheckFile()) // the new file
	var n int
	must.Do(t, db.Get(&n, `SELECT COUNT(*) FROM notes`))
	must.Equal(t, n, 0, "notes in the new file: the old file must not be in use")
}

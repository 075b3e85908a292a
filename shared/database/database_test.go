package database_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/lib/pq"

	"petgate/shared/database"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

func open(t testing.TB, url string) *database.DB {
	t.Helper()
	return testkit.Open(t, url)
}

func exec(t testing.TB, db *database.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.Exec(statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, url := range []string{
		"", "var/petgate.db", "mysql://root:hunter2@localhost/pets", "sqlite:", "sqlite::memory:",
		"postgres://petgate:hunter2 @localhost/pets", "postgres://petgate:hun/ter2@localhost/pets",
		"postgres://petgate:hunter2@localhost/pets?statement_timeout=soon", "postgres://petgate:hunter2@localhost/pets?sslmode=perhaps",
	} {
		db, err := database.Open(url)
		if !errors.Is(err, database.ErrURL) {
			t.Errorf("Open(%q) = %v, %v; want %v", url, db, err, database.ErrURL)
			continue
		}
		if strings.Contains(err.Error(), "hun") {
			t.Errorf("Open's error tells the password: %v", err)
		}
	}
}

// Only OpenOrCreate makes a file, and its directory too.
func TestOpenOrCreate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a ? directory %41 #", "petgate.db")
	if _, err := database.Open("sqlite:" + path); !errors.Is(err, database.ErrNoFile) ||
		!strings.Contains(err.Error(), "keyadmin migrate") {
		t.Errorf("Open of a missing file = %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Open made a file: %v", err)
	}
	open(t, "sqlite:"+path)
	must.Equal(t, must.Get[os.FileInfo](t)(os.Stat(path)).Mode().Perm(), 0o600, "the file's mode")
	must.Get[*database.DB](t)(database.Open("sqlite:" + path)).Close()
}

func TestRedact(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://petgate:hunter2@db:5432/pets?sslmode=disable&password=hunter2": "postgres://petgate@db:5432/pets",
		"postgres://db/pets":       "postgres://db/pets",
		"postgres://u:p w@db/pets": "(not a URL)",
		"sqlite:var/petgate.db":    "sqlite:var/petgate.db",
	} {
		must.Equal(t, database.Redact(url), want, "Redact(%q)", url)
	}
}

func TestErrorClasses(t *testing.T) {
	f := func(what string, err error, unavailable, unique, readOnly bool) {
		t.Helper()
		wrapped := fmt.Errorf("somebody: %w", err)
		if database.IsUnavailable(wrapped) != unavailable || database.IsUnique(wrapped) != unique ||
			database.IsReadOnly(wrapped) != readOnly {
			t.Errorf("%s: %v: unavailable %t, unique %t, read-only %t", what, err, database.IsUnavailable(wrapped),
				database.IsUnique(wrapped), database.IsReadOnly(wrapped))
		}
	}
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		db := open(t, url)
		exec(t, db, `CREATE TABLE notes (id BIGINT PRIMARY KEY, note TEXT UNIQUE)`)
		exec(t, db, `INSERT INTO notes VALUES (1, 'one')`)
		failed := func(statement string) error {
			_, err := db.Exec(statement)
			return err
		}
		f("the same primary key", failed(`INSERT INTO notes VALUES (1, 'two')`), false, true, false)
		f("the same unique value", failed(`INSERT INTO notes VALUES (2, 'one')`), false, true, false)
		f("no SQL", failed(`SELEKT`), false, false, false)
		f("no such table", failed(`SELECT 1 FROM nowhere`), false, false, false)
		db.SetMaxOpenConns(1)
		if db.Dialect() == database.Postgres {
			_, err := open(t, url+"&statement_timeout=20").Exec(`SELECT pg_sleep(5)`)
			f("a slow statement", err, true, false, false)
			exec(t, db, `SET default_transaction_read_only = on`)
		} else {
			exec(t, db, `PRAGMA query_only = 1`)
		}
		f("a read-only database", failed(`INSERT INTO notes VALUES (3, 'three')`), false, false, true)
		tx, err := db.Begin() // SQLite refuses already here
		if err == nil {
			defer tx.Rollback()
			_, err = tx.Exec(`INSERT INTO notes VALUES (3, 'three')`)
		}
		f("a transaction in a read-only database", err, false, false, true)
	})
	for _, err := range []error{nil, errors.New("other"), context.Canceled, &pq.Error{Code: "22012"}} {
		f("no failure of a database", err, false, false, false)
	}
	for _, err := range []error{
		driver.ErrBadConn,
		io.EOF,
		io.ErrUnexpectedEOF,
		sql.ErrConnDone,
		context.DeadlineExceeded,
		&pq.Error{Code: "08006"},
		&pq.Error{Code: "58030"},
	} {
		f("a lost connection or a failing disk", err, true, false, false)
	}
}

// A statement has 5 s, and an idle transaction 10 s. A patient connection has no limits.
func TestLimitsOfPostgres(t *testing.T) {
	url, patient := testkit.Postgres(t), must.Get[*database.DB](t)(database.OpenPatient(testkit.Postgres(t), false))
	defer patient.Close()
	for db, want := range map[*database.DB]string{open(t, url): "5s 10s", patient: "0 0"} {
		var got string
		must.Do(
			t,
			db.Get(
				&got,
				`SELECT concat_ws(' ', current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout'))`,
			),
		)
		must.Equal(t, got, want, "the limits")
	}
}

// PostgreSQL gets the arguments of several statements in their text.
func TestRun(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		db := open(t, url)
		n := must.Get[int64](t)(db.Run(t.Context(), db, database.Statement{Query: `SELECT 1`}, database.Statement{
			Query: `SELECT CAST(LENGTH($10) -$1 + $9 AS BIGINT) WHERE $2 + $3 + $4 + $5 + $6 + $7 + $8 > 0`,
			Args:  []any{-20, 2, 3, 4, 5, 6, 7, 8, int64(900), `$1's \`},
		}, database.Statement{Query: `SELECT 2`}))
		must.Equal(t, n, 926, "the largest number")
	})
}

func TestServerGoneAndBack(t *testing.T) {
	server := testkit.StartPostgres(t)
	db := open(t, server.URL)
	exec(t, db, `SELECT 1`)
	server.Kill(t)
	var err error
	testkit.Eventually(t, 20*time.Second, "the processes of the killed server end", func() bool {
		_, err = db.Exec(`SELECT 1`)
		return err != nil
	})
	if !database.IsUnavailable(err) {
		t.Errorf("with the server killed: %v", err)
	}
	server.Start(t)
	testkit.Eventually(t, 20*time.Second, "statements succeed again", func() bool {
		_, err := db.Exec(`SELECT 1`)
		return err == nil
	})
}

func TestSilentServerIsGivenUp(t *testing.T) {
	server := testkit.StartPostgres(t)
	db := open(t, server.URL+"&statement_timeout=100")
	exec(t, db, `SELECT 1`)
	server.Pause(t)
	defer server.Resume(t)
	began := time.Now()
	_, err := db.Exec(`SELECT 1`)
	if took := time.Since(began); !database.IsUnavailable(err) || took > 20*time.Second {
		t.Errorf("with the server frozen, after %v: %v", took, err)
	}
}

const (
	notes = "-- +goose Up\nCREATE TABLE notes (id BIGINT PRIMARY KEY);\n"
	one   = "-- +goose Up\nINSERT INTO notes VALUES (1);\n"
)

// migrations are those of an owner.
func migrations(table string, files map[string]string) database.Migrations {
	all := fstest.MapFS{}
	for name, text := range files {
		all["migrations/"+name] = &fstest.MapFile{Data: []byte(text)}
	}
	return database.Migrations{FS: all, Table: table}
}

func TestMigrate(t *testing.T) {
	first := migrations("notes_version", map[string]string{"0001_notes.sql": notes})
	both := migrations("notes_version", map[string]string{"0001_notes.sql": notes, "0002_one.sql": one})
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		db := open(t, url)
		check := func(m database.Migrations, wantHave, wantWant int64) {
			t.Helper()
			if have, want, err := db.Schema(t.Context(), m); err != nil || have != wantHave || want != wantWant {
				t.Errorf("Schema = %d, %d, %v; want %d, %d", have, want, err, wantHave, wantWant)
			}
		}
		check(both, 0, 2)
		check(both, 0, 2) // the first check has created nothing
		must.Do(t, db.Migrate(t.Context(), first))
		check(both, 1, 2)
		for range 2 {
			must.Do(t, db.Migrate(t.Context(), both))
			check(both, 2, 2)
		}
		must.Do(t, db.Migrate(t.Context(), first)) // an older program beside a newer one
		check(first, 2, 1)
		must.Do(t, db.Migrate(t.Context(), migrations(
			"letters_version", // another owner's
			map[string]string{
				db.Dialect().String() + "/0001_letters.sql": "-- +goose Up\nCREATE TABLE letters (id BIGINT);\n",
				"0002_pages.sql": "-- +goose Up\nCREATE TABLE pages (id BIGINT);\n",
				db.Dialect().String() + "/0002_pages.sql": "INSERT INTO pages VALUES (7);\n",
				"other/0002_pages.sql":                    "INSERT INTO pages VALUES (8);\n",
			},
		)))
		exec(t, db, `INSERT INTO letters VALUES (1)`)
		var pages []int
		must.Do(t, db.Select(&pages, `SELECT id FROM pages`))
		if len(pages) != 1 || pages[0] != 7 {
			t.Errorf("a file that another one continues: %v", pages)
		}
	})
}

func TestProgramsMigrateTogether(t *testing.T) {
	m := migrations("notes_version", map[string]string{"0001_notes.sql": notes, "0002_one.sql": one})
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		var programs sync.WaitGroup
		for range 8 {
			programs.Go(func() {
				db, err := database.OpenOrCreate(url)
				if err == nil {
					err = errors.Join(db.Migrate(t.Context(), m), db.Close())
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		programs.Wait()
		var count int
		must.Do(t, open(t, url).Get(&count, `SELECT COUNT(*) FROM notes`))
		must.Equal(t, count, 1, "notes")
	})
}

// Without _txlock=immediate nearly all of these transactions fail "busy".
func TestReadThenWriteTransactionsNeverFailBusy(t *testing.T) {
	const writers, rounds = 8, 50
	url := testkit.SQLite(t)
	exec(t, open(t, url), `CREATE TABLE counter (n BIGINT NOT NULL)`)
	exec(t, open(t, url), `INSERT INTO counter VALUES (0)`)
	var running sync.WaitGroup
	for range writers {
		db := open(t, url) // its own pool, as another process has
		count := func() error {
			tx, err := db.Begin()
			if err != nil {
				return err
			}
			defer tx.Rollback()
			var n int
			err = tx.QueryRow(`SELECT n FROM counter`).Scan(&n)
			if err == nil {
				_, err = tx.Exec(`UPDATE counter SET n = $1`, n+1)
			}
			if err == nil {
				err = tx.Commit()
			}
			return err
		}
		running.Go(func() {
			for range rounds {
				if err := count(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
	var n int
	must.Do(t, open(t, url).Get(&n, `SELECT n FROM counter`))
	must.Equal(t, n, writers*rounds, "counted")
}

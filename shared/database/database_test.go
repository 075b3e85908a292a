package database_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

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

func TestOpenMakesNoFile(t *testing.T) {
	url := testkit.SQLite(t)
	if _, err := database.Open(url); !errors.Is(err, database.ErrNoFile) || !strings.Contains(err.Error(), "keyadmin migrate") {
		t.Errorf("Open of a missing file = %v", err)
	}
	if _, err := os.Stat(strings.TrimPrefix(url, "sqlite:")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Open made a file: %v", err)
	}
}

func TestOpenOrCreateMakesTheDirectoryToo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a ? directory %41 #", "petgate.db")
	open(t, "sqlite:"+path)
	info, err := os.Stat(path)
	must.Do(t, err)
	if got := info.Mode().Perm(); got != 0o600 {
		t.Errorf("the file's mode is %o", got)
	}
	db, err := database.Open("sqlite:" + path)
	if err != nil {
		t.Fatalf("Open of the file made: %v", err)
	}
	db.Close()
}

func TestRedact(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://petgate:hunter2@db:5432/pets?sslmode=disable&password=hunter2": "postgres://petgate@db:5432/pets",
		"postgres://db/pets":       "postgres://db/pets",
		"postgres://u:p w@db/pets": "(not a URL)",
		"sqlite:var/petgate.db":    "sqlite:var/petgate.db",
	} {
		if got := database.Redact(url); got != want {
			t.Errorf("Redact(%q) = %q, want %q", url, got, want)
		}
	}
}

func TestErrorClasses(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		db := open(t, url)
		exec(t, db, `CREATE TABLE notes (id BIGINT PRIMARY KEY, note TEXT UNIQUE)`)
		exec(t, db, `INSERT INTO notes VALUES (1, 'one')`)
		try := func(name, statement string, unavailable, unique, readOnly bool) {
			t.Helper()
			_, err := db.Exec(statement)
			if err == nil {
				t.Fatalf("%s: no error", name)
			}
			wrapped := fmt.Errorf("somebody: %w", err)
			if database.IsUnavailable(wrapped) != unavailable || database.IsUnique(wrapped) != unique || database.IsReadOnly(wrapped) != readOnly {
				t.Errorf("%s: %v: unavailable %t, unique %t, read-only %t", name, err, database.IsUnavailable(wrapped),
					database.IsUnique(wrapped), database.IsReadOnly(wrapped))
			}
		}
		try("the same primary key", `INSERT INTO notes VALUES (1, 'two')`, false, true, false)
		try("the same unique value", `INSERT INTO notes VALUES (2, 'one')`, false, true, false)
		try("no SQL", `SELEKT`, false, false, false)
		try("no such table", `SELECT 1 FROM nowhere`, false, false, false)

		db.SetMaxOpenConns(1)
		if db.Dialect() == database.Postgres {
			exec(t, db, `SET statement_timeout = 20`)
			try("a slow statement", `SELECT pg_sleep(5)`, true, false, false)
			exec(t, db, `SET default_transaction_read_only = on`)
		} else {
			exec(t, db, `PRAGMA query_only = 1`)
		}
		try("a read-only database", `INSERT INTO notes VALUES (3, 'three')`, false, false, true)
		tx, err := db.Begin() // SQLite refuses already here
		if err == nil {
			defer tx.Rollback()
			_, err = tx.Exec(`INSERT INTO notes VALUES (3, 'three')`)
		}
		if !database.IsReadOnly(err) {
			t.Errorf("a transaction in a read-only database: %v", err)
		}
	})
	for _, err := range []error{nil, errors.New("other"), context.Canceled} {
		if database.IsUnavailable(err) || database.IsUnique(err) || database.IsReadOnly(err) {
			t.Errorf("%v is classed", err)
		}
	}
}

// PostgreSQL gets the arguments of several statements in their text.
func TestRun(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		db := open(t, url)
		n, err := db.Run(t.Context(), db, database.Statement{Query: `SELECT 1`}, database.Statement{
			Query: `SELECT CAST(LENGTH($10) -$1 + $9 AS BIGINT) WHERE $2 + $3 + $4 + $5 + $6 + $7 + $8 > 0`,
			Args:  []any{-20, 2, 3, 4, 5, 6, 7, 8, int64(900), `$1's \`},
		})
		if err != nil || n != 926 {
			t.Errorf("%d, %v", n, err)
		}
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

func migrations(files map[string]string) database.Migrations {
	m := database.Migrations{FS: fstest.MapFS{}, Table: "notes_version"}
	for name, text := range files {
		m.FS.(fstest.MapFS)[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return m
}

func TestMigrate(t *testing.T) {
	const first = "-- +goose Up\nCREATE TABLE notes (id BIGINT PRIMARY KEY);\n-- +goose Down\nDROP TABLE notes;\n"
	const second = "-- +goose Up\nINSERT INTO notes VALUES (1);\n"
	files := map[string]string{"migrations/0001_notes.sql": first}
	one := migrations(files)
	files["migrations/0002_one.sql"] = second
	both := migrations(files)
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
		must.Do(t, db.Migrate(t.Context(), one))
		check(both, 1, 2)
		for range 2 {
			must.Do(t, db.Migrate(t.Context(), both))
			check(both, 2, 2)
		}
		if err := db.Migrate(t.Context(), one); err != nil { // an older program beside a newer one
			t.Errorf("an older program's migration: %v", err)
		}
		check(one, 2, 1)
		other := one
		other.Table = "letters_version"
		other.FS = fstest.MapFS{
			"migrations/" + db.Dialect().String() + "/0001_letters.sql": {Data: []byte("-- +goose Up\nCREATE TABLE letters (id BIGINT);\n")},
		}
		if err := db.Migrate(t.Context(), other); err != nil {
			t.Errorf("another owner's migration: %v", err)
		}
		exec(t, db, `INSERT INTO letters VALUES (1)`)
	})
}

func TestProgramsMigrateTogether(t *testing.T) {
	m := migrations(map[string]string{
		"migrations/0001_notes.sql": "-- +goose Up\nCREATE TABLE notes (id BIGINT PRIMARY KEY);\n",
		"migrations/0002_one.sql":   "-- +goose Up\nINSERT INTO notes VALUES (1);\n",
	})
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		var programs sync.WaitGroup
		for range 8 {
			programs.Go(func() {
				db, err := database.OpenOrCreate(url)
				if err != nil {
					t.Error(err)
					return
				}
				defer db.Close()
				must.Do(t, db.Migrate(t.Context(), m))
			})
		}
		programs.Wait()
		var count int
		if err := open(t, url).Get(&count, `SELECT COUNT(*) FROM notes`); err != nil || count != 1 {
			t.Errorf("%d notes, %v", count, err)
		}
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
		running.Go(func() {
			for range rounds {
				tx, err := db.Begin()
				if err != nil {
					t.Error(err)
					return
				}
				var n int
				if err = tx.QueryRow(`SELECT n FROM counter`).Scan(&n); err == nil {
					_, err = tx.Exec(`UPDATE counter SET n = $1`, n+1)
				}
				if err == nil {
					err = tx.Commit()
				}
				if err != nil {
					t.Error(err)
					_ = tx.Rollback()
					return
				}
			}
		})
	}
	running.Wait()
	var n int
	if err := open(t, url).Get(&n, `SELECT n FROM counter`); err != nil || n != writers*rounds {
		t.Errorf("counted %d of %d, %v", n, writers*rounds, err)
	}
}

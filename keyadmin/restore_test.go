package main

import (
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/keystore/backup"
	"petgate/shared/keystore/schema"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// A backup is a private file, which is there as a whole or not at all.
func TestBackupFile(t *testing.T) {
	t.Parallel()
	s := newMigrated(t, testkit.SQLite(t))
	path := filepath.Join(t.TempDir(), "backup")
	s.ok("backup", path)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v; want the mode 0600", info, err)
	}
	before := must.Get[[]byte](t)(os.ReadFile(path))
	// A database that cannot be read leaves the earlier backup as it is.
	must.Get[sql.Result](t)(s.open().Exec("DROP TABLE quota_records"))
	s.want(exitFailed, "Nothing was written", "backup", path+"2")
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("the earlier backup: %v", err)
	}
	if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 1 {
		t.Errorf("files: %v, %v", files, err)
	}
}

// Two backups that are written to one path at the same time do not touch each other's unfinished
// files.
func TestBackupsOfOnePath(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "backup")
	write := func(text string, meanwhile func()) error {
		return writeFile(path, func(file *os.File) error {
			meanwhile()
			_, err := file.WriteString(text)
			return err
		})
	}
	want := func(text string) {
		t.Helper()
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("the file has %q (%v), want %q", got, err, text)
		}
	}
	err := write("slow", func() {
		if err := write("fast", func() {}); err != nil {
			t.Error(err)
		}
	})
	if !errors.Is(err, fs.ErrExist) {
		t.Errorf("the error is %v: the file has appeared meanwhile", err)
	}
	want("fast")
	if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 1 {
		t.Errorf("files: %v, %v", files, err)
	}
}

// A backup of a later version leaves an empty database empty: the program of its version would
// refuse tables of this one.
func TestRestoreOfALaterVersion(t *testing.T) {
	t.Parallel()
	from := newMigrated(t, testkit.SQLite(t))
	db := from.open()
	must.Get[sql.Result](t)(
		db.Exec("INSERT INTO " + schema.Migrations.Table + " (version_id, is_applied) VALUES (999, true)"),
	)
	path := filepath.Join(t.TempDir(), "backup")
	must.Do(t, writeFile(path, func(file *os.File) error {
		_, err := backup.Write(t.Context(), keystore.New(db, nil, nil, "ada"), file, nil)
		return err
	}))
	s := newShell(t, testkit.Postgres(t))
	for _, flags := range [][]string{{"--dry-run"}, {}} {
		s.want(exitFailed, "schema 999", append([]string{"restore", path}, flags...)...)
		var tables int
		if err := s.open().Get(&tables,
			`SELECT COUNT(*) FROM pg_tables WHERE schemaname = ANY (current_schemas(false))`); err != nil ||
			tables != 0 {
			t.Errorf("%v: there are %d tables, %v", flags, tables, err)
		}
	}
}

// Restore creates the tables of an empty database, and a missing SQLite file.
func TestRestoreCreatesTables(t *testing.T) {
	t.Parallel()
	from := newMigrated(t, testkit.SQLite(t))
	from.ok("tenant", "create", "acme")
	token := from.ok("key", "create", "acme")
	path := filepath.Join(t.TempDir(), "backup")
	from.ok("backup", path)
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		s := newShell(t, url)
		s.now = from.now
		if strings.HasPrefix(url, "sqlite:") {
			s.want(exitFailed, "no such file", "restore", path, "--dry-run")
		} else {
			s.want(exitDone, "The database has no tables", "restore", path, "--dry-run")
			s.want(exitFailed, "migrate", "tenant", "list")
		}
		s.want(exitDone, "Restored 1 tenant and 1 key", "restore", path)
		s.stdin = token
		s.ok("key", "whoami")
		s.want(exitDone, "The backup lacks these changes: 1 database.restored.", "restore", path, "--dry-run")
		// A late gateway has reported before what it keeps.
		store := s.store()
		s.gateway(store, "gw-1", "10.0.0.1:9090")
		must.Get[keystore.Change](t)(
			store.ReportLost(t.Context(),
				[]keystore.LostRefusal{{Kind: keystore.LostSuspension, Tenant: tenantID(s, "acme")}}),
		)
		s.want(exitUnconfirmed, "the database lacks them: 1.", "restore", path, "--yes", "--wait", "0")
	})
}

// Another application's database, and tables of another version, are left alone.
func TestRestoreRefuses(t *testing.T) {
	t.Parallel()
	s := newMigrated(t, testkit.SQLite(t))
	path := filepath.Join(t.TempDir(), "backup")
	s.ok("backup", path)
	other := newShell(t, testkit.SQLite(t))
	db := must.Get[*database.DB](t)(database.OpenOrCreate(strings.TrimPrefix(other.env[0], "DATABASE_URL=")))
	defer db.Close()
	must.Get[sql.Result](t)(db.Exec("CREATE TABLE orders (id BIGINT)"))
	other.want(exitFailed, "orders", "restore", path)
	must.Get[sql.Result](t)(s.open().Exec("UPDATE " + schema.Migrations.Table + " SET version_id = version_id + 1"))
	s.want(exitFailed, "upgrade the program", "restore", path)
}

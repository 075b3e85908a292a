package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math"
	"path"
	"strings"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

// Migrations are the tables of one owner, as goose files.
type Migrations struct {
	FS    fs.FS  // migrations for both databases; those for one database are in the folders postgres and sqlite
	Table string // goose's version table; each owner needs its own

	Tables []string // whose rows are backed up, parents before children
}

// Migrate migrates the owner's tables to the current version. Programs that start together wait for
// one another.
func (d *DB) Migrate(ctx context.Context, m Migrations) error {
	return d.MigrateTo(ctx, m, math.MaxInt64)
}

// MigrateTo is Migrate up to an earlier version.
func (d *DB) MigrateTo(ctx context.Context, m Migrations, version int64) error {
	if err := d.migrate(ctx, m, version); err != nil {
		return fmt.Errorf("migrate %s: %w", m.Table, Explain(err))
	}
	return nil
}

func (d *DB) migrate(ctx context.Context, m Migrations, version int64) error {
	if d.dialect == SQLite {
		unlock, err := d.lockFile(ctx)
		if err != nil {
			return err
		}
		defer unlock()
		return d.up(ctx, m, version, d.DB.DB)
	}
	patient, err := openPostgres(d.dsn, true) // migrations wait for a lock and may take long
	if err != nil {
		return err
	}
	defer patient.Close()
	name := fnv.New64a()
	name.Write([]byte("petgate migrate " + m.Table))
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockID(int64(name.Sum64())),
		lock.WithLockTimeout(1, math.MaxInt32))
	if err != nil {
		return err
	}
	return d.up(ctx, m, version, patient.DB.DB, goose.WithSessionLocker(locker))
}

func (d *DB) up(ctx context.Context, m Migrations, version int64, pool *sql.DB, options ...goose.ProviderOption) error {
	p, err := d.provider(m, pool, options...)
	if err != nil {
		return err
	}
	_, err = p.UpTo(ctx, version)
	return err
}

func (d *DB) provider(m Migrations, pool *sql.DB, options ...goose.ProviderOption) (*goose.Provider, error) {
	files, err := fs.Sub(m.FS, "migrations")
	if err != nil {
		return nil, err
	}
	dialect := goose.DialectPostgres
	if d.dialect == SQLite {
		dialect = goose.DialectSQLite3
	}
	return goose.NewProvider(dialect, pool, migrationFiles{files, d.dialect.String()}, append(options,
		goose.WithTableName(m.Table), goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))...)
}

// migrationFiles presents the files for both databases and the files for one database as one
// folder.
type migrationFiles struct {
	fs.FS
	own string // the folder for this database only; it may not exist
}

func (m migrationFiles) ReadDir(name string) ([]fs.DirEntry, error) {
	files, err := fs.ReadDir(m.FS, name)
	if err != nil {
		return nil, err
	}
	own, err := fs.ReadDir(m.FS, m.own)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return append(files, own...), err
}

func (m migrationFiles) Open(name string) (fs.File, error) {
	f, err := m.FS.Open(path.Join(m.own, name))
	if name == "." || errors.Is(err, fs.ErrNotExist) {
		return m.FS.Open(name)
	}
	return f, err
}

// Whether a table exists. $1: its name.
var tableExists = map[Dialect]string{
	Postgres: `SELECT to_regclass($1) IS NOT NULL`,
	SQLite:   `SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = $1)`,
}

// Schema returns the version of the owner's tables (0: an empty database) and the version that this
// program needs. It changes nothing.
func (d *DB) Schema(ctx context.Context, m Migrations) (have, want int64, err error) {
	p, err := d.provider(m, d.DB.DB)
	if err != nil {
		return 0, 0, Explain(fmt.Errorf("read the schema version of %s: %w", m.Table, err))
	}
	for _, source := range p.ListSources() {
		want = max(want, source.Version)
	}
	var exists bool
	err = d.QueryRowContext(ctx, tableExists[d.dialect], m.Table).Scan(&exists)
	if err == nil && exists {
		err = d.QueryRowContext(ctx, "SELECT COALESCE(MAX(version_id), 0) FROM "+m.Table).Scan(&have)
	}
	if err != nil {
		return 0, want, Explain(fmt.Errorf("read the schema version of %s: %w", m.Table, err))
	}
	return have, want, nil
}

// The tables of a database that has none of Petgate's. The names are those of all Migrations.
var foreignTables = map[Dialect]string{
	Postgres: `SELECT tablename FROM pg_tables
		WHERE schemaname = ANY (current_schemas(false))
			AND to_regclass('keystore_schema') IS NULL
			AND to_regclass('pets_schema') IS NULL
		ORDER BY tablename LIMIT 3`,
	SQLite: `SELECT name FROM sqlite_master
		WHERE type = 'table'
			AND name NOT LIKE 'sqlite_%'
			AND NOT EXISTS (SELECT 1 FROM sqlite_master WHERE name IN ('keystore_schema', 'pets_schema'))
		ORDER BY name LIMIT 3`,
}

// ErrForeign means that the database has tables, but none of Petgate's: it is probably another
// application's.
var ErrForeign = errors.New(
	"none of Petgate's: correct DATABASE_URL, or create Petgate's tables beside them with `keyadmin migrate`",
)

// CheckForeign returns an error that wraps ErrForeign and names some tables, if the database is
// another application's.
func (d *DB) CheckForeign(ctx context.Context) error {
	var tables []string
	if err := d.SelectContext(ctx, &tables, foreignTables[d.dialect]); err != nil {
		return fmt.Errorf("list the tables: %w", err)
	}
	if len(tables) > 0 {
		return fmt.Errorf("the database has tables such as %s, and %w", strings.Join(tables, ", "), ErrForeign)
	}
	return nil
}

package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

// Migrations are the tables of one owner, as goose files.
type Migrations struct {
	// FS has the files for both databases in the folder migrations. Its folders postgres and sqlite
	// have those for one database: a file continues the file for both that has its name.
	FS    fs.FS
	Table string // goose's version table; each owner needs its own

	// Functions are statements that create functions of PostgreSQL, or replace them. They run after
	// the migrations, unless a later version of the program has migrated the database.
	Functions []string

	Tables []string // whose rows are backed up, parents before children
}

// Migrate migrates the owner's tables to the current version. Programs that start together wait for
// one another.
func (d *DB) Migrate(ctx context.Context, m Migrations) error {
	if err := d.migrate(ctx, m); err != nil {
		return fmt.Errorf("migrate %s: %w", m.Table, Explain(err))
	}
	return nil
}

func (d *DB) migrate(ctx context.Context, m Migrations) error {
	if err := d.checkEarlier(ctx); err != nil {
		return err
	}
	if d.dialect == SQLite {
		unlock, err := d.lockFile(ctx)
		if err != nil {
			return err
		}
		defer unlock()
		_, err = d.up(ctx, m, d.DB.DB)
		return err
	}
	patient, err := openPostgres(d.dsn, true) // migrations wait for a lock and may take long
	if err != nil {
		return err
	}
	defer patient.Close()
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockID(lockOf("petgate migrate "+m.Table)),
		lock.WithLockTimeout(1, math.MaxInt32))
	if err != nil {
		return err
	}
	version, err := d.up(ctx, m, patient.DB.DB, goose.WithSessionLocker(locker))
	if err != nil || len(m.Functions) == 0 {
		return err
	}
	return patient.createFunctions(ctx, m, version)
}

// lockOf returns the number of the advisory lock that has a name.
func lockOf(name string) int64 {
	sum := fnv.New64a()
	sum.Write([]byte(name))
	return int64(sum.Sum64())
}

// up runs the migrations that are missing, and returns the version that this program knows.
func (d *DB) up(
	ctx context.Context, m Migrations, pool *sql.DB, options ...goose.ProviderOption,
) (version int64, err error) {
	p, err := d.provider(m, pool, options...)
	if err != nil {
		return 0, err
	}
	_, err = p.Up(ctx)
	return latest(p), err
}

// latest returns the last version of the migrations.
func latest(p *goose.Provider) (version int64) {
	for _, source := range p.ListSources() {
		version = max(version, source.Version)
	}
	return version
}

// createFunctions creates the functions of a program that knows a version of the tables. Under the
// lock, a program that knows a later one comes last, or this one sees its version.
func (d *DB) createFunctions(ctx context.Context, m Migrations, version int64) error {
	tx, err := d.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	number := lockOf("petgate functions " + m.Table)
	if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1)`, number); err != nil {
		return err
	}
	var have int64
	if err := tx.GetContext(ctx, &have, "SELECT MAX(version_id) FROM "+m.Table); err != nil || have > version {
		return err
	}
	for _, statement := range m.Functions {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return tx.Commit()
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
// folder. A file for one database continues the file for both that has its name.
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
	for _, file := range own {
		isContinued := slices.ContainsFunc(files, func(f fs.DirEntry) bool { return f.Name() == file.Name() })
		if !isContinued {
			files = append(files, file)
		}
	}
	return files, err
}

func (m migrationFiles) Open(name string) (fs.File, error) {
	both, err := m.FS.Open(name)
	if name == "." {
		return both, err
	}
	own, ownErr := m.FS.Open(path.Join(m.own, name))
	switch {
	case errors.Is(ownErr, fs.ErrNotExist):
		return both, err
	case errors.Is(err, fs.ErrNotExist):
		return own, ownErr
	case err != nil || ownErr != nil:
		return nil, errors.Join(err, ownErr)
	}
	return continued{both, own, io.MultiReader(both, own)}, nil
}

// continued is a file with the text of another one after its own.
type continued struct {
	fs.File
	by   fs.File
	text io.Reader
}

func (c continued) Read(p []byte) (int, error) { return c.text.Read(p) }

func (c continued) Close() error { return errors.Join(c.File.Close(), c.by.Close()) }

// earlierTable is the version table of the keys' tables before version 1.0.0.
const earlierTable = "keystore_schema"

// ErrEarlier means that the database has the tables of a version before 1.0.0.
var ErrEarlier = errors.New("the database has the tables of a version before 1.0.0, which cannot be migrated: " +
	"create another database, and set DATABASE_URL to it")

func (d *DB) checkEarlier(ctx context.Context) error {
	exists, err := d.hasTable(ctx, earlierTable)
	if err == nil && exists {
		err = ErrEarlier
	}
	return err
}

func (d *DB) hasTable(ctx context.Context, name string) (exists bool, err error) {
	err = d.GetContext(ctx, &exists, tableExists[d.dialect], name)
	return exists, err
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
	want = latest(p)
	exists, err := d.hasTable(ctx, m.Table)
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
			AND to_regclass('keys_schema') IS NULL
			AND to_regclass('pets_schema') IS NULL
		ORDER BY tablename LIMIT 3`,
	SQLite: `SELECT name FROM sqlite_master
		WHERE type = 'table'
			AND name NOT LIKE 'sqlite_%'
			AND NOT EXISTS (SELECT 1 FROM sqlite_master WHERE name IN ('keys_schema', 'pets_schema'))
		ORDER BY name LIMIT 3`,
}

// ErrForeign means that the database has tables, but none of Petgate's: it is probably another
// application's.
var ErrForeign = errors.New(
	"none of Petgate's: correct DATABASE_URL, or create Petgate's tables beside them with `keyadmin migrate`",
)

// CheckForeign returns an error that wraps ErrForeign and names some tables, if the database is
// another application's, and ErrEarlier for a database of a version before 1.0.0.
func (d *DB) CheckForeign(ctx context.Context) error {
	if err := d.checkEarlier(ctx); err != nil {
		return err
	}
	var tables []string
	if err := d.SelectContext(ctx, &tables, foreignTables[d.dialect]); err != nil {
		return fmt.Errorf("list the tables: %w", err)
	}
	if len(tables) > 0 {
		return fmt.Errorf("the database has tables such as %s, and %w", strings.Join(tables, ", "), ErrForeign)
	}
	return nil
}

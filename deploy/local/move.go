package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/jmoiron/sqlx"

	"petgate/petsvc/pets"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/service"
)

// moveCommand is the first argument of a move.
const moveCommand = "move"

const aboutMove = `Copies the data of make run from var/petgate.db to PostgreSQL: keys, tenants, usage, saved quotas, the audit log and pets.

Everything is copied, compared by the number of rows and a checksum of each table, and only then committed: first the pets, then the
keys, each in one transaction. The file stays as it is. If the command is interrupted, repeat it: what was committed is compared again,
and not copied twice. Until the keys are committed, the new database accepts no key.`

// mover moves the data of make run.
type mover struct {
	To     string `placeholder:"URL" required:"" help:"The new database: postgres://user@host/name, without a password. $$PGPASSWORD or the file ~/.pgpass has it."`
	PetsTo string `placeholder:"URL" help:"Another database for the pets, or another role. Default: the same."`
	DryRun bool   `help:"Do everything except the commits. It creates no tables, and copies nothing into missing ones."`

	out io.Writer
}

// password matches a URL with a password. Every user of the machine can read arguments with ps.
var password = regexp.MustCompile(`://[^/@]*:[^/]*@`)

// BadSettings checks the URLs.
func (m *mover) BadSettings() service.BadSettings {
	var bad service.BadSettings
	for name, url := range map[string]string{"to": m.To, "pets-to": m.PetsTo} {
		if url == "" {
			continue
		}
		isPostgres := strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://")
		err := database.CheckURL(url)
		bad.Require(isPostgres, name, "use postgres://user@host/name")
		bad.Require(!isPostgres || err == nil, name, "%v", err)
	}
	return bad
}

// parse reads the command line. It returns false if it has printed the help. Its errors do not repeat a password.
func (m *mover) parse(args []string) (bool, error) {
	if slices.ContainsFunc(args, password.MatchString) {
		return false, errors.New("local move: a URL has a password, which every user of this machine can read with ps: " +
			"leave it out, and set PGPASSWORD instead")
	}
	command, err := service.CommandLine{Program: "local move", About: aboutMove, Args: args, Stdout: os.Stdout, Stderr: os.Stderr}.Parse(m)
	return command != nil, err
}

// moveMain runs `local move` and returns its exit code.
func moveMain(args []string) int {
	m := mover{out: os.Stdout}
	if proceed, err := m.parse(args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	} else if !proceed {
		return 0
	}
	_, err := enterModule()
	if err == nil {
		err = m.run(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "local:", err)
		return 1
	}
	return 0
}

// part is what is moved to one database in one transaction.
type part struct {
	name, url string
	of        database.Migrations
	to        *sqlx.Tx // nil: a dry run has found no tables
	report    string   // with %s for the name
}

func (m *mover) run(ctx context.Context) error {
	if _, err := os.Stat(databasePath); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is nothing to move: `make run` creates %s", databasePath)
	}
	unlock, err := lock(moving)
	if err != nil {
		return err
	}
	defer unlock()
	file, err := database.Open(databaseURL)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := checkSource(ctx, file); err != nil {
		return err
	}
	from, err := file.BeginTxx(ctx, nil) // takes the write lock, and writes nothing
	if err != nil {
		return err
	}
	defer from.Rollback()
	parts := []*part{{name: "pets", url: cmp.Or(m.PetsTo, m.To), of: pets.Migrations}, {name: "keys", url: m.To, of: keystore.Migrations}}
	for _, p := range parts {
		db, err := database.OpenPatient(p.url, false)
		if err == nil {
			defer db.Close()
			err = m.copy(ctx, from, db, p)
		}
		if p.to != nil {
			defer p.to.Rollback() // after Commit it does nothing
		}
		if err != nil {
			return p.failed(err)
		}
	}
	for _, p := range parts {
		if p.to != nil && !m.DryRun {
			if err := p.to.Commit(); err != nil {
				return p.failed(err)
			}
		}
		fmt.Fprintf(m.out, p.report, p.name)
	}
	m.advise(parts[0].url)
	return nil
}

func (p *part) failed(err error) error {
	return fmt.Errorf("the %s in %s: %w", p.name, database.Redact(p.url), database.Explain(err))
}

// checkSource checks that the file has the tables that this program knows, and that its last gateway has stored all it had.
func checkSource(ctx context.Context, from *database.DB) error {
	const again = "start `make run` once more, stop it with Ctrl-C, and repeat the move"
	for _, of := range []database.Migrations{keystore.Migrations, pets.Migrations} {
		if missing, err := isMissing(ctx, from, of); missing || err != nil {
			return fmt.Errorf("%s: %w: %s", databasePath, cmp.Or(err, errors.New("it lacks tables")), again)
		}
	}
	running, err := keystore.New(from, nil, nil, actor()).Gateways(ctx)
	if err == nil && len(running) > 0 {
		err = fmt.Errorf("%s: the gateway %s has not stored all it had, because it was killed, or it runs: %s. "+
			"If it will not come back: bin/keyadmin gateway forget %[2]s", databasePath, running[0].ID, again)
	}
	return err
}

// isMissing reports whether an empty database lacks the tables. It fails if they are of another version, or if there are others.
func isMissing(ctx context.Context, db *database.DB, of database.Migrations) (bool, error) {
	have, want, err := db.Schema(ctx, of)
	if err != nil || have == want {
		return false, err
	}
	if have != 0 {
		return false, fmt.Errorf("the tables have version %d, this program needs %d", have, want)
	}
	foreign, err := db.Foreign(ctx)
	if err == nil && len(foreign) > 0 {
		err = fmt.Errorf("it has tables such as %s, and none of Petgate's: name an empty database", strings.Join(foreign, ", "))
	}
	return true, err
}

// copy copies rows, or compares them if the database is in use. The caller commits.
func (m *mover) copy(ctx context.Context, from *sqlx.Tx, db *database.DB, p *part) error {
	missing, err := isMissing(ctx, db, p.of)
	if missing && err == nil {
		if m.DryRun {
			p.report = "The database has no tables of the %s: the move creates them.\n"
			return nil
		}
		err = db.Migrate(ctx, p.of)
	}
	if err != nil {
		return err
	}
	tables, err := db.Tables(ctx, p.of)
	if err != nil {
		return err
	}
	if p.to, err = db.BeginTxx(ctx, nil); err != nil {
		return err
	}
	used, err := p.of.InUse(ctx, p.to)
	if err != nil {
		return err
	}
	put := db.Replace
	switch {
	case used:
		p.report, put = "The %s are there already, with the same rows.\n", db.Compare
	case m.DryRun:
		p.report = "The %s are copied and compared, but not committed: this is a dry run.\n"
	default:
		p.report = "The %s are copied, compared and committed.\n"
	}
	sums, err := put(ctx, p.to, tables, database.RowsOf(ctx, from, tables))
	if err == nil && !used && p.name == "pets" {
		err = keepNumbers(ctx, from, p.to)
	}
	if err != nil {
		return err
	}
	for _, t := range tables {
		sum := sums[t.Name]
		fmt.Fprintf(m.out, "%-17s %8d rows  %s\n", t.Name, sum.Rows, sum.Hex()[:16])
	}
	return nil
}

// keepNumbers continues the IDs of the pets. An ID that was given once is never given again, even if its pet was removed.
func keepNumbers(ctx context.Context, from, to *sqlx.Tx) error {
	var last int64
	if err := from.GetContext(ctx, &last, `SELECT COALESCE(MAX(seq), 0) FROM sqlite_sequence WHERE name = 'pets'`); err != nil {
		return err
	}
	// Not setval: a transaction that is rolled back does not undo it.
	_, err := to.ExecContext(ctx, fmt.Sprintf("ALTER TABLE pets ALTER COLUMN id RESTART WITH %d", last+1))
	return err
}

// advise says how to start with the new database.
func (m *mover) advise(petsURL string) {
	if m.DryRun {
		fmt.Fprintln(m.out, "\nNothing was changed.")
		return
	}
	fmt.Fprintf(m.out, `
%[1]s is unchanged. Start with the new database, each program in a terminal of its own:

    make build
    DATABASE_URL='%[3]s' bin/petsvc
    DATABASE_URL='%[2]s' GATEWAY_UPSTREAMS=http://127.0.0.1:8081 bin/gateway
    DATABASE_URL='%[2]s' bin/keyadmin doctor

Without REDIS_URL, the gateway goes on with the quotas that were saved. With it, each minute and day begins anew.
make run still uses %[1]s. What it changes from now on is not in the new database.
`, databasePath, m.To, petsURL)
}

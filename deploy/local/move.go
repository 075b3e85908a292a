package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/term"

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

	out, progress io.Writer // progress is nil without a terminal
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
		bad.Require(isPostgres, name, "use postgres://user@host/name")
		err := database.CheckURL(url)
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
	if term.IsTerminal(int(os.Stderr.Fd())) {
		m.progress = os.Stderr
	}
	started, err := os.Getwd()
	if err == nil {
		err = enterModule(started)
	}
	if err == nil {
		err = m.run(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "local:", err)
		return 1
	}
	return 0
}

// target is what is moved to one database.
type target struct {
	name, url string
	of        database.Migrations
	db        *database.DB
	isMissing bool // a dry run does not create the tables
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
	from, err := database.Open(databaseURL)
	if err != nil {
		return err
	}
	defer from.Close()
	if err := checkSource(ctx, from); err != nil {
		return err
	}
	petsURL := m.PetsTo
	if petsURL == "" {
		petsURL = m.To
	}
	// In the order of their commits.
	targets := []*target{{name: "pets", url: petsURL, of: pets.Migrations}, {name: "keys", url: m.To, of: keystore.Migrations}}
	for _, t := range targets {
		if err := m.open(ctx, t); err != nil {
			return fmt.Errorf("the %s in %s: %w", t.name, database.Redact(t.url), err)
		}
		defer t.db.Close()
	}
	for _, t := range targets { // before the first commit
		if err := refuseOthers(ctx, from, t); err != nil {
			return fmt.Errorf("the %s in %s: %w", t.name, database.Redact(t.url), err)
		}
	}
	for _, t := range targets {
		if err := m.copy(ctx, from, t); err != nil {
			return fmt.Errorf("the %s in %s: %w", t.name, database.Redact(t.url), err)
		}
	}
	m.advise(petsURL)
	return nil
}

// checkSource checks that the file has the tables that this program knows, and that its last gateway has stored all it had.
func checkSource(ctx context.Context, from *database.DB) error {
	const again = "start `make run` once more, stop it with Ctrl-C, and repeat the move"
	store := keystore.New(from, nil, nil, actor())
	have, want, err := from.Schema(ctx, pets.Migrations)
	if err == nil && have != want {
		err = fmt.Errorf("the tables of the pets have version %d, this program needs %d", have, want)
	}
	if err = errors.Join(store.CheckSchema(ctx), err); err != nil {
		return fmt.Errorf("%s: %w: %s", databasePath, err, again)
	}
	running, err := store.Gateways(ctx)
	if err != nil {
		return err
	}
	if len(running) > 0 {
		return fmt.Errorf("%s: the gateway %s has not stored all it had, because it was killed, or it runs: %s. "+
			"If it will not come back: bin/keyadmin gateway forget %[2]s", databasePath, running[0].ID, again)
	}
	return nil
}

// open opens a target and creates missing tables.
func (m *mover) open(ctx context.Context, t *target) (err error) {
	if t.db, err = database.OpenPatient(t.url, false); err != nil {
		return err
	}
	have, want, err := t.db.Schema(ctx, t.of)
	if err != nil {
		return database.Explain(err)
	}
	if have == 0 {
		foreign, err := t.db.Foreign(ctx)
		if err != nil {
			return err
		}
		if len(foreign) > 0 {
			return fmt.Errorf("it has tables such as %s, and none of Petgate's: name an empty database", strings.Join(foreign, ", "))
		}
		if t.isMissing = m.DryRun; t.isMissing {
			return nil
		}
		return t.db.Migrate(ctx, t.of)
	}
	if have != want {
		return fmt.Errorf("the tables have version %d, this program needs %d", have, want)
	}
	return nil
}

// refuseOthers fails if the target has other rows than the file.
func refuseOthers(ctx context.Context, from *database.DB, t *target) error {
	if t.isMissing {
		return nil
	}
	used, err := t.of.InUse(ctx, t.db)
	if err == nil && used {
		_, _, err = database.Copy{From: from, To: t.db, Of: t.of, DryRun: true}.Run(ctx)
	}
	return err
}

func (m *mover) copy(ctx context.Context, from *database.DB, t *target) error {
	if t.isMissing {
		fmt.Fprintf(m.out, "The database has no tables of the %s: the move creates them.\n", t.name)
		return nil
	}
	c := database.Copy{From: from, To: t.db, Of: t.of, DryRun: m.DryRun}
	if m.progress != nil {
		c.Progress = func(table string, rows int64) { fmt.Fprintf(m.progress, "\r%s: %d rows\x1b[K", table, rows) }
	}
	copied, done, err := c.Run(ctx)
	if m.progress != nil {
		fmt.Fprint(m.progress, "\r\x1b[K")
	}
	if err != nil {
		return err
	}
	for _, one := range copied {
		fmt.Fprintf(m.out, "%-17s %8d rows  %s\n", one.Table, one.Sum.Rows, one.Sum.Hex()[:16])
	}
	what := "copied, compared and committed"
	switch {
	case done:
		what = "there already, with the same rows"
	case m.DryRun:
		what = "copied and compared, but not committed: this is a dry run"
	}
	fmt.Fprintf(m.out, "The %s are %s.\n\n", t.name, what)
	return nil
}

// advise says how to start with the new database.
func (m *mover) advise(petsURL string) {
	if m.DryRun {
		fmt.Fprintln(m.out, "Nothing was changed.")
		return
	}
	fmt.Fprintf(m.out, `%[1]s is unchanged. Start with the new database, each program in a terminal of its own:

    make build
    DATABASE_URL='%[3]s' bin/petsvc
    DATABASE_URL='%[2]s' GATEWAY_UPSTREAMS=http://127.0.0.1:8081 bin/gateway
    DATABASE_URL='%[2]s' bin/keyadmin doctor

Without REDIS_URL, the gateway goes on with the quotas that were saved. With it, each minute and day begins anew.
make run still uses %[1]s. What it changes from now on is not in the new database.
`, databasePath, m.To, petsURL)
}

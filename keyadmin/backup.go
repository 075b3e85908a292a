package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"petgate/shared/database"
	"petgate/shared/durable"
	"petgate/shared/keystore"
	"petgate/shared/keystore/backup"
	"petgate/shared/keystore/schema"
	"petgate/shared/operate"
)

type backupCommand struct {
	File string `arg:"" help:"The file to write, which must not exist."`
	signing
}

// signing is the flag of the commands that write or read a backup.
type signing struct {
	KeyFile string `placeholder:"FILE" help:"A file with a secret, such as from openssl rand -hex 32. A restore with the same secret notices if anybody else has changed the backup."`
}

// key reads the secret; nil: none is wanted.
func (s signing) key() ([]byte, error) {
	if s.KeyFile == "" {
		return nil, nil
	}
	key, err := os.ReadFile(s.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("read --key-file: %w", err)
	}
	key = bytes.TrimSpace(key)
	if len(key) < signingBytesMin {
		return nil, fmt.Errorf("--key-file: %s has %d bytes, which can be guessed: openssl rand -hex 32 > %[1]s",
			s.KeyFile, len(key))
	}
	return key, nil
}

const signingBytesMin = 16

// backupView is a backup as JSON; scripts rely on its fields.
type backupView struct {
	File      string      `json:"file"`
	TakenAt   string      `json:"takenAt"`
	Schema    int64       `json:"schema"`
	LastEvent int64       `json:"lastEvent"`
	Tables    []tableView `json:"tables"`
}

type tableView struct {
	Name string `json:"name"`
	Rows int64  `json:"rows"`
	Sum  string `json:"sum"`
}

func (c *backupCommand) Run(ctx context.Context, a *app) error {
	if _, err := os.Lstat(c.File); err == nil {
		return fmt.Errorf("%s exists. Nothing was written: choose another name", c.File)
	}
	key, err := c.key()
	if err != nil {
		return err
	}
	if err := a.openWith(patient(false)); err != nil {
		return err
	}
	if err := a.operator.Store.CheckSchema(ctx); err != nil {
		return err
	}
	var h backup.Header
	err = writeFile(c.File, func(file *os.File) (err error) {
		if h, err = backup.Write(ctx, a.operator.Store, file, key); err != nil {
			return err
		}
		_, err = backup.Read(file, key)
		return err
	})
	if err != nil {
		return err
	}
	if a.asData() {
		return a.print(backupView{
			File: c.File, TakenAt: h.TakenAt.String(), Schema: h.Schema, LastEvent: int64(h.LastEvent),
			Tables: operate.ViewsOf(h.Tables,
				func(t backup.Table) tableView { return tableView{t.Name, t.Sum.Rows, t.Sum.Digest.String()} }),
		}, table{})
	}
	a.note("Backed up %s, %s and %s to %s.", operate.Plural(int(h.Rows("tenants")), "tenant"),
		operate.Plural(int(h.Rows("tenant_keys")), "key"), operate.Plural(int(h.Rows("events")), "change"), c.File)
	return nil
}

// writeFile writes a file that appears only when it is complete and on the disk. Its owner alone
// may read it. A file that has appeared meanwhile stays, and the error wraps fs.ErrExist. An error
// says whether the file was written.
func writeFile(path string, write func(*os.File) error) error {
	// A name of its own: another backup may be written to the same path at this moment.
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("%w. Nothing was written", err)
	}
	defer file.Close()
	if err = write(file); err != nil {
		return fmt.Errorf("%w. Nothing was written", errors.Join(err, os.Remove(file.Name())))
	}
	if err = durable.Publish(file, path); err == nil {
		return nil
	}
	written, statErr := file.Stat()
	if is, pathErr := os.Stat(path); statErr == nil && pathErr == nil && os.SameFile(is, written) {
		return fmt.Errorf("%s was written and is complete. A later step failed: %w", path, err)
	}
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w: its file system may have no hard links, so write the file to another one, and copy it",
			err)
	}
	return fmt.Errorf("%w. Nothing was written", err)
}

// patient opens the database for a command that copies whole tables.
func patient(create bool) func(url string) (*database.DB, error) {
	return func(url string) (*database.DB, error) { return database.OpenPatient(url, create) }
}

type restoreCommand struct {
	File      string `arg:"" help:"A file that backup wrote."`
	DryRun    bool   `help:"Only check the file, and list what the database has and the backup has not."`
	LoseNewer bool   `help:"Also lose the revocations, rotations, suspensions and bans that the backup lacks."`
	signing
	asking
	waiting
}

// restoreView is a restore as JSON; scripts rely on its fields.
type restoreView struct {
	TakenAt  string               `json:"takenAt"`
	Live     bool                 `json:"live"`     // the database had tenants or changes before
	Newer    []newerView          `json:"newer"`    // refusals that the backup lacks
	Lost     []backup.LostChanges `json:"lost"`     // all changes that the backup lacks, those of newer included
	Restored bool                 `json:"restored"` // false: it was a dry run
}

type newerView struct {
	Kind     string `json:"kind"`
	TenantID string `json:"tenantId"`
	KeyID    string `json:"keyId,omitempty"`
	At       string `json:"at,omitempty"` // of the revocation, or the end of the grace period or of the ban
}

func (c *restoreCommand) Run(ctx context.Context, a *app) error {
	key, err := c.key()
	if err != nil {
		return err
	}
	file, err := os.Open(c.File)
	if err != nil {
		return fmt.Errorf("read the backup: %w", err)
	}
	defer file.Close()
	from, err := backup.Read(file, key)
	if err != nil {
		return fmt.Errorf("read %s: %w", c.File, err)
	}
	if key == nil && from.MAC != "" {
		a.note("The backup was written with --key-file. Without it, a change of the file is not noticed.")
	}
	if empty, err := a.openForRestore(ctx, from, c.DryRun); err != nil {
		return err
	} else if empty {
		a.note("The backup is good: %s. The database has no tables: the restore creates them.", contents(from))
		return nil
	}
	restore, err := backup.Prepare(ctx, a.operator.Store, from)
	if err != nil {
		return err
	}
	defer restore.Close()
	if c.DryRun {
		a.note("The backup is good: %s.", contents(from))
	}
	v := restoreView{
		TakenAt:  from.TakenAt.String(),
		Live:     restore.Live,
		Newer:    []newerView{},
		Lost:     []backup.LostChanges{},
		Restored: !c.DryRun,
	}
	v.Lost = append(v.Lost, restore.Lost...)
	t := table{head: []string{"REFUSAL", "TENANT", "KEY", "NAME", "AT"}, spare: []string{"AT", "NAME"}}
	for _, n := range restore.Newer {
		one := newerView{Kind: n.Kind, TenantID: n.Tenant.String()}
		if !n.Key.IsZero() {
			one.KeyID, one.At = n.Key.String(), n.At.String()
		}
		v.Newer = append(v.Newer, one)
		t.rows = append(
			t.rows,
			[]string{
				n.Kind, n.TenantName, operate.OrDash(one.KeyID), operate.OrDash(n.KeyName), operate.OrDash(one.At),
			},
		)
	}
	if c.DryRun || !a.asData() {
		if err := a.print(v, t); err != nil {
			return err
		}
	}
	if restore.Live {
		a.noteLost(restore, c.LoseNewer)
	}
	if c.DryRun {
		return nil
	}
	question := ""
	if restore.Live {
		question = fmt.Sprintf("Replace what is in the database by the backup of %s?", from.TakenAt.String())
	}
	err = a.carryOut(ctx, operate.Operation{
		Question: question, Laggard: "may still serve what was before",
		Change: func(ctx context.Context) (operate.Outcome, error) {
			change, err := restore.Commit(ctx, c.LoseNewer, question != "" && !c.Yes)
			if errors.Is(err, backup.ErrChanged) {
				err = errors.New("the database has changed since the question. Nothing was changed: repeat the command")
			}
			return operate.Outcome{Change: change, View: v, Done: "Restored " + contents(from) + "."}, err
		},
	}, c.asking, c.waiting)
	if err == nil || errors.As(err, &unconfirmedError{}) {
		a.noteKept(ctx)
	}
	return err
}

// openForRestore opens the database and, unless it only looks, creates missing tables for a backup
// that fits them. empty: there are no tables, and it only looks.
func (a *app) openForRestore(ctx context.Context, b backup.File, look bool) (empty bool, err error) {
	if err := a.openWith(patient(!look)); err != nil {
		return false, err
	}
	err = a.operator.Store.CheckSchema(ctx)
	if !errors.Is(err, keystore.ErrOutdated) {
		return false, err
	}
	have, _, schemaErr := a.db.Schema(ctx, schema.Migrations)
	switch {
	case schemaErr != nil:
		return false, schemaErr
	case have > 0:
		return false, err
	}
	// Before the tables are created: the program of the backup's version would refuse them.
	if err := b.CheckSchema(ctx, a.db); err != nil {
		return false, err
	}
	if look {
		return true, nil
	}
	return false, a.db.Migrate(ctx, schema.Migrations)
}

// contents describes a backup.
func contents(b backup.File) string {
	return fmt.Sprintf("%s and %s as of %s", operate.Plural(int(b.Rows("tenants")), "tenant"),
		operate.Plural(int(b.Rows("tenant_keys")), "key"), b.TakenAt.String())
}

// noteLost says what a restore loses, and what it makes again.
func (a *app) noteLost(r *backup.Restore, loseNewer bool) {
	if r.Foreign {
		a.note("The backup and the database have no change in common: the backup is probably of another installation.")
	}
	if len(r.Lost) == 0 {
		a.note("The database has no change that the backup lacks.")
		return
	}
	var kinds []string
	for _, l := range r.Lost {
		kinds = append(kinds, count(l.Number)+" "+l.Kind)
	}
	a.note("The backup lacks these changes: %s. The restore loses them, and their record in the audit log.",
		strings.Join(kinds, ", "))
	switch n := operate.Plural(len(r.Newer), "refusal"); {
	case len(r.Newer) == 0:
	case loseNewer:
		a.note(
			"It loses the %s in the list too. Gateways that run impose bans again (`keyadmin ban lift`) and "+
				"keep the rest in force (`keyadmin gateway lost`).",
			n,
		)
	default:
		a.note("It makes the %s in the list again.", n)
	}
}

// noteKept says that gateways refuse what the restored database does not.
func (a *app) noteKept(ctx context.Context) {
	if lost, err := a.operator.Store.LostRefusals(ctx); err == nil && len(lost) > 0 {
		a.note(
			"Refusals that gateways keep in force, although the database lacks them: %d. See `keyadmin gateway lost`.",
			len(lost))
	}
}

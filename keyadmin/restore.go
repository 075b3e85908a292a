package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"petgate/shared/keystore"
	"petgate/shared/operate"
)

type restoreCommand struct {
	File      string `arg:"" help:"A file that backup wrote."`
	DryRun    bool   `help:"Only check the file, and list what the database has and the backup has not."`
	LoseNewer bool   `help:"Do not make revocations, rotations, suspensions and bans again that the backup lacks."`
	asking
	waiting
}

// restoreView is a restore as JSON; scripts rely on its fields.
type restoreView struct {
	TakenAt  string                 `json:"takenAt"`
	Live     bool                   `json:"live"`     // the database had tenants or changes before
	Newer    []newerView            `json:"newer"`    // refusals that the backup lacks
	Lost     []keystore.LostChanges `json:"lost"`     // all changes that the backup lacks, those of newer included
	Restored bool                   `json:"restored"` // false: it was a dry run
}

type newerView struct {
	Kind     string `json:"kind"`
	TenantID string `json:"tenantId"`
	KeyID    string `json:"keyId,omitempty"`
	At       string `json:"at,omitempty"` // of the revocation, or the end of the grace period or of the ban
}

func (c *restoreCommand) Run(ctx context.Context, a *app) error {
	file, err := os.Open(c.File)
	if err != nil {
		return fmt.Errorf("read the backup: %w", err)
	}
	defer file.Close()
	backup, err := keystore.ReadBackup(file)
	if err != nil {
		return fmt.Errorf("read %s: %w", c.File, err)
	}
	if empty, err := a.openForRestore(ctx, backup, c.DryRun); err != nil {
		return err
	} else if empty {
		a.note("The backup is good: %s. The database has no tables: the restore creates them.", contents(backup))
		return nil
	}
	line := a.statusLine()
	defer line.end()
	restore, err := a.store.PrepareRestore(ctx, backup, line.rows)
	if err != nil {
		return err
	}
	defer restore.Close()
	line.end()
	if c.DryRun {
		a.note("The backup is good: %s.", contents(backup))
	}
	v := restoreView{TakenAt: backup.TakenAt.String(), Live: restore.Live, Newer: []newerView{}, Lost: []keystore.LostChanges{}, Restored: !c.DryRun}
	v.Lost = append(v.Lost, restore.Lost...)
	t := table{head: []string{"REFUSAL", "TENANT", "KEY", "NAME", "AT"}, spare: []string{"AT", "NAME"}}
	for _, n := range restore.Newer {
		one := newerView{Kind: n.Kind, TenantID: n.Tenant.String()}
		if !n.Key.IsZero() {
			one.KeyID, one.At = n.Key.String(), n.At.String()
		}
		v.Newer = append(v.Newer, one)
		t.rows = append(t.rows, []string{n.Kind, n.TenantName, operate.OrDash(one.KeyID), operate.OrDash(n.KeyName), operate.OrDash(one.At)})
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
		question = fmt.Sprintf("Replace what is in the database by the backup of %s?", backup.TakenAt.String())
	}
	return a.carryOut(ctx, operation{
		yes: c.Yes, wait: c.Wait, after: func(operate.Outcome) { a.noteKept(ctx) },
		Operation: operate.Operation{
			Question: question, Laggard: "may still serve what was before",
			Change: func(ctx context.Context) (operate.Outcome, error) {
				change, err := restore.Commit(ctx, c.LoseNewer, question != "" && !c.Yes)
				if errors.Is(err, keystore.ErrChanged) {
					err = errors.New("the database has changed since the question. Nothing was changed: repeat the command")
				}
				return operate.Outcome{Change: change, View: v, Done: "Restored " + contents(backup) + "."}, err
			},
		},
	})
}

// openForRestore opens the database and, unless it only looks, creates missing tables for a backup that fits them. empty: it only looks,
// and there are none.
func (a *app) openForRestore(ctx context.Context, b keystore.Backup, look bool) (empty bool, err error) {
	if err := a.openWith(patient(!look)); err != nil {
		return false, err
	}
	err = a.store.CheckSchema(ctx)
	if !errors.Is(err, keystore.ErrOutdated) {
		return false, err
	}
	have, _, schemaErr := a.db.Schema(ctx, keystore.Migrations)
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
	return false, a.db.Migrate(ctx, keystore.Migrations)
}

// contents describes a backup.
func contents(b keystore.Backup) string {
	return fmt.Sprintf("%s and %s as of %s", operate.Plural(int(b.Rows("tenants")), "tenant"), operate.Plural(int(b.Rows("tenant_keys")), "key"),
		b.TakenAt.String())
}

// noteLost says what a restore loses, and what it makes again.
func (a *app) noteLost(r *keystore.Restore, loseNewer bool) {
	if r.Foreign {
		a.warn("The backup and the database have no change in common: the backup is probably of another installation.")
	}
	if len(r.Lost) == 0 {
		a.note("The database has no change that the backup lacks.")
		return
	}
	var kinds []string
	for _, l := range r.Lost {
		kinds = append(kinds, count(l.Number)+" "+l.Kind)
	}
	a.warn("The backup lacks these changes: %s. The restore loses them, and their record in the audit log.", strings.Join(kinds, ", "))
	switch n := operate.Plural(len(r.Newer), "refusal"); {
	case len(r.Newer) == 0:
	case loseNewer:
		a.warn("It loses the %s in the list too. Gateways that run impose bans again (`keyadmin ban lift`) and keep the rest in force (`keyadmin gateway lost`).", n)
	default:
		a.note("It makes the %s in the list again.", n)
	}
}

// noteKept says that gateways refuse what the restored database does not.
func (a *app) noteKept(ctx context.Context) {
	if lost, err := a.store.LostRefusals(ctx); err == nil && len(lost) > 0 {
		a.warn("Refusals that gateways keep in force, although the database lacks them: %d. See `keyadmin gateway lost`.", len(lost))
	}
}

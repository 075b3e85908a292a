package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"petgate/shared/database"
	"petgate/shared/durable"
	"petgate/shared/keystore"
	"petgate/shared/operate"
)

type backupCommand struct {
	File string `arg:"" help:"The file to write, which must not exist."`
}

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
	if err := a.openWith(patient(false)); err != nil {
		return err
	}
	if err := a.store.CheckSchema(ctx); err != nil {
		return err
	}
	var h keystore.BackupHeader
	err := writeFile(c.File, func(file *os.File) (err error) {
		line := a.statusLine()
		defer line.end()
		if h, err = a.store.WriteBackup(ctx, file, line.rows); err != nil {
			return err
		}
		_, err = keystore.ReadBackup(file)
		return err
	})
	if err != nil {
		return err
	}
	if a.asData() {
		v := backupView{File: c.File, TakenAt: h.TakenAt.String(), Schema: h.Schema, LastEvent: int64(h.LastEvent)}
		for _, t := range h.Tables {
			v.Tables = append(v.Tables, tableView{t.Name, t.Sum.Rows, t.Sum.Hex()})
		}
		return a.print(v, table{})
	}
	a.note("Backed up %s, %s and %s to %s.", operate.Plural(int(h.Rows("tenants")), "tenant"), operate.Plural(int(h.Rows("tenant_keys")), "key"),
		operate.Plural(int(h.Rows("events")), "change"), c.File)
	return nil
}

// writeFile writes a file that appears only when it is complete and on the disk. Its owner alone may read it. A file that has
// appeared meanwhile stays, and the error wraps fs.ErrExist. An error says whether the file was written.
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
		err = fmt.Errorf("%w: its file system may have no hard links, so write the file to another one, and copy it", err)
	}
	return fmt.Errorf("%w. Nothing was written", err)
}

// patient opens the database for a command that copies whole tables.
func patient(create bool) func(url string) (*database.DB, error) {
	return func(url string) (*database.DB, error) { return database.OpenPatient(url, create) }
}

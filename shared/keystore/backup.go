package keystore

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/jmoiron/sqlx"

	"petgate/shared/core/instant"
	"petgate/shared/database"
)

// A backup is a text file. Its first line is a BackupHeader in JSON, filled with spaces to headerBytes. Then come the rows of the tables,
// in the order of the header, each as the line that database.Table writes. It has the hashes of keys, and no token.

// headerBytes is the length of the first line with its end. The sums in it are known only after the rows were written.
const headerBytes = 8192

const (
	backupMagic   = "petgate keys"
	backupVersion = 1
)

// ErrNoBackup means that a file is not a backup, or is damaged.
var ErrNoBackup = errors.New("not a complete backup")

// BackupHeader describes a backup.
type BackupHeader struct {
	Magic     string         `json:"backup"`
	Version   int            `json:"version"`   // of the file's form
	Schema    int64          `json:"schema"`    // of the key tables
	TakenAt   instant.Millis `json:"takenAt"`   // ms, by the clock of the store
	LastEvent Change         `json:"lastEvent"` // 0: none
	Tables    []BackupTable  `json:"tables"`
	Sum       string         `json:"sum"` // SHA-256 of this header without its sum, in hexadecimal
}

// sum returns what Sum must be.
func (h BackupHeader) sum() (string, error) {
	h.Sum = ""
	text, err := json.Marshal(h)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), err
}

// BackupTable is one table of a backup.
type BackupTable struct {
	database.Table
	Sum database.Sum `json:"sum"`
}

// Rows returns the number of rows of a table.
func (h BackupHeader) Rows(table string) int64 {
	for _, t := range h.Tables {
		if t.Name == table {
			return t.Sum.Rows
		}
	}
	return 0
}

// WriteBackup writes all that operators and gateways have stored, as it was at one instant, to a file that is empty. Gateways and
// operators go on meanwhile. Not written: which gateways run, and sessions of the console. progress, which may be nil, is called now and
// then. The store's database is one of OpenPatient.
func (s *Store) WriteBackup(ctx context.Context, file io.WriteSeeker, progress func(table string, rows int64)) (h BackupHeader, err error) {
	h, err = s.writeBackup(ctx, file, progress)
	return h, fail("back up", err)
}

func (s *Store) writeBackup(ctx context.Context, file io.WriteSeeker, progress func(string, int64)) (h BackupHeader, err error) {
	h = BackupHeader{Magic: backupMagic, Version: backupVersion, TakenAt: s.now()}
	if h.Schema, _, err = s.db.Schema(ctx, Migrations); err != nil {
		return h, err
	}
	for _, name := range Migrations.Tables {
		t, err := s.db.Table(ctx, name)
		if err != nil {
			return h, err
		}
		h.Tables = append(h.Tables, BackupTable{Table: t})
	}
	out := bufio.NewWriter(file)
	if _, err := out.Write(make([]byte, headerBytes)); err != nil {
		return h, err
	}
	err = s.snapshot(ctx, func(q sqlx.QueryerContext) error {
		if h.LastEvent, _, err = s.lastEvent(ctx, q); err != nil {
			return err
		}
		for i := range h.Tables {
			t := &h.Tables[i]
			err := t.Each(ctx, q, func(line []byte) error {
				t.Sum.Add(line)
				if progress != nil && t.Sum.Rows%backupProgress == 0 {
					progress(t.Name, t.Sum.Rows)
				}
				_, err := out.Write(append(line, '\n'))
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return h, err
	}
	if err := out.Flush(); err != nil {
		return h, err
	}
	if h.Sum, err = h.sum(); err != nil {
		return h, err
	}
	head, err := json.Marshal(h)
	if err != nil {
		return h, err
	}
	if len(head) >= headerBytes {
		panic("bug: the header of a backup is too long")
	}
	head = append(head, bytes.Repeat([]byte(" "), headerBytes-1-len(head))...)
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return h, err
	}
	_, err = file.Write(append(head, '\n'))
	return h, err
}

// backupProgress is the number of rows between two calls of a progress function.
const backupProgress = 5000

// Backup is a backup in a file, which stays open and must not change while it is used.
type Backup struct {
	BackupHeader
	file io.ReadSeeker
}

// ReadBackup reads and checks a whole file. Errors: ErrNoBackup, or a failure to read.
func ReadBackup(file io.ReadSeeker) (Backup, error) {
	b := Backup{file: file}
	head := make([]byte, headerBytes)
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return b, err
	}
	_, err := io.ReadFull(file, head)
	if err == nil {
		err = json.Unmarshal(head, &b.BackupHeader)
	}
	switch {
	case err != nil || b.Magic != backupMagic:
		return b, fmt.Errorf("%w: its first line is not the head of one", ErrNoBackup)
	case b.Version != backupVersion:
		return b, fmt.Errorf("%w: it has the form %d, this program knows the form %d", ErrNoBackup, b.Version, backupVersion)
	}
	if sum, err := b.sum(); err != nil || sum != b.Sum {
		return b, errors.Join(err, fmt.Errorf("%w: its first line does not have the sum in it", ErrNoBackup))
	}
	sums := make(map[string]*database.Sum, len(b.Tables))
	for _, t := range b.Tables {
		sums[t.Name] = &database.Sum{}
	}
	if err := b.each(func(t BackupTable, line []byte) error {
		sums[t.Name].Add(line)
		return nil
	}); err != nil {
		return b, err
	}
	for _, t := range b.Tables {
		if *sums[t.Name] != t.Sum {
			return b, fmt.Errorf("%w: the rows of %s do not have the sum in its head", ErrNoBackup, t.Name)
		}
	}
	return b, nil
}

// each passes all rows to f.
func (b Backup) each(f func(t BackupTable, line []byte) error) error {
	if _, err := b.file.Seek(headerBytes, io.SeekStart); err != nil {
		return err
	}
	lines := bufio.NewReader(b.file)
	for _, t := range b.Tables {
		for range t.Sum.Rows {
			line, err := lines.ReadBytes('\n')
			if errors.Is(err, io.EOF) {
				return fmt.Errorf("%w: it ends in the rows of %s", ErrNoBackup, t.Name)
			}
			if err != nil {
				return err
			}
			if err := f(t, line[:len(line)-1]); err != nil {
				return err
			}
		}
	}
	if _, err := lines.ReadByte(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: it goes on after its last row", ErrNoBackup)
	}
	return nil
}

// CheckSchema returns ErrSchema unless the backup has the schema that this program has. It changes nothing.
func (b Backup) CheckSchema(ctx context.Context, db *database.DB) error {
	_, want, err := db.Schema(ctx, Migrations)
	if err != nil {
		return err
	}
	if b.Schema != want {
		return fmt.Errorf("%w: the backup has schema %d of the key tables, this program has %d: restore it into an empty database with the "+
			"program of its version, and then migrate", ErrSchema, b.Schema, want)
	}
	return nil
}

// fits checks that the rows can be written to the tables of a database.
func (b Backup) fits(ctx context.Context, db *database.DB) error {
	if err := b.CheckSchema(ctx, db); err != nil {
		return err
	}
	names := make([]string, len(b.Tables))
	for i, t := range b.Tables {
		names[i] = t.Name
		is, err := db.Table(ctx, t.Name)
		if err != nil {
			return err
		}
		if !slices.Equal(is.Columns, t.Columns) {
			return fmt.Errorf("%w: the columns of %s are not those of the database", ErrNoBackup, t.Name)
		}
	}
	if !slices.Equal(names, Migrations.Tables) {
		return fmt.Errorf("%w: its tables are not those of the database", ErrNoBackup)
	}
	return nil
}

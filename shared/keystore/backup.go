package keystore

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/jmoiron/sqlx"

	"petgate/shared/core/instant"
	"petgate/shared/database"
)

// A backup is a text file. Its first line is a BackupHeader in JSON, filled with spaces to
// headerBytes. Then come the rows of the tables, in the order of the header, each as the line that
// database.Table writes. It has the hashes of keys, and no token.

// headerBytes is the length of the first line with its end. The sums in it are known only after the
// rows were written.
const headerBytes = 8192

const (
	backupMagic   = "petgate keys"
	backupVersion = 1

	// lineBytesMax bounds a row: no program writes one that is nearly as long.
	lineBytesMax = 1 << 20
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
	MAC       string         `json:"mac,omitempty"` // HMAC-SHA256 of the rows and this header without sum and MAC, in hexadecimal; empty: no key
	Sum       string         `json:"sum"`           // SHA-256 of this header without its sum, in hexadecimal
}

// sum returns what Sum must be.
func (h BackupHeader) sum() string { return h.finish(sha256.New(), h.MAC) }

// mac returns what MAC must be. rows is a hash with the key, to which all rows were added.
func (h BackupHeader) mac(rows hash.Hash) string { return h.finish(rows, "") }

// finish adds this header with a MAC and without its sum to a hash, and returns the result.
func (h BackupHeader) finish(sum hash.Hash, mac string) string {
	h.Sum, h.MAC = "", mac
	io.WriteString(sum, jsonText(h))
	return hex.EncodeToString(sum.Sum(nil))
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

// WriteBackup writes all that operators and gateways have stored, as it was at one instant, to a
// file that is empty. Gateways and operators go on meanwhile. Not written: which gateways run, and
// sessions of the console. With a key, the file gets a MAC. The store's database is one of
// OpenPatient.
func (s *Store) WriteBackup(ctx context.Context, file io.WriteSeeker, key []byte) (h BackupHeader, err error) {
	defer failed("back up", &err)
	h = BackupHeader{Magic: backupMagic, Version: backupVersion, TakenAt: s.now()}
	if h.Schema, _, err = s.db.Schema(ctx, Migrations); err != nil {
		return h, err
	}
	tables, err := s.db.Tables(ctx, Migrations)
	if err != nil {
		return h, err
	}
	out, signed := bufio.NewWriter(file), hmac.New(sha256.New, key)
	if _, err := out.Write(make([]byte, headerBytes)); err != nil {
		return h, err
	}
	err = s.snapshot(ctx, func(q sqlx.QueryerContext) error {
		if h.LastEvent, _, err = s.lastEvent(ctx, q); err != nil {
			return err
		}
		sums, err := database.RowsOf(ctx, q, tables).Pass(func(_ database.Table, line []byte) error {
			line = append(line, '\n')
			signed.Write(line)
			_, err := out.Write(line)
			return err
		})
		for _, t := range tables {
			h.Tables = append(h.Tables, BackupTable{t, sums[t.Name]})
		}
		return err
	})
	if err != nil {
		return h, err
	}
	if err := out.Flush(); err != nil {
		return h, err
	}
	if len(key) > 0 {
		h.MAC = h.mac(signed)
	}
	h.Sum = h.sum()
	head := jsonText(h)
	if len(head) >= headerBytes {
		panic("bug: the header of a backup is too long")
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return h, err
	}
	_, err = fmt.Fprintf(file, "%-*s\n", headerBytes-1, head)
	return h, err
}

// Backup is a backup in a file, which stays open and must not change while it is used.
type Backup struct {
	BackupHeader
	rows database.Rows
}

// ReadBackup reads a whole file and checks its sums, and with a key its MAC. Errors: ErrNoBackup,
// or a failure to read.
func ReadBackup(file io.ReadSeeker, key []byte) (Backup, error) {
	var b Backup
	b.rows = func(f func(database.Table, []byte) error) error { return b.readRows(file, f) }
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
		return b, fmt.Errorf("%w: its first line is not the header of one", ErrNoBackup)
	case b.Version != backupVersion:
		return b, fmt.Errorf("%w: it has the form %d, this program knows the form %d", ErrNoBackup, b.Version,
			backupVersion)
	}
	if b.sum() != b.Sum {
		return b, fmt.Errorf("%w: its first line does not match its checksum", ErrNoBackup)
	}
	signed := hmac.New(sha256.New, key)
	sums, err := b.rows.Pass(func(_ database.Table, line []byte) error {
		signed.Write(line)
		signed.Write([]byte("\n"))
		return nil
	})
	if err != nil {
		return b, err
	}
	for _, t := range b.Tables {
		if sums[t.Name] != t.Sum {
			return b, fmt.Errorf("%w: the rows of %s do not match their checksum", ErrNoBackup, t.Name)
		}
	}
	if len(key) > 0 && !hmac.Equal([]byte(b.mac(signed)), []byte(b.MAC)) {
		return b, fmt.Errorf("%w: it was not written with this key, or it was changed since", ErrNoBackup)
	}
	return b, nil
}

// tables returns the tables whose names are chosen, and their rows.
func (b Backup) tables(chosen func(name string) bool) (tables []database.Table, rows database.Rows) {
	for _, t := range b.Tables {
		if chosen(t.Name) {
			tables = append(tables, t.Table)
		}
	}
	return tables, func(f func(database.Table, []byte) error) error {
		return b.rows(func(t database.Table, line []byte) error {
			if !chosen(t.Name) {
				return nil
			}
			return f(t, line)
		})
	}
}

// readRows passes all rows of a file to f.
func (h BackupHeader) readRows(file io.ReadSeeker, f func(t database.Table, line []byte) error) error {
	if _, err := file.Seek(headerBytes, io.SeekStart); err != nil {
		return err
	}
	lines := bufio.NewReaderSize(file, lineBytesMax)
	for _, t := range h.Tables {
		for range t.Sum.Rows {
			line, err := lines.ReadSlice('\n')
			if errors.Is(err, bufio.ErrBufferFull) {
				return fmt.Errorf("%w: a row of %s is longer than %d bytes", ErrNoBackup, t.Name, lineBytesMax)
			}
			if errors.Is(err, io.EOF) {
				return fmt.Errorf("%w: it ends in the rows of %s", ErrNoBackup, t.Name)
			}
			if err != nil {
				return err
			}
			if err := f(t.Table, line[:len(line)-1]); err != nil {
				return err
			}
		}
	}
	if _, err := lines.ReadByte(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: there is more after its last row", ErrNoBackup)
	}
	return nil
}

// CheckSchema says whether the backup has an earlier schema than this program. It returns ErrSchema
// if the backup has a later one. It changes nothing.
func (b Backup) CheckSchema(ctx context.Context, db *database.DB) (earlier bool, err error) {
	_, known, err := db.Schema(ctx, Migrations)
	if err == nil && b.Schema > known {
		err = fmt.Errorf(
			"%w: the backup has schema %d of the key tables, this keyadmin knows only %d: use the version that wrote it, or a later one",
			ErrSchema,
			b.Schema,
			known,
		)
	}
	return b.Schema < known, err
}

// fits checks that the rows can be written to the tables of a database.
func (b Backup) fits(ctx context.Context, db *database.DB) error {
	tables, err := db.Tables(ctx, Migrations)
	if err != nil {
		return err
	}
	if !slices.EqualFunc(tables, b.Tables, func(is database.Table, t BackupTable) bool {
		return is.Name == t.Name && slices.Equal(is.Columns, t.Columns)
	}) {
		return fmt.Errorf("%w: its tables are not those of schema %d", ErrNoBackup, b.Schema)
	}
	return nil
}

// upgrade changes the rows of a backup of an earlier schema as the later migrations would have.
// They run in a new SQLite database, from which the rows are then read. Call remove, also after an
// error, to remove it.
func (b *Backup) upgrade(ctx context.Context) (remove func(), err error) {
	dir, err := os.MkdirTemp("", "petgate-restore-")
	if err != nil {
		return func() {}, fmt.Errorf("%w: set $TMPDIR to a directory that can hold the rows", err)
	}
	db, err := database.OpenOrCreate("sqlite:" + filepath.Join(dir, "keys.db"))
	if err != nil {
		return func() { os.RemoveAll(dir) }, err
	}
	remove = func() {
		db.Close()
		os.RemoveAll(dir)
	}
	if err := db.MigrateTo(ctx, Migrations, b.Schema); err != nil {
		return remove, err
	}
	if err := b.fits(ctx, db); err != nil {
		return remove, err
	}
	tables, rows := b.tables(func(string) bool { return true })
	if err := db.Replace(ctx, db, tables, rows); err != nil {
		return remove, err
	}
	if err := db.Migrate(ctx, Migrations); err != nil {
		return remove, err
	}
	if tables, err = db.Tables(ctx, Migrations); err != nil {
		return remove, err
	}
	b.Tables, b.rows = nil, database.RowsOf(ctx, db, tables)
	for _, t := range tables {
		b.Tables = append(b.Tables, BackupTable{Table: t})
	}
	b.Schema, _, err = db.Schema(ctx, Migrations)
	return remove, err
}

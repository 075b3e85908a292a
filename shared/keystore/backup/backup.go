// Package backup writes the key tables to a file, and restores them from it.
//
// A backup is a text file. Its first line is a Header in JSON, filled with spaces to headerBytes.
// Then come the rows of the tables, in the order of the header, each as the line that
// database.Table writes. It has the hashes of keys, and no token.
package backup

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
	"slices"

	"github.com/jmoiron/sqlx"

	"petgate/shared/core/instant"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/keystore/schema"
)

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

// Header describes a backup.
type Header struct {
	Magic     string          `json:"backup"`
	Version   int             `json:"version"`   // of the file's form
	Schema    int64           `json:"schema"`    // of the key tables
	TakenAt   instant.Millis  `json:"takenAt"`   // ms, by the clock of the store
	LastEvent keystore.Change `json:"lastEvent"` // 0: none
	Tables    []Table         `json:"tables"`

	// HMAC-SHA256 of the rows and of this header without Sum and MAC, in hexadecimal. Empty: there
	// was no key.
	MAC string `json:"mac,omitempty"`

	Sum string `json:"sum"` // SHA-256 of this header without Sum, in hexadecimal
}

// sum returns what Sum must be.
func (h Header) sum() string { return h.finish(sha256.New(), h.MAC) }

// mac returns what MAC must be. rows is a hash with the key, to which all rows were added.
func (h Header) mac(rows hash.Hash) string { return h.finish(rows, "") }

// finish adds this header with a MAC and without its sum to a hash, and returns the result.
func (h Header) finish(sum hash.Hash, mac string) string {
	h.Sum, h.MAC = "", mac
	io.WriteString(sum, keystore.JSON(h))
	return hex.EncodeToString(sum.Sum(nil))
}

// Table is one table of a backup.
type Table struct {
	database.Table
	Sum database.Sum `json:"sum"`
}

// Rows returns the number of rows of a table.
func (h Header) Rows(table string) int64 {
	for _, t := range h.Tables {
		if t.Name == table {
			return t.Sum.Rows
		}
	}
	return 0
}

// Write writes what operators and gateways have stored, as it was at one instant, to an empty file.
// Gateways and operators go on meanwhile. It does not write which gateways run, nor sessions of the
// console. With a key, the file gets a MAC. The store's database was opened by OpenPatient, because
// this may take long.
func Write(
	ctx context.Context, s *keystore.Store, file io.WriteSeeker, key []byte,
) (h Header, err error) {
	defer keystore.Failed("back up", &err)
	h = Header{Magic: backupMagic, Version: backupVersion, TakenAt: s.Now()}
	h.Schema, _, err = s.DB().Schema(ctx, schema.Migrations)
	if err != nil {
		return h, err
	}
	tables, err := s.DB().Tables(ctx, schema.Migrations)
	if err != nil {
		return h, err
	}
	out := bufio.NewWriter(file)
	signed := hmac.New(sha256.New, key)
	if _, err := out.Write(make([]byte, headerBytes)); err != nil {
		return h, err
	}
	err = s.Snapshot(ctx, func(q sqlx.QueryerContext) error {
		h.LastEvent, _, err = s.LastEventOf(ctx, q)
		if err != nil {
			return err
		}
		sums, err := database.RowsOf(ctx, q, tables).Pass(func(_ database.Table, line []byte) error {
			line = append(line, '\n')
			signed.Write(line)
			_, err := out.Write(line)
			return err
		})
		for _, t := range tables {
			h.Tables = append(h.Tables, Table{t, sums[t.Name]})
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
	head := keystore.JSON(h)
	if len(head) >= headerBytes {
		panic("bug: the header of a backup is too long")
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return h, err
	}
	_, err = fmt.Fprintf(file, "%-*s\n", headerBytes-1, head)
	return h, err
}

// File is a backup in a file, which stays open and must not change while it is used.
type File struct {
	Header
	rows database.Rows
}

// Read reads a whole file and checks its sums, and with a key its MAC. Errors: ErrNoBackup,
// or a failure to read.
func Read(file io.ReadSeeker, key []byte) (File, error) {
	var b File
	b.rows = func(f func(database.Table, []byte) error) error { return b.readRows(file, f) }
	head := make([]byte, headerBytes)
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return b, err
	}
	_, err := io.ReadFull(file, head)
	if err == nil {
		err = json.Unmarshal(head, &b.Header)
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
func (b File) tables(chosen func(name string) bool) (tables []database.Table, rows database.Rows) {
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
func (h Header) readRows(file io.ReadSeeker, f func(t database.Table, line []byte) error) error {
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

// CheckSchema returns ErrSchema if the backup has another schema than this program. It changes
// nothing.
func (b File) CheckSchema(ctx context.Context, db *database.DB) error {
	_, known, err := db.Schema(ctx, schema.Migrations)
	if err != nil || b.Schema == known {
		return err
	}
	cure := "use the version that wrote it, or a later one"
	if b.Schema < known {
		cure = "restore it with the version that wrote it, and then migrate"
	}
	return fmt.Errorf("%w: the backup has schema %d of the key tables, this keyadmin has schema %d: %s",
		keystore.ErrSchema, b.Schema, known, cure)
}

// fits checks that the rows can be written to the tables of a database.
func (b File) fits(ctx context.Context, db *database.DB) error {
	tables, err := db.Tables(ctx, schema.Migrations)
	if err != nil {
		return err
	}
	if !slices.EqualFunc(tables, b.Tables, func(is database.Table, t Table) bool {
		return is.Name == t.Name && slices.Equal(is.Columns, t.Columns)
	}) {
		return fmt.Errorf("%w: its tables are not those of schema %d", ErrNoBackup, b.Schema)
	}
	return nil
}

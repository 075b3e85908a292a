package database

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jmoiron/sqlx"
)

// Table is a table whose rows are read or written whole. A row is a line: a JSON array of the
// values in the order of the columns, with bytes in hexadecimal. Both databases write the same line
// for the same row.
type Table struct {
	Name    string   `json:"name"`
	Columns []Column `json:"columns"` // by name: their order in the database depends on its history
}

// Column is a column of a table. All columns are NOT NULL.
type Column struct {
	Name string `db:"name" json:"name"`
	Kind Kind   `db:"kind" json:"kind"`
}

// Kind is what a column holds, in both databases.
type Kind string

// The kinds of columns.
const (
	Integer Kind = "integer"
	Text    Kind = "text"
	Bytes   Kind = "bytes"
	Boolean Kind = "boolean"
)

// kinds finds a kind by the name that a database gives it.
var kinds = map[string]Kind{
	"bigint":  Integer,
	"integer": Integer,
	"text":    Text,
	"bytea":   Bytes,
	"blob":    Bytes,
	"boolean": Boolean,
}

// The columns of a table. $1: its name.
var columnsOf = map[Dialect]string{
	Postgres: `SELECT attname AS name, format_type(atttypid, NULL) AS kind FROM pg_attribute
		WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped`,
	SQLite: `SELECT name, type AS kind FROM pragma_table_info($1)`,
}

// Tables finds the columns of an owner's tables.
func (d *DB) Tables(ctx context.Context, m Migrations) ([]Table, error) {
	tables := make([]Table, len(m.Tables))
	for i, name := range m.Tables {
		t := Table{Name: name}
		if err := d.SelectContext(ctx, &t.Columns, columnsOf[d.dialect], name); err != nil {
			return nil, fmt.Errorf("find the columns of %s: %w", name, Explain(err))
		}
		if len(t.Columns) == 0 {
			return nil, fmt.Errorf("there is no table %s", name)
		}
		for i, c := range t.Columns {
			kind, known := kinds[strings.ToLower(string(c.Kind))]
			if !known {
				return nil, fmt.Errorf("the column %s of %s is of the unknown type %s", c.Name, name, c.Kind)
			}
			t.Columns[i].Kind = kind
		}
		slices.SortFunc(t.Columns, func(a, b Column) int { return strings.Compare(a.Name, b.Name) })
		tables[i] = t
	}
	return tables, nil
}

// Names are the names of the columns, for SQL.
func (t Table) Names() string {
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = c.Name
	}
	return strings.Join(names, ", ")
}

// each passes all rows to f, in any order. f must not keep the line.
func (t Table) each(ctx context.Context, q sqlx.QueryerContext, f func(line []byte) error) error {
	rows, err := q.QueryxContext(ctx, "SELECT "+t.Names()+" FROM "+t.Name)
	if err != nil {
		return fmt.Errorf("read %s: %w", t.Name, err)
	}
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	var stop error
	err = EachRow(rows, func(row []any) (err error) {
		for i, c := range t.Columns {
			if row[i], err = c.value(row[i]); err != nil {
				return err
			}
		}
		line.Reset()
		if err := encoder.Encode(row); err != nil {
			return err
		}
		stop = f(bytes.TrimSuffix(line.Bytes(), []byte("\n")))
		return stop
	})
	if err != nil && stop == nil {
		return fmt.Errorf("read %s: %w", t.Name, err)
	}
	return err
}

// value returns what a line has for a value of the database.
func (c Column) value(v any) (any, error) {
	switch v := v.(type) {
	case int64:
		switch c.Kind {
		case Integer:
			return v, nil
		case Boolean: // SQLite's are integers
			return v != 0, nil
		}
	case bool:
		if c.Kind == Boolean {
			return v, nil
		}
	case string:
		if c.Kind == Text {
			if !utf8.ValidString(v) {
				return nil, fmt.Errorf("the column %s has text that is not UTF-8", c.Name)
			}
			return v, nil
		}
	case []byte:
		if c.Kind == Bytes {
			return hex.EncodeToString(v), nil
		}
	}
	return nil, fmt.Errorf("the column %s is of the type %s and holds %T", c.Name, c.Kind, v)
}

// insertion is a statement that inserts lines of $1, a JSON array, into the table into, which has
// the columns of t.
func (t Table) insertion(dialect Dialect, into string) string {
	value := map[Kind]string{
		Integer: "CAST(value->>%d AS BIGINT)",
		Text:    "value->>%d",
		Bytes:   "unhex(value->>%d)",
		Boolean: "CAST(value->>%d AS BOOLEAN)",
	}
	source := "json_each($1)"
	if dialect == Postgres {
		value[Bytes] = "decode(value->>%d, 'hex')"
		source = "json_array_elements(CAST($1 AS json)) AS r(value)"
	}
	values := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		values[i] = fmt.Sprintf(value[c.Kind], i)
	}
	return fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %s", into, t.Names(), strings.Join(values, ", "), source)
}

// Sum is the number of rows of a table, and a checksum that does not depend on their order. The
// zero value is that of no rows.
type Sum struct {
	Rows   int64  `json:"rows"`
	Digest Digest `json:"sum"`
}

// Digest is the sum of the SHA-256 of lines, as four numbers of 64 bits. It finds faults, and does
// not withstand forgery.
type Digest [sha256.Size]byte

// Add adds a row.
func (s *Sum) Add(line []byte) {
	s.Rows++
	hash := sha256.Sum256(line)
	for i := 0; i < len(hash); i += 8 {
		binary.BigEndian.PutUint64(s.Digest[i:],
			binary.BigEndian.Uint64(s.Digest[i:])+binary.BigEndian.Uint64(hash[i:]))
	}
}

func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText writes hexadecimal digits.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (d *Digest) UnmarshalText(text []byte) error {
	digits, err := hex.DecodeString(string(text))
	if err != nil || len(digits) != len(d) {
		return errors.New("a checksum has 64 hexadecimal digits")
	}
	*d = Digest(digits)
	return nil
}

// Package schema has the tables of the keys, and the statements that the role of gateways may run.
// Package keystore and its rooms use it.
package schema

import (
	"embed"
	"strings"

	"petgate/shared/database"
)

//go:embed migrations
var migrations embed.FS

// Migrations create the tables.
var Migrations = database.Migrations{
	FS: migrations, Table: "keys_schema", Functions: createFunctions(),
	// Not gateways, which are processes; not console_sessions and operators, which a copy must not
	// let in again; not requests, which a copy would report or repeat.
	Tables: []string{
		"plans", "tenants", "tenant_keys", "bans", "events", "lost_refusals", "gateway_registry", "usage_hours",
		"usage_minutes", "usage_ledger", "usage_exports", "usage_gaps", "quota_records",
	},
}

// Channel is the channel on which PostgreSQL announces events.
const Channel = "petgate_events"

// Dialect writes statements as one kind of database gets them. One text serves both kinds.
// Placeholders stand for what differs: {now} is the database's clock in ms. {rows} turns the
// parameter $1, a JSON array, into rows with one column named value. {record} is the field record
// of such a row, decoded from hexadecimal, and {hash} is its field hash. {listed} says that the
// value before it is the field operation of one of these rows. {escape} makes the backslash the
// character that escapes in a pattern, as it is in PostgreSQL.
type Dialect struct {
	calls map[string]string // of functions, in place of whole statements
	parts *strings.Replacer
}

// Statement returns a statement as the database gets it.
func (d Dialect) Statement(query string) string {
	if call := d.calls[query]; call != "" {
		return call
	}
	return d.parts.Replace(query)
}

// Of returns the dialect of a kind of database.
func Of(dialect database.Dialect) Dialect {
	if dialect == database.SQLite {
		return Dialect{parts: partsSQLite}
	}
	return Dialect{calls, partsPostgres}
}

var partsSQLite = strings.NewReplacer(
	"{now}", `CAST(unixepoch('subsec') * 1000 AS BIGINT)`,
	"{rows}", `json_each($1)`,
	"{record}", `unhex(value->>'record')`,
	"{hash}", `unhex(value->>'hash')`,
	"{listed}", `IN (SELECT value->>'operation' FROM json_each($1))`,
	"{escape}", ` ESCAPE '\'`,
)

const rowsPostgres = `json_array_elements(CAST($1 AS json)) AS r(value)`

var partsPostgres = strings.NewReplacer(
	"{now}", `CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)`,
	"{rows}", rowsPostgres,
	"{record}", `decode(value->>'record', 'hex')`,
	"{hash}", `decode(value->>'hash', 'hex')`,
	"{listed}", `= ANY (ARRAY(SELECT value->>'operation' FROM `+rowsPostgres+`))`, // uses an index
	"{escape}", "",
)

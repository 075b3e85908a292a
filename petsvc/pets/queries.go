package pets

import (
	"embed"
	"strings"

	"petgate/shared/database"
)

//go:embed migrations
var files embed.FS

// Migrations create the tables of the pets.
var Migrations = database.Migrations{
	FS: files, Table: "pets_schema",
	Tables: []string{"pets", "pet_requests"},
	Used:   `SELECT EXISTS (SELECT 1 FROM pets) OR EXISTS (SELECT 1 FROM pet_requests)`,
}

// inDialect returns a statement with the database's clock for {now}, in Unix milliseconds. In Postgres, this is when the transaction
// began. The age of a request is measured by this clock alone, because the clocks of several pet services may differ.
func inDialect(d database.Dialect, query string) string {
	now := `CAST(EXTRACT(EPOCH FROM now()) * 1000 AS BIGINT)`
	if d == database.SQLite {
		now = `CAST(unixepoch('subsec') * 1000 AS BIGINT)`
	}
	return strings.ReplaceAll(query, "{now}", now)
}

// Both databases understand all statements but lockRequestQuery, if inDialect has replaced {now}. A SELECT of pets has the columns of
// Pet, in the order in which they are encoded.
const (
	// A page of all pets. $1: it begins after this id, $2: number of rows.
	listQuery = `SELECT id, name, category_id, status FROM pets WHERE id > $1 ORDER BY id LIMIT $2`

	// A page of the pets with one status. $1: it begins after this id, $2: number of rows, $3: the status.
	listByStatusQuery = `SELECT id, name, category_id, status FROM pets WHERE id > $1 AND status = $3 ORDER BY id LIMIT $2`

	// One pet. $1: its id.
	getQuery = `SELECT id, name, category_id, status FROM pets WHERE id = $1`

	// Stores a pet and returns its id. $1: name, $2: category, $3: status.
	insertQuery = `INSERT INTO pets (name, category_id, status) VALUES ($1, $2, $3) RETURNING id`

	// The pet that a request has stored, and its fingerprint. $1: the request, $2: its age in milliseconds must be less than this.
	requestQuery = `SELECT pet_id, fingerprint FROM pet_requests WHERE id = $1 AND created_at > {now} - $2`

	// Records which pet a request has stored. If the request has a row already, it is replaced only if it is old enough.
	// $1: the request, $2: fingerprint, $3: pet, $4: a row of this age in milliseconds is replaced.
	rememberQuery = `INSERT INTO pet_requests (id, fingerprint, pet_id, created_at) VALUES ($1, $2, $3, {now})
		ON CONFLICT (id) DO UPDATE SET fingerprint = excluded.fingerprint, pet_id = excluded.pet_id, created_at = excluded.created_at
		WHERE pet_requests.created_at <= excluded.created_at - $4`

	// Locks a request until the transaction ends, unless another transaction has locked it. Postgres only. $1: the lock.
	lockRequestQuery = `SELECT pg_try_advisory_xact_lock($1)`

	// Selects the oldest requests and returns when the last of them was stored; 0 if there are none. $1: only requests of this age
	// in milliseconds, $2: how many at most.
	oldestQuery = `SELECT coalesce(max(created_at), 0) FROM
		(SELECT created_at FROM pet_requests WHERE created_at <= {now} - $1 ORDER BY created_at LIMIT $2) AS oldest`

	// Removes requests. $1: those that were stored at this time and earlier.
	forgetQuery = `DELETE FROM pet_requests WHERE created_at <= $1`

	// Whether there are no pets, so that sample pets may be stored.
	emptyQuery = `SELECT NOT EXISTS (SELECT 1 FROM pets)`
)

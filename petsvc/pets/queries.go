package pets

import (
	"embed"

	"petgate/shared/database"
)

//go:embed migrations
var files embed.FS

// Migrations create the tables of the pets.
var Migrations = database.Migrations{FS: files, Table: "pets_schema"}

// Both databases understand all statements. A SELECT has the columns of Pet, in the order in which they are encoded.
const (
	// A page of all pets. $1: it begins after this id, $2: number of rows.
	listQuery = `SELECT id, name, category_id, status FROM pets WHERE id > $1 ORDER BY id LIMIT $2`

	// A page of the pets with one status. $1: it begins after this id, $2: number of rows, $3: the status.
	listByStatusQuery = `SELECT id, name, category_id, status FROM pets WHERE id > $1 AND status = $3 ORDER BY id LIMIT $2`

	// One pet. $1: its id.
	getQuery = `SELECT id, name, category_id, status FROM pets WHERE id = $1`

	// Stores a pet and returns its id. $1: name, $2: category, $3: status.
	insertQuery = `INSERT INTO pets (name, category_id, status) VALUES ($1, $2, $3) RETURNING id`

	// Whether there are no pets, so that sample pets may be stored.
	emptyQuery = `SELECT NOT EXISTS (SELECT 1 FROM pets)`
)

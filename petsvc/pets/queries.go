package pets

import (
	"embed"

	"petgate/shared/database"
)

//go:embed migrations
var files embed.FS

// Migrations are the tables of the pets.
var Migrations = database.Migrations{FS: files, Table: "pets_schema"}

// All statements serve both databases. The columns of a SELECT are those of Pet, in the order in which a Pet is
// encoded.
const (
	// A page of all pets. $1: the id after which it begins, $2: how many rows.
	listQuery = `SELECT id, name, category_id, status FROM pets WHERE id > $1 ORDER BY id LIMIT $2`

	// A page of the pets of one status. $1: the id after which it begins, $2: how many rows, $3: the status.
	listByStatusQuery = `SELECT id, name, category_id, status FROM pets WHERE id > $1 AND status = $3 ORDER BY id LIMIT $2`

	// One pet. $1: its id.
	getQuery = `SELECT id, name, category_id, status FROM pets WHERE id = $1`

	// Stores a pet and returns the id that the database gave it. $1: name, $2: category, $3: status.
	insertQuery = `INSERT INTO pets (name, category_id, status) VALUES ($1, $2, $3) RETURNING id`

	// Whether nothing was ever stored, so that a demonstration may fill in its own.
	emptyQuery = `SELECT NOT EXISTS (SELECT 1 FROM pets)`
)

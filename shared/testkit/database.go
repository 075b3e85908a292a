package testkit

import (
	"testing"

	"petgate/shared/database"
	"petgate/shared/testkit/must"
)

// Open opens a database until the end of the test, creates it if it is missing, and migrates it.
func Open(t testing.TB, url string, migrations ...database.Migrations) *database.DB {
	t.Helper()
	db, err := database.OpenOrCreate(url)
	must.Do(t, err)
	t.Cleanup(func() { db.Close() })
	for _, m := range migrations {
		must.Do(t, db.Migrate(t.Context(), m))
	}
	return db
}

package testkit

import (
	"testing"

	"petgate/shared/database"
)

// Open opens a database until the end of the test, creates it if it is missing, and migrates it.
func Open(t testing.TB, url string, migrations ...database.Migrations) *database.DB {
	t.Helper()
	db, err := database.OpenOrCreate(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	for _, m := range migrations {
		if err := db.Migrate(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	return db
}

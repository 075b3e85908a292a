package testkit

import (
	"fmt"
	"strings"
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

// Plan returns how SQLite reads the rows of a statement, whose first parameter is an empty list.
func Plan(t testing.TB, db *database.DB, query string) string {
	t.Helper()
	args := []any{"[]"}
	for strings.Contains(query, fmt.Sprint("$", len(args)+1)) {
		args = append(args, nil)
	}
	var steps []struct {
		ID, Parent, NotUsed int
		Detail              string
	}
	if err := db.Select(&steps, "EXPLAIN QUERY PLAN "+query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return fmt.Sprint(steps)
}

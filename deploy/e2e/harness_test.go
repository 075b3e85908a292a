// Package e2e_test drives the built programs: several processes, real servers, faults.
//
// `make test` runs the tests of the files without a build tag, in reduced size, beside other
// packages. `make e2e` builds with the tag e2e: it runs the same tests in full size, and those of
// the files named *_e2e_test.go, which take too long for daily use. `make e2e` prints the lines of
// a test that begin with "figure:". A test that judges a time or what something costs runs alone,
// if shared/testkit/figures names it.
//
// The harness is shared/testkit (processes, servers, proxies), shared/testkit/fleet (gateways,
// their clients and load), and this file. A file's prefix says what it tests: control_ the keys and
// their directory, quota_ the limits, edge_ the request path, process_ a program's standard output
// and error.
package e2e_test

import (
	"testing"

	"petgate/shared/database"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// openDatabase opens the database of a fleet.
func openDatabase(t testing.TB, f *fleet.Fleet) *database.DB {
	t.Helper()
	db := must.Get[*database.DB](t)(database.Open(f.Database))
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// petRows returns how often each name of a pet is stored.
func petRows(t testing.TB, f *fleet.Fleet) map[string]int {
	t.Helper()
	var rows []struct {
		Name  string
		Count int
	}
	must.Do(t, openDatabase(t, f).Select(&rows, `SELECT name, count(*) AS count FROM pets GROUP BY name`))
	counts := make(map[string]int)
	for _, row := range rows {
		counts[row.Name] = row.Count
	}
	return counts
}

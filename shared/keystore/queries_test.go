package keystore

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"

	"petgate/shared/database"
	"petgate/shared/testkit"
)

// parts are the constants that are only parts of statements.
var parts = []string{"banColumns", "banTables", "tailEvents", "tailJoins"}

// statements returns the constants of the files with statements by their names.
func statements(t *testing.T) map[string]string {
	t.Helper()
	files := token.NewFileSet()
	var parsed []*ast.File
	for _, name := range []string{"queries.go", "queries_export.go", "queries_page.go"} {
		file, err := parser.ParseFile(files, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, file)
	}
	pkg, err := new(types.Config).Check("queries", files, parsed, nil)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, name := range pkg.Scope().Names() {
		if slices.Contains(parts, name) {
			continue
		}
		found[name] = constant.StringVal(pkg.Scope().Lookup(name).(*types.Const).Val())
	}
	if len(found) < 40 {
		t.Fatalf("only %d statements found", len(found))
	}
	return found
}

func TestEveryStatementPrepares(t *testing.T) {
	all := statements(t)
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		db, err := database.OpenOrCreate(url)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if err := db.Migrate(t.Context(), Migrations); err != nil {
			t.Fatal(err)
		}
		for name, query := range all {
			if strings.HasSuffix(name, "Postgres") && db.Dialect() != database.Postgres {
				continue
			}
			statement, err := db.Prepare(expansion(db.Dialect()).Replace(query))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			statement.Close()
		}
	})
}

package keystore_test

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"petgate/shared/database"
	"petgate/shared/keystore/schema"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// parts are the constants that are only parts of statements.
var parts = []string{
	"BanColumns", "usageSums", "BanTables", "tailEvents", "tailJoins", "selectBans", "selectEvents",
	"selectOperators", "isFiltered", "firstSince", "isSelected", "selectPage", "latestFirst",
}

// statements returns the constants of the files with statements by their names.
func statements(t *testing.T) map[string]string {
	t.Helper()
	text := "package queries\ntype lock string\n"
	for _, name := range []string{
		"queries.go", "schema/queries.go", "lists/queries.go", "usage/queries.go", "usage/queries_export.go",
		"sessions/queries.go",
	} {
		file := string(must.Get[[]byte](t)(os.ReadFile(name)))
		text += "const" + strings.TrimPrefix(file[strings.Index(file, "\nconst"):], "\nconst")
	}
	text = regexp.MustCompile(`\b(keystore|schema)\.`).ReplaceAllString(text, "")
	files := token.NewFileSet()
	parsed := must.Get[*ast.File](t)(parser.ParseFile(files, "queries.go", text, 0))
	pkg := must.Get[*types.Package](t)(new(types.Config).Check("queries", files, []*ast.File{parsed}, nil))
	found := map[string]string{}
	for _, name := range pkg.Scope().Names() {
		constantOf, isConstant := pkg.Scope().Lookup(name).(*types.Const)
		if isConstant && !slices.Contains(parts, name) {
			found[name] = constant.StringVal(constantOf.Val())
		}
	}
	if len(found) < 80 {
		t.Fatalf("only %d statements found", len(found))
	}
	return found
}

func TestEveryStatementPrepares(t *testing.T) {
	all := statements(t)
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		db := testkit.Open(t, url, schema.Migrations)
		for name, query := range all {
			if strings.HasSuffix(name, "Postgres") && db.Dialect() != database.Postgres {
				continue
			}
			statement, err := db.Prepare(schema.Of(db.Dialect()).Statement(query))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			statement.Close()
		}
	})
}

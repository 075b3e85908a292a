package keystore

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"strings"
	"testing"

	"petgate/shared/database"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// parts are the constants that are only parts of statements.
var parts = []string{
	"banColumns", "usageSums", "banTables", "tailEvents", "tailJoins", "selectBans", "selectEvents", "selectOperators",
	"isFiltered", "firstSince", "isSelected", "selectPage", "latestFirst", "appendEvent",
}

// statements returns the constants of the files with statements by their names.
func statements(t *testing.T) map[string]string {
	t.Helper()
	files := token.NewFileSet()
	var parsed []*ast.File
	for _, name := range []string{"queries.go", "queries_export.go", "queries_operator.go", "queries_page.go"} {
		parsed = append(parsed, must.Get[*ast.File](t)(parser.ParseFile(files, name, nil, 0)))
	}
	pkg := must.Get[*types.Package](t)(new(types.Config).Check("queries", files, parsed, nil))
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
		db := testkit.Open(t, url, Migrations)
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

// A gateway's function does what the statement does, with the rights of the tables' owner, and on
// no table of the caller.
func TestGatewayFunctionsAreTheirStatements(t *testing.T) {
	t.Parallel()
	db := testkit.Open(t, testkit.Postgres(t), Migrations)
	squeeze := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	for query, call := range gatewayFunctions {
		name, parameters, _ := strings.Cut(call, "(")
		var is struct {
			Body    string `db:"prosrc"`
			Args    int    `db:"pronargs"`
			Closed  bool   `db:"closed"`
			Returns string `db:"returns"`
		}
		if err := db.Get(&is, `SELECT prosrc, pronargs, pg_get_function_result(oid) AS returns, prosecdef AND proconfig = ARRAY['search_path=public, pg_temp']
			AND NOT has_function_privilege('public', oid, 'EXECUTE') AS closed FROM pg_proc WHERE proname = $1`, name); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		body := squeeze(is.Body)
		if is.Returns == "SETOF integer" { // its rows tell how many were changed
			body = strings.TrimSuffix(body, " RETURNING 1")
		}
		if want := squeeze(expansion(database.Postgres).parts.Replace(query)); body != want || !is.Closed ||
			is.Args != strings.Count(parameters, "$") {
			t.Errorf("%s: closed %t, %d parameters\n%s\nwant\n%s", name, is.Closed, is.Args, body, want)
		}
	}
}

// A page with one filter is read through an index: its cost does not grow with the table.
func TestPagesUseIndexes(t *testing.T) {
	t.Parallel()
	db := testkit.Open(t, testkit.SQLite(t), Migrations)
	for query, index := range map[string]string{
		bansFound: "bans_by_end", countBans: "bans_by_end", bansOfTenant: "tenant_keys_of_tenant", bansOfKeys: "autoindex_bans",
		eventsFound: "events_by_time", eventsOfTenant: "events_of_tenant", eventsOfKey: "events_of_key",
		operationUsage: "usage_hours_of_operation", eventsOfAny("kind", 3): "events_of_kind", eventsOfAny("actor", 2): "events_of_actor",
	} {
		args := make([]any, 8)
		args[0] = "[]"
		var steps []struct {
			ID, Parent, NotUsed int
			Detail              string
		}
		query = expansion(db.Dialect()).Replace(query)
		n := 1
		for strings.Contains(query, fmt.Sprint("$", n+1)) {
			n++
		}
		if err := db.Select(&steps, "EXPLAIN QUERY PLAN "+query, args[:n]...); err != nil {
			t.Errorf("%s: %v", query, err)
			continue
		}
		plan := fmt.Sprint(steps)
		if !strings.Contains(plan, index) ||
			regexp.MustCompile(`SCAN (b|bans|k|events|usage_hours)\b`).MatchString(plan) {
			t.Errorf("%s\nis not read by %s: %s", query, index, plan)
		}
	}
}

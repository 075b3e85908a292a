package schema

import (
	"strings"
	"testing"

	"petgate/shared/testkit"
)

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
		if want := squeeze(partsPostgres.Replace(query)); body != want || !is.Closed ||
			is.Args != strings.Count(parameters, "$") {
			t.Errorf("%s: closed %t, %d parameters\n%s\nwant\n%s", name, is.Closed, is.Args, body, want)
		}
	}
}

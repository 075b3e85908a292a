package schema

import (
	"strings"
	"testing"

	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// The functions of gateways run with the rights of the tables' owner, on no table of the caller,
// and only for those who may. A program replaces them by its own, unless the database is of a later
// version. Those who may register may call a new one.
func TestFunctions(t *testing.T) {
	t.Parallel()
	db := testkit.Open(t, testkit.Postgres(t), Migrations)
	exec := func(statement string) {
		t.Helper()
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	type function struct {
		Name    string `db:"proname"`
		Body    string `db:"prosrc"`
		Closed  bool   `db:"closed"`
		Allowed bool   `db:"allowed"` // for those who may register
	}
	read := func() map[string]function {
		t.Helper()
		var all []function
		must.Do(t, db.Select(&all, `SELECT proname, prosrc,
				has_function_privilege('pg_monitor', oid, 'EXECUTE') AS allowed,
				prosecdef AND proconfig = ARRAY['search_path=public, pg_temp']
					AND NOT has_function_privilege('public', oid, 'EXECUTE') AS closed
			FROM pg_proc WHERE pronamespace = 'public'::regnamespace
				AND (proname LIKE 'gateway\_%' OR proname = 'writers_lock')`))
		byName := map[string]function{}
		for _, f := range all {
			f.Body = strings.Join(strings.Fields(f.Body), " ")
			byName[f.Name] = f
		}
		return byName
	}
	first := read()
	if len(first) != len(functions)+3 {
		t.Errorf("there are %d functions", len(first))
	}
	for name, f := range first {
		if !f.Closed || f.Allowed {
			t.Errorf("%s: closed %t; a role without rights may call it: %t", name, f.Closed, f.Allowed)
		}
	}
	for _, f := range functions {
		want := strings.Join(strings.Fields(partsPostgres.Replace(f.statement)), " ")
		if body := first[f.name].Body; body != want && body != want+" RETURNING 1" {
			t.Errorf("%s: %s\nwant\n%s", f.name, body, want)
		}
	}

	exec("GRANT EXECUTE ON FUNCTION gateway_register TO pg_monitor")
	exec("DROP FUNCTION gateway_describe")
	exec("CREATE OR REPLACE FUNCTION gateway_prune_quotas(BIGINT) RETURNS VOID LANGUAGE sql AS 'SELECT'")
	exec("INSERT INTO keys_schema (version_id, is_applied) VALUES (99, true)")
	must.Do(t, db.Migrate(t.Context(), Migrations))
	if is := read(); len(is) != len(first)-1 || is["gateway_prune_quotas"].Body != "SELECT" {
		t.Errorf("the functions of a later version are replaced: %v", is)
	}
	exec("DELETE FROM keys_schema WHERE version_id = 99")
	must.Do(t, db.Migrate(t.Context(), Migrations))
	for name, f := range read() {
		if !f.Closed || !f.Allowed || f.Body != first[name].Body {
			t.Errorf("%s: closed %t; who may register may call it: %t\n%s", name, f.Closed, f.Allowed, f.Body)
		}
	}
}

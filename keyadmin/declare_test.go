package main

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/keystore/lists"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// file writes a document into a file and returns its path.
func (s *shell) file(text string) string {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "petgate.yaml")
	must.Do(s.t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// stated is a document with everything that a document can contain, except keys.
const stated = `version: 1
plans:
  - {name: team, minute: 120, day: 4000}
  - {name: bespoke}
tenants:
  - {name: acme, plan: team}
  - {name: "a: b # c", plan: bespoke, minute: 5, day: 10, month: 100, monthStarts: 15, suspended: true}
  - {name: "123", plan: free, day: 50}
  - {name: Zoë, plan: pro}
`

// An empty database to which an exported document is applied gives the same export. The database
// that the document comes from is not changed by it.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		s := newMigrated(t, url)
		s.ok("apply", s.file(stated), "--yes")
		s.ok("plan", "update", "enterprise", "--minute", "7", "--test-minute", "3")
		without := s.keyadmin("export").stdout
		empty := newMigrated(t, testkit.SQLite(t))
		empty.ok("apply", s.file(without), "--yes")
		must.Equal(t, empty.keyadmin("export").stdout, without, "exported again")

		s.ok(
			"key", "create", "acme", "--name", "ci: main", "--allow", "10.0.0.0/8", "--allow", "2001:db8::/32",
			"--minute", "3", "--expires", "2026-06-01T00:00:00.5Z",
		) // the document has whole seconds
		s.ok("key", "create", "acme", "--test", "--scope", "pets:read", "--name", "revoked")
		s.ok("key", "revoke", keyID(s, "acme"), "--yes")
		s.ok("key", "create", "acme", "--test", "--scope", "pets:read")
		with := s.keyadmin("export").stdout
		if strings.Contains(with, "revoked") || strings.Count(with, "- id: key_") != 2 ||
			strings.Contains(with, "ptg_") {
			t.Errorf("export:\n%s", with)
		}
		before := s.events()
		if r := s.want(exitDone, "There is nothing to change.", "apply", s.file(with), "--prune",
			"--yes"); s.events() != before {
			t.Errorf("its own export changes it:\n%s", r.stdout)
		}
		key := keyID(s, "acme")
		lower := s.file(strings.Replace(with, " minute: 3\n", " minute: 2\n", 1))
		s.want(exitUsage, "--yes", "apply", lower)
		s.ok("apply", lower, "--yes")
		keys := must.Get[[]keystore.Key](t)(keystore.Collect(lists.Of(s.store()).Keys(t.Context(),
			tenantID(s, "acme"))))
		if !slices.ContainsFunc(
			keys, func(k keystore.Key) bool { return k.Limits.Minute == 2 && k.ExpiresAt%1000 == 500 },
		) {
			t.Errorf("after another change, an expiry has lost its fraction of a second: %+v", keys)
		}
		s.ok("key", "disable", key, "--yes")
		disabled := s.keyadmin("export").stdout
		if !strings.Contains(disabled, "disabled: true") {
			t.Errorf("export:\n%s", disabled)
		}
		for _, c := range []struct{ document, change, status string }{
			{with, "enabled", "active"},
			{disabled, "disabled", "disabled"},
			{disabled, "", "disabled"},
		} {
			if r := s.keyadmin("apply", s.file(c.document), "--yes"); !strings.Contains(r.stdout, c.change) ||
				(r.stdout == "") != (c.change == "") {
				t.Errorf("to be %s: %s", c.change, r.stdout)
			}
			if shown := s.keyadmin("key", "show", key).stdout; !strings.Contains(shown, "Status         "+c.status) {
				t.Errorf("to be %s:\n%s", c.change, shown)
			}
		}
		none := s.file("version: 1\ntenants:\n  - {name: acme, plan: team, keys: []}\n")
		if r := s.keyadmin("diff", none, "--prune"); !strings.Contains(r.stdout, key) {
			t.Errorf("a disabled key is not revoked: %+v", r)
		}
		empty = newMigrated(t, testkit.SQLite(t))
		empty.want(exitDone, "Left out: 2 keys. A key that does not exist cannot be created", "apply", s.file(with),
			"--yes")
		must.Equal(t, empty.keyadmin("export").stdout, without, "exported again, keys left out")
	})
}

// Every problem of a file is named with its line and member, and nothing is changed.
func TestBadDocuments(t *testing.T) {
	t.Parallel()
	s := newMigrated(t, testkit.SQLite(t))
	s.ok("tenant", "create", "acme")
	s.ok("key", "create", "acme", "--test")
	key := keyID(s, "acme")
	before := s.events()
	for _, c := range []struct{ text, want string }{
		{"", "is empty: it needs a version"},
		{"version: [", "is not YAML: line 1"},
		{"version: 1\n---\nversion: 1\n", ":2: document: a file has one document"},
		{"- a", ":1: document: it has to be a mapping"},
		{"plans: []", `:1: document: the member "version" is missing`},
		{"version: 2", `:1: version: "2" is not a version of the format: this keyadmin knows version 1`},
		{"version: 1\ntenant: []", ":2: tenant: there is no such member: use plans, tenants, version"},
		{"version: 1\nplans: []\nplans: []", ":3: plans: it is given twice"},
		{"version: 1\nplans: {}", ":2: plans: it has to be a list"},
		{"version: 1\nplans:\n- name: Gold", `:3: plans[0].name: "Gold" is not a plan name`},
		{"version: 1\nplans:\n- name: gold\n  minute: ten", `:4: plans[0].minute: "ten" is not a whole number`},
		{"version: 1\nplans:\n- &a {name: gold}\n- *a", "plans[1]"},
		{"version: 1\ntenants:\n- name: a\n", `:3: tenants[0]: the member "plan" is missing`},
		{"version: 1\ntenants:\n- name: a\n  plan: gold\n", `:3: tenants[0]: there is no plan "gold"`},
		{"version: 1\ntenants:\n- name: ten_a\n  plan: free\n", `:3: tenants[0].name: "ten_a": a name may not begin with ten_`},
		{"version: 1\ntenants:\n- name: [a]\n  plan: free\n", ":3: tenants[0].name: it has to be one value"},
		{
			"version: 1\ntenants:\n- {name: a, plan: free}\n- {name: a, plan: free}\n",
			`:4: tenants[1]: tenant "a" is already declared in line 3`,
		},
		{
			"version: 1\ntenants:\n- {name: a, plan: free, suspended: yes please}",
			`:3: tenants[0].suspended: "yes please" is neither true nor false`,
		},
		{
			"version: 1\ntenants:\n- name: a\n  plan: free\n  keys:\n  - {id: ci, name: a, scopes: [pets:read]}",
			":6: tenants[0].keys[0].id:",
		},
		{
			"version: 1\ntenants:\n- name: a\n  plan: free\n  keys:\n  - {name: a, scopes: ['pets:read']}",
			"`keyadmin key create` creates one",
		},
		{
			"version: 1\ntenants:\n- name: acme\n  plan: free\n  keys:\n" +
				"  - {id: KEY, name: a, environment: test, scopes: []}",
			"a key needs a scope",
		},
		{
			"version: 1\ntenants:\n- name: a\n  plan: free\n  keys:\n  - {id: KEY, name: a, scopes: [Cats]}",
			`:6: tenants[0].keys[0].scopes[0]: "Cats" is not the name of a scope`,
		},
		{
			"version: 1\ntenants:\n- name: a\n  plan: free\n  keys:\n" +
				"  - {id: KEY, name: a, scopes: ['pets:read'], allow: [10.0.0.1/8]}",
			"did you mean 10.0.0.0/8?",
		},
		{
			"version: 1\ntenants:\n- name: a\n  plan: free\n  keys:\n" +
				"  - {id: KEY, name: a, scopes: ['pets:read'], expires: soon}",
			`"soon" is not a time`,
		},
		{
			"version: 1\ntenants:\n- name: a\n  plan: free\n  keys:\n" +
				"  - {id: KEY, name: a, environment: test, scopes: ['pets:read']}",
			"belongs to another tenant",
		},
		{
			"version: 1\ntenants:\n- name: acme\n  plan: free\n  keys:\n  - {id: KEY, name: a, scopes: ['pets:read']}",
			"is a test key. The environment of a key cannot be changed",
		},
		{
			"version: 1\ntenants:\n- name: acme\n  plan: free\n  keys:\n" +
				"  - {id: KEY, name: a, environment: test, scopes: ['pets:read'], expires: 2020-01-01}",
			"cannot expire in the past",
		},
	} {
		path := s.file(strings.ReplaceAll(c.text, "KEY", key))
		s.want(exitUsage, c.want, "diff", path, "--prune")
	}
	s.want(exitUsage, "and 29 more", "diff", s.file("version: 1\nplans:\n"+strings.Repeat("- {name: A}\n", 25)))
	s.want(exitFailed, "no such file", "apply", "nosuch.yaml")
	must.Equal(t, s.events(), before, "events after bad documents")
}

// everyChange writes a document that creates and changes records of every kind, and returns its
// path.
func (s *shell) everyChange() string {
	s.t.Helper()
	s.ok("tenant", "create", "acme")
	s.ok("tenant", "create", "extra")
	s.ok("key", "create", "acme")
	s.ok("tenant", "suspend", "extra", "--yes")
	return s.file(
		strings.Replace(stated, "{name: acme, plan: team}", "{name: acme, plan: team, keys: [{id: "+keyID(s, "acme")+
			", name: build, scopes: [\"pets:read\"]}]}", 1) + "  - {name: extra, plan: free}\n",
	)
}

// If any statement of apply fails, either all changes are made or none.
func TestApplyFailsAnywhere(t *testing.T) {
	t.Parallel()
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		s := newMigrated(t, url)
		wanted := s.everyChange()
		db := s.open()
		plantFaults(t, db)
		events, failures, store := s.events(), 0, s.store()
		state := func() string { return fmt.Sprint(must.Get[keystore.State](t)(store.State(t.Context()))) }
		for n := 0; ; n++ {
			must.Get[sql.Result](t)(db.Exec(`UPDATE faults SET remaining = $1`, n))
			before := state()
			if r := s.keyadmin("apply", wanted, "--yes"); r.code == exitDone {
				if s.want(exitDone, "There is nothing to change.", "diff", wanted); s.events() == events {
					t.Error("apply made no events")
				}
				break
			}
			if after := state(); after != before || s.events() != events {
				t.Fatalf("after a failure of statement %d, %d events:\n%s", n, s.events()-events, after)
			}
			failures++
		}
		if failures < 10 {
			t.Errorf("only %d statements failed", failures)
		}
	})
}

// plantFaults lets as many writes succeed as faults.remaining says. The next one fails. Every row
// counts as a write.
func plantFaults(t *testing.T, db *database.DB) {
	t.Helper()
	statements := []string{
		`CREATE TABLE faults (remaining INT CHECK (remaining >= 0))`, `INSERT INTO faults VALUES (1000000)`,
	}
	if db.Dialect() == database.Postgres {
		statements = append(statements, `CREATE FUNCTION count_down() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN UPDATE faults SET remaining = remaining - 1; RETURN COALESCE(NEW, OLD); END $$`)
	}
	body := "FOR EACH ROW EXECUTE FUNCTION count_down()"
	if db.Dialect() == database.SQLite {
		body = "BEGIN UPDATE faults SET remaining = remaining - 1; END"
	}
	plantTriggers(t, db, statements, body)
}

// plantTriggers executes statements, and then creates a trigger with this body for every write of
// apply and restore.
func plantTriggers(t *testing.T, db *database.DB, statements []string, body string) {
	t.Helper()
	for _, table := range []string{"plans", "tenants", "tenant_keys", "events", "lost_refusals"} {
		for _, verb := range []string{"INSERT", "UPDATE", "DELETE"} {
			statements = append(statements,
				fmt.Sprintf("CREATE TRIGGER %s_%s BEFORE %s ON %s %s", table, verb, verb, table, body))
		}
	}
	for _, statement := range statements {
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// With --yes, apply lists what it does, also if another writer changes the database meanwhile.
// Without, it then does nothing.
func TestApplySaysWhatItDid(t *testing.T) {
	t.Parallel()
	s := newMigrated(t, testkit.SQLite(t))
	s.ok("tenant", "create", "acme")
	path := s.file("version: 1\ntenants: [{name: acme, plan: pro}]\n")
	other := newShell(t, strings.TrimPrefix(s.env[0], "DATABASE_URL="))
	f := func(before, meanwhile, stdout, stderr string, code exitCode, args ...string) {
		t.Helper()
		s.ok("tenant", "set-plan", "acme", before, "--yes")
		s.onClock = func() { // the first look at the clock: the state was read, but not the one of the transaction
			s.onClock = nil
			other.ok("tenant", "set-plan", "acme", meanwhile, "--yes")
		}
		if r := s.want(code, stderr, append([]string{"apply", path}, args...)...); !strings.Contains(
			r.stdout, stdout,
		) ||
			stdout == "" && r.stdout != "" {
			t.Errorf("%s and %s meanwhile: %q", before, meanwhile, r.stdout)
		}
	}
	f("pro", "business", "plan business → pro", "Applied 1 change.", exitDone, "--yes")
	f("free", "pro", "", "There is nothing to change.", exitDone, "--yes")
	f("pro", "business", "", "Nothing was changed: repeat the command", exitFailed)
}

// A document that lessens something in use is applied only with --yes. Each one begins with what
// the one before has left.
func TestApplyAsks(t *testing.T) {
	t.Parallel()
	s := newMigrated(t, testkit.SQLite(t))
	s.ok("tenant", "create", "acme", "--plan", "pro", "--month-starts", "1") // as without it
	s.ok("key", "create", "acme", "--name", "ci", "--expires", "90d", "--minute", "9")
	first := keyID(s, "acme")
	document := func(text string) string { return s.file("version: 1\n" + text) }
	acme := func(more string) string { return "tenants: [{name: acme, plan: " + more + "}]" }
	key := func(terms string) string {
		return acme("pro, keys: [{id: " + first + ", scopes: [pets:read], " + terms + "}]")
	}
	pro := "plans: [{name: pro, minute: 400, day: "
	for _, c := range []struct {
		asks bool
		text string
	}{
		{false, "plans: [{name: business, minute: 5}]"}, // no tenant has it
		{false, pro + "20000}]"},
		{true, pro + "19999}]"},
		{true, acme("free")},
		{false, acme("pro")},
		{false, acme("pro, day: 20000")},
		{true, acme("pro, day: 100}, {name: new, plan: enterprise")},
		{true, acme("pro, suspended: true}, {name: new, plan: pro")},
		{false, acme("pro")},
		{false, key("name: ci, minute: 9, expires: 2026-05-30T12:00:02Z")},
		{false, key("name: new")},
		{true, key("name: new, minute: 8, day: 90")},
		{false, key("name: new, minute: 8, day: 91")},
		{true, key("name: new, disabled: true, minute: 8, day: 91")},
		{false, key("name: new, minute: 8, day: 91")},
		{true, pro + "19999, testMinute: 2}]"},
		{false, pro + "19999, testMinute: 3}]"},
	} {
		path, before := document(c.text), s.events()
		r := s.keyadmin("apply", path)
		if asks := r.code == exitUsage && s.events() == before; asks != c.asks || !asks && r.code != exitDone {
			t.Errorf("%s: exit %d\n%s%s", c.text, r.code, r.stdout, r.stderr)
		}
		s.ok("apply", path, "--yes")
	}
}

// A document cannot set a limit below the cost of an operation. TestRefusedLimits of package
// operate has the commands.
func TestApplyAndCosts(t *testing.T) {
	t.Parallel()
	s := newMigrated(t, testkit.SQLite(t))
	s.ok("plan", "create", "tiny", "--minute", "19", "--day", "100")
	s.ok("tenant", "create", "acme")
	s.ok("key", "create", "acme", "--name", "ci")
	store := s.store()
	costs := keystore.Document{Costs: map[string]int64{"searchPets": 20}}
	must.Do(t, store.DescribeGateway(t.Context(), s.gateway(store, "gw-1", "127.0.0.1:1").Registration, costs))
	for _, text := range []string{
		"plans: [{name: small, minute: 19}]", "plans: [{name: free, minute: 60, day: 1000, testMinute: 19}]",
		"tenants: [{name: globex, plan: free, day: 19}]", "tenants: [{name: acme, plan: tiny}]",
		"tenants: [{name: acme, plan: free, keys: [{id: " + keyID(s, "acme") + ", name: ci, scopes: [usage:read], minute: 19}]}]",
	} {
		s.want(exitUsage, "limit of 19 never admits it", "diff", s.file("version: 1\n"+text))
	}
	s.keyadmin("key", "create", "acme", "--wait", "0") // it has no scope, as this API needs none
	s.want(exitDone, "There is nothing to change.", "diff", s.file(s.keyadmin("export").stdout))
}

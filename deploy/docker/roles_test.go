package docker_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// Each program can do its work with the rights of its role, and the role has no other rights.
func TestRoles(t *testing.T) {
	t.Parallel()
	f := fleet.Start(t, fleet.Spec{Database: testkit.StartPostgres(t).URL})
	owner := f.Database
	as := func(role, database string) string {
		u := must.Get[*url.URL](t)(url.Parse(owner))
		if database != "" {
			u.Path = database
		}
		if role != "" {
			u.User = url.UserPassword(role, role+" secret")
		}
		return u.String()
	}
	roles := map[string]string{"gateway": as("gateway", ""), "petsvc": as("petsvc", ""), "keyadmin": as("keyadmin", "")}
	bin := must.Get[string](t)(testkit.PostgresBin())
	create := func() {
		t.Helper()
		shell(t, filepath.Join(bin, "psql"), "--quiet", "--set=ON_ERROR_STOP=1",
			"--set=gateway_password=gateway secret", "--set=petsvc_password=petsvc secret",
			"--set=keyadmin_password=keyadmin secret", "--file=roles.sql", owner)
	}
	create()
	create()

	f.Database = roles["keyadmin"]
	pets := f.AddPets("DATABASE_URL=" + as("petsvc", "pets"))
	gateway := f.AddGateway("DATABASE_URL="+roles["gateway"], "GATEWAY_UPSTREAMS="+pets.URL, "GATEWAY_BAN_AFTER=1",
		"GATEWAY_CONSOLE=true", "GATEWAY_OPERATORS_API=true", "GATEWAY_CONSOLE_DATABASE_URL="+roles["keyadmin"])
	key := f.NewTenant("acme", fleet.Unlimited...)
	c := gateway.Client()
	defer c.Close()
	if reply := c.Must(t, fleet.PostPet(key.Token, "with roles")); reply.Status != 201 {
		t.Errorf("a pet is not created: %v", reply)
	}
	f.MustKeyadmin("plan", "create", "team", "--minute", "10", "--day", "100")
	f.MustKeyadmin("tenant", "set-plan", "acme", "team", "--yes")
	f.MustKeyadmin("tenant", "suspend", "acme", "--yes")
	f.MustKeyadmin("tenant", "resume", "acme")
	f.MustKeyadmin("key", "update", key.ID, "--name", "renamed")
	state := filepath.Join(t.TempDir(), "petgate.yaml")
	must.Do(
		t,
		os.WriteFile(
			state,
			[]byte(
				"version: 1\ntenants:\n- {name: acme, plan: pro, minute: 1000000, day: 1000000}\n- {name: new, plan: free}\n",
			),
			0o600,
		),
	)
	f.MustKeyadmin("apply", state, "--yes")
	f.MustKeyadmin("key", "rotate", key.ID, "--grace", "1h", "--yes")
	f.MustKeyadmin("usage", "reset", "acme", "--yes")
	f.MustKeyadmin("gateway", "list")
	f.MustKeyadmin("doctor")
	deaf := f.NewTenant("deaf", "--minute", "1")
	testkit.Eventually(t, fleet.ReplyWithin, "the gateway bans a key",
		func() bool { return gateway.Ask(deaf.Token).Code() == "key_banned" })
	testkit.Eventually(t, fleet.ReplyWithin, "the ban is in the database", func() bool {
		return strings.Contains(f.MustKeyadmin("ban", "list"), deaf.ID)
	})
	testkit.Eventually(t, fleet.ReplyWithin, "usage is in the database", func() bool {
		return strings.Contains(f.MustKeyadmin("usage", "show", "deaf"), "key_banned")
	})
	f.MustKeyadmin("usage", "export", "--format", "csv")
	f.MustKeyadmin("ban", "lift", deaf.ID)
	operator := strings.TrimSpace(f.MustKeyadmin("operator", "create", "ci", "--role", "keys"))
	for range 2 {
		response, _ := testkit.Send(t, http.DefaultClient, http.MethodPost, gateway.Admin+"/api/v1/keys", operator,
			`{"tenant":"acme"}`, "Idempotency-Key", "1")
		if response.StatusCode != http.StatusCreated {
			t.Errorf("a key by the operators' API: %d", response.StatusCode)
		}
	}
	f.MustKeyadmin("operator", "revoke", "ci", "--yes")

	// The console needs keyadmin's rights, and says so to a person who signs in without them.
	lacking := f.AddGateway("DATABASE_URL="+roles["gateway"], "GATEWAY_UPSTREAMS="+pets.URL, "GATEWAY_CONSOLE=true")
	invite := func(to *fleet.Program) string {
		_, code, _ := strings.Cut(strings.TrimSpace(f.MustKeyadmin("console", "--gateway", to.ID)), "#")
		return code
	}
	if status, page := signIn(t, lacking, invite(lacking)); status != http.StatusServiceUnavailable ||
		!strings.Contains(page, "GATEWAY_CONSOLE_DATABASE_URL") {
		t.Errorf("the console with the gateway's role: %d\n%s", status, page)
	}
	if status, page := signIn(t, gateway, invite(gateway)); status != http.StatusOK ||
		!strings.Contains(page, "Latest changes") {
		t.Errorf("the console with keyadmin's role: %d\n%s", status, page)
	}
	lacking.Stop()
	for _, p := range []*fleet.Program{gateway, pets} {
		if code := p.Stop(); code != 0 || strings.Contains(p.Stderr.String(), "permission denied") {
			t.Errorf("exit code %d\n%s", code, p.Stderr)
		}
	}

	// What a gateway does when it leaves in an outage of Redis, and another one takes over its
	// requests.
	db := must.Get[*database.DB](t)(database.Open(roles["gateway"]))
	defer db.Close()
	store, taken := keystore.New(db, nil, nil, "gw-1"), 0
	registration := keystore.Registration{ID: "gw-1", Incarnation: "a", Unreported: "requests"}
	if err := store.SignOff(t.Context(), registration); err != nil {
		t.Error(err)
	}
	count := func(texts []string) error { taken = len(texts); return nil }
	if err := store.TakeUnreported(t.Context(), count); err != nil || taken != 1 {
		t.Errorf("%d texts are taken: %v", taken, err)
	}

	// Nor does a function delete what is new.
	stored := f.MustKeyadmin("usage", "show", "deaf", "-o", "json")
	const prune = `SELECT gateway_prune_usage(
		(SELECT json_agg(json_build_object('tenantId', id))::text FROM tenants), 4000000000000)`
	if err := execute(t, roles["gateway"], prune); err != nil {
		t.Error(err)
	}
	if after := f.MustKeyadmin("usage", "show", "deaf", "-o", "json"); after != stored {
		t.Errorf("usage was deleted:\n%s\n%s", stored, after)
	}

	// Nor does one write what no program could read, or less than nothing.
	for _, call := range []string{
		`gateway_add_usage('[{"tenantId":"ten_0000000000000000","hour":0,"operation":"","charged":true,"outcome":"ok","requests":-1}]')`,
		`gateway_add_usage('[{"tenantId":"x","hour":0,"operation":"","charged":true,"outcome":"ok","requests":1}]')`,
		`gateway_report_lost('gw', 'u', 'ten_0000000000000000', 'x', 'revoked', 1, 1)`,
		`gateway_report_lost('gw', 'u', 'ten_0000000000000000', '', 'x', 1, 1)`,
		`gateway_report_lost(E'a\nb', 'u', 'ten_0000000000000000', '', 'suspended', 1, 1)`,
		`gateway_ban('gw', 'u', 'x', 1900000000000, '', 1)`,
		`gateway_add_minutes('[{"tenantId":"ten_0000000000000000","hour":0,"attempts":"x"}]', 'gw')`,
		`gateway_upsert_quotas('[{"name":"x","record":"00"}]', 1)`,
	} {
		if err := execute(t, roles["gateway"], "SELECT "+call); err == nil ||
			!strings.Contains(err.Error(), "violates") {
			t.Errorf("%s: %v, want it refused", call, err)
		}
	}

	// What the gateway's role writes, it writes in its own name, and an operator's ban is not
	// shortened.
	f.MustKeyadmin("ban", "add", deaf.ID, "--for", "2h", "--reason", "abuse", "--yes")
	// The operator's ban ends later than the first and earlier than the second.
	for _, until := range []string{"1", "1900000000000"} {
		statement := `SELECT gateway_ban('keyadmin:ada', 'uuid', '` + deaf.ID + `', ` + until + `, 'mine', 1)`
		if err := execute(t, roles["gateway"], statement); err != nil {
			t.Error(err)
		}
		if bans := f.MustKeyadmin("ban", "list", "-o", "json"); strings.Contains(bans, `"abuse"`) != (until == "1") {
			t.Errorf("after a ban until %s:\n%s", until, bans)
		}
	}
	if log := f.MustKeyadmin("audit", "-o", "json"); !strings.Contains(log, `"gateway:keyadmin:ada"`) ||
		strings.Contains(log, `"keyadmin:ada"`) {
		t.Errorf("the audit log does not name the role:\n%s", log)
	}

	// The lock of the pet service's database is not that of the keys' database.
	petsDB := must.Get[*database.DB](t)(database.Open(as("petsvc", "pets")))
	defer petsDB.Close()
	petsDB.SetMaxOpenConns(1)
	if _, err := petsDB.Exec(`SELECT pg_advisory_lock(123581046915073)`); err != nil {
		t.Fatal(err)
	}
	f.MustKeyadmin("key", "revoke", deaf.ID, "--yes")

	everywhere := []string{
		`CREATE TABLE public.mine (n int)`, `CREATE ROLE other`, `ALTER ROLE keyadmin SUPERUSER`, `COPY (SELECT 1) TO PROGRAM 'true'`,
		`SELECT pg_read_file('PG_VERSION')`, `TRUNCATE events`, `DROP TABLE tenants`, `DELETE FROM events`, `UPDATE events SET actor = ''`,
		`INSERT INTO gateways SELECT * FROM gateways`,
		`UPDATE gateways SET applied_event = 1`, `DELETE FROM gateways`, `UPDATE gateway_registry SET generation = 1`,
		`UPDATE usage_hours SET requests = 0`, `DELETE FROM usage_hours`, `DELETE FROM usage_minutes`, `DELETE FROM usage_gaps`,
		`DELETE FROM quota_records`, `INSERT INTO unreported_requests SELECT * FROM unreported_requests`,
		`UPDATE keys_schema SET version_id = 1`,
		`ALTER TABLE events DROP CONSTRAINT events_form`, `DROP FUNCTION writers_lock`,
	}
	for role, statements := range map[string][]string{
		"gateway": {
			`DELETE FROM tenants`, `DELETE FROM tenant_keys`, `DELETE FROM plans`, `DELETE FROM bans`,
			`INSERT INTO tenant_keys SELECT * FROM tenant_keys`, `INSERT INTO tenants SELECT * FROM tenants`,
			`UPDATE tenants SET plan = 'pro'`,
			`UPDATE tenant_keys SET revoked_at = 0`, `UPDATE plans SET minute_limit = 1`, `DELETE FROM events`,
			`UPDATE events SET actor = ''`,
			`INSERT INTO events SELECT MAX(id) + 1, 'u', 0, 'x', 'x', 'not-an-id', '', '', '', '' FROM events`,
			`SELECT append_event(1, 'c', 'u', 1, 'keyadmin:ada', 'plan.updated', '', '', 'free', '', '')`,
			`INSERT INTO bans SELECT * FROM bans`, `UPDATE bans SET lifted_at = 1`, `INSERT INTO lost_refusals SELECT * FROM lost_refusals`,
			`DELETE FROM lost_refusals`, `UPDATE tenant_keys SET last_used_at = 0`, `INSERT INTO usage_hours SELECT * FROM usage_hours`,
			`INSERT INTO quota_records SELECT * FROM quota_records`, `DELETE FROM unreported_requests`,
			`SELECT * FROM console_sessions`, `SELECT * FROM operators`,
			`SELECT * FROM usage_exports`, `UPDATE usage_ledger SET seal = 0`, `CREATE TEMPORARY TABLE events (n int)`, `SET ROLE keyadmin`,
		},
		"petsvc": {`SELECT 1`, `SELECT pg_advisory_lock(123581046915073)`, `SELECT * FROM tenant_keys`},
		"keyadmin": {
			`DELETE FROM quota_records`, `SELECT * FROM unreported_requests, pg_authid`,
			`INSERT INTO usage_hours SELECT * FROM usage_hours`,
		},
	} {
		for _, statement := range append(statements, everywhere...) {
			if err := execute(t, roles[role], statement); err == nil || !denied.MatchString(err.Error()) {
				t.Errorf("%s: %s: %v, want it refused", role, statement, err)
			}
		}
	}
}

// signIn sends the code of a link to a gateway's console. It returns the page to which the console
// leads.
func signIn(t *testing.T, gateway *fleet.Program, code string) (status int, page string) {
	t.Helper()
	jar, _ := cookiejar.New(nil) // it never fails without options
	browser := http.Client{Jar: jar}
	response := must.Get[*http.Response](t)(
		browser.PostForm(gateway.Admin+"/console/login", url.Values{"code": {code}}),
	)
	defer response.Body.Close()
	return response.StatusCode, string(must.Get[[]byte](t)(io.ReadAll(response.Body)))
}

var denied = regexp.MustCompile("permission denied|must be owner|must be superuser")

func shell(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func execute(t *testing.T, url, statement string) error {
	t.Helper()
	db := must.Get[*database.DB](t)(database.Open(url))
	defer db.Close()
	_, err := db.Exec(statement)
	return err
}

package docker_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// Each program can do its work with the rights of its role, and the role has no other rights.
func TestRoles(t *testing.T) {
	t.Parallel()
	f := fleet.Start(t, fleet.Spec{Database: testkit.StartPostgres(t).URL})
	before := f.AddPets() // as in versions without roles: its tables belong to the superuser
	if reply := before.Client().Must(t, fleet.PostPet("", "from before")); reply.Status != 201 {
		t.Fatal(reply)
	}
	before.Stop()
	as := func(role string) string {
		u, err := url.Parse(f.Database)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword(role, role+" secret")
		return u.String()
	}
	roles := map[string]string{"gateway": as("gateway"), "petsvc": as("petsvc"), "keyadmin": as("keyadmin")}
	script := read(t, "roles.sql")
	for role := range roles {
		script = strings.ReplaceAll(script, ":'"+role+"_password'", "'"+role+" secret'")
	}
	for range 2 {
		if err := execute(t, f.Database, script); err != nil {
			t.Fatal(err)
		}
	}

	f.Database = roles["keyadmin"]
	pets := f.AddPets("DATABASE_URL=" + roles["petsvc"])
	gateway := f.AddGateway("DATABASE_URL="+roles["gateway"], "GATEWAY_UPSTREAMS="+pets.URL, "GATEWAY_BAN_AFTER=1",
		"GATEWAY_DRAIN_DELAY=0s", "GATEWAY_CONSOLE=true", "GATEWAY_CONSOLE_DATABASE_URL="+roles["keyadmin"])
	key := f.NewTenant("acme", fleet.Unlimited...)
	c := gateway.Client()
	defer c.Close()
	if reply := c.Must(t, fleet.PostPet(key.Token, "with roles")); reply.Status != 201 {
		t.Errorf("a pet is not created: %v", reply)
	}
	if reply := c.Must(t, fleet.Request("GET /v1/pets", key.Token, "")); !strings.Contains(reply.Body, "from before") {
		t.Errorf("the pets from before are not found: %v", reply)
	}
	f.MustKeyadmin("plan", "create", "team", "--minute", "10", "--day", "100")
	f.MustKeyadmin("tenant", "set-plan", "acme", "team")
	f.MustKeyadmin("tenant", "suspend", "acme", "--yes")
	f.MustKeyadmin("tenant", "resume", "acme")
	f.MustKeyadmin("key", "update", key.ID, "--name", "renamed")
	state := filepath.Join(t.TempDir(), "petgate.yaml")
	if err := os.WriteFile(state, []byte("version: 1\ntenants:\n- {name: acme, plan: pro, minute: 1000000, day: 1000000}\n- {name: new, plan: free}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.MustKeyadmin("apply", state, "--yes")
	f.MustKeyadmin("key", "rotate", key.ID, "--grace", "1h", "--yes")
	f.MustKeyadmin("usage", "reset", "acme", "--yes")
	f.MustKeyadmin("gateway", "list")
	f.MustKeyadmin("doctor")
	deaf := f.NewTenant("deaf", "--minute", "1")
	testkit.Eventually(t, fleet.ReplyWithin, "the gateway bans a key", func() bool { return gateway.Ask(deaf.Token).Code() == "key_banned" })
	testkit.Eventually(t, fleet.ReplyWithin, "the ban is in the database", func() bool {
		return strings.Contains(f.MustKeyadmin("ban", "list"), deaf.ID)
	})
	testkit.Eventually(t, fleet.ReplyWithin, "usage is in the database", func() bool {
		return strings.Contains(f.MustKeyadmin("usage", "show", "deaf"), "key_banned")
	})
	f.MustKeyadmin("usage", "export", "--format", "csv")
	f.MustKeyadmin("ban", "lift", deaf.ID)

	// The console needs keyadmin's rights, and says so to a person who signs in without them.
	lacking := f.AddGateway("DATABASE_URL="+roles["gateway"], "GATEWAY_UPSTREAMS="+pets.URL, "GATEWAY_DRAIN_DELAY=0s", "GATEWAY_CONSOLE=true")
	invite := func(to *fleet.Program) string {
		_, code, _ := strings.Cut(strings.TrimSpace(f.MustKeyadmin("console", "--gateway", to.ID)), "#")
		return code
	}
	if status, page := signIn(t, lacking, invite(lacking)); status != http.StatusServiceUnavailable || !strings.Contains(page, "GATEWAY_CONSOLE_DATABASE_URL") {
		t.Errorf("the console with the gateway's role: %d\n%s", status, page)
	}
	if status, page := signIn(t, gateway, invite(gateway)); status != http.StatusOK || !strings.Contains(page, "console.opened") {
		t.Errorf("the console with keyadmin's role: %d\n%s", status, page)
	}
	lacking.Stop()
	for _, p := range []*fleet.Program{gateway, pets} {
		if code := p.Stop(); code != 0 || strings.Contains(p.Stderr.String(), "permission denied") {
			t.Errorf("exit code %d\n%s", code, p.Stderr)
		}
	}

	// What a gateway does when it leaves in an outage of Redis, and another one takes over its requests.
	db, err := database.Open(roles["gateway"])
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	store, taken := keystore.New(db, nil, nil, "gw-1"), 0
	if err := store.SignOff(t.Context(), keystore.Registration{ID: "gw-1", Incarnation: "a", Unreported: "requests"}); err != nil {
		t.Error(err)
	}
	if err := store.TakeUnreported(t.Context(), func(texts []string) error { taken = len(texts); return nil }); err != nil || taken != 1 {
		t.Errorf("%d texts are taken: %v", taken, err)
	}

	for role, statements := range map[string][]string{
		"gateway": {
			`INSERT INTO tenant_keys SELECT * FROM tenant_keys`, `INSERT INTO tenants SELECT * FROM tenants`, `UPDATE tenants SET plan = 'pro'`,
			`UPDATE tenant_keys SET revoked_at = 0`, `UPDATE plans SET minute_limit = 1`, `DELETE FROM events`, `UPDATE events SET actor = ''`,
			`SELECT * FROM petsvc.pets`, `CREATE TABLE public.mine (n int)`, `CREATE ROLE other`,
		},
		"petsvc":   {`SELECT * FROM public.tenant_keys`, `SELECT * FROM public.events`, `CREATE TABLE public.mine (n int)`, `CREATE ROLE other`},
		"keyadmin": {`DELETE FROM events`, `UPDATE events SET actor = ''`, `DROP TABLE tenants`, `SELECT * FROM petsvc.pets`, `CREATE ROLE other`},
	} {
		for _, statement := range statements {
			if err := execute(t, roles[role], statement); err == nil || !isDenied(err) {
				t.Errorf("%s: %s: %v, want it refused", role, statement, err)
			}
		}
	}
}

// signIn sends the code of a link to a gateway's console. It returns the page to which the console leads.
func signIn(t *testing.T, gateway *fleet.Program, code string) (status int, page string) {
	t.Helper()
	jar, _ := cookiejar.New(nil) // it never fails without options
	browser := http.Client{Jar: jar}
	response, err := browser.PostForm(gateway.Admin+"/console/login", url.Values{"code": {code}})
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func isDenied(err error) bool {
	return strings.Contains(err.Error(), "permission denied") || strings.Contains(err.Error(), "must be owner")
}

func execute(t *testing.T, url, statement string) error {
	t.Helper()
	db, err := database.Open(url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	_, err = db.Exec(statement)
	return err
}

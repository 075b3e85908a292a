package contract_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// apiOf returns a function that sends a call to a gateway's operators' API, with a token.
func apiOf(t *testing.T, token string) func(g *fleet.Program, methodAndPath, body string) (status int, text string) {
	return func(g *fleet.Program, methodAndPath, body string) (status int, text string) {
		t.Helper()
		method, path, _ := strings.Cut(methodAndPath, " ")
		r, err := http.NewRequestWithContext(t.Context(), method, g.Admin+"/api/v1"+path, strings.NewReader(body))
		must.Do(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		response, err := http.DefaultClient.Do(r)
		must.Do(t, err)
		defer response.Body.Close()
		all, err := io.ReadAll(response.Body)
		must.Do(t, err)
		return response.StatusCode, string(all)
	}
}

// What the API says is what keyadmin says. A revocation by the API holds at all gateways when it answers. One that a gateway has not applied
// names it. No token is in a log or a metric.
func TestOperatorsAPI(t *testing.T) {
	t.Parallel()
	redis, prefix := testkit.Redis(t)
	f := fleet.Start(t, fleet.Spec{
		Redis: redis, RedisPrefix: prefix, Gateways: 3, Upstreams: fleet.FixedUpstream(t), GatewayEnv: []string{"GATEWAY_DRAIN_DELAY=0s", "GATEWAY_OPERATORS_API=true"},
	})
	f.MustKeyadmin(append([]string{"tenant", "create", "acme"}, fleet.Unlimited...)...)
	operator := strings.TrimSpace(f.MustKeyadmin("operator", "create", "on call", "--role", "keys"))
	call := apiOf(t, operator)
	var created []fleet.Key
	for range testkit.Size(6, 40) {
		created = append(created, f.NewKey("acme"))
	}
	for path, command := range map[string]string{
		"/tenants": "tenant list", "/tenants/acme": "tenant show acme", "/plans": "plan list", "/keys/" + created[0].ID: "key show " + created[0].ID, "/bans": "ban list",
		"/tenants/acme/usage": "usage show acme", "/usage": "usage top", "/gateways/lost": "gateway lost",
	} {
		status, text := call(f.Gateways[0], "GET "+path, "")
		if want := f.MustKeyadmin(append(strings.Fields(command), "-o", "json")...); status != 200 || text != want {
			t.Errorf("GET %s: %d\n%s\nkeyadmin %s prints\n%s", path, status, text, command, want)
		}
	}

	var took []time.Duration
	for i, key := range created {
		load := fleet.StartLoad(t, key.Token, 2, 2*time.Millisecond, f.Gateways...)
		load.Await(t, key.Token, 200, 5, time.Time{})
		begun := time.Now()
		status, text := call(f.Gateways[i%3], "POST /keys/"+key.ID+"/revoke?wait=20s", "")
		over := time.Now()
		if took = append(took, over.Sub(begun)); status != 200 {
			t.Fatalf("%d %s", status, text)
		}
		load.Await(t, key.Token, 401, 5, over)
		for _, s := range load.End() {
			if s.Status == 200 && s.Started.After(over) {
				t.Errorf("200 to a request begun %v after the answer", s.Started.Sub(over))
			}
		}
	}
	slices.Sort(took)
	t.Logf("figure: %d revocations by the operators' API under load, 3 gateways on Postgres: answered in %v (median), %v (worst); no 200 afterwards",
		len(took), took[len(took)/2], took[len(took)-1])

	f.Gateways[2].Kill()
	if status, text := call(f.Gateways[0], "POST /keys?wait=2s", `{"tenant":"acme"}`); status != http.StatusAccepted || !strings.Contains(text, `"unconfirmed": ["gw-3 (127.0.0.1)"]`) || !strings.Contains(text, `"token"`) {
		t.Errorf("without gw-3: %d %s", status, text)
	}
	if status, _ := call(f.Gateways[0], "POST /tenants", `{"name":"x"}`); status != http.StatusForbidden {
		t.Errorf("a call of another role: %d", status)
	}
	for _, g := range f.Gateways[:2] {
		for what, text := range map[string]string{"metrics": g.AdminPage(t, "/metrics"), "log": g.Stderr.String(), "output": g.Stdout.String(), "about": g.AdminPage(t, "/about")} {
			if strings.Contains(text, operator[4:20]) || strings.Contains(text, "pto_") {
				t.Errorf("the %s of %s has a token of an operator", what, g.ID)
			}
		}
	}
	if audit := f.MustKeyadmin("audit", "--actor", "on call", "-o", "json"); !strings.Contains(audit, `"actor": "operator:on call"`) || strings.Contains(audit, operator[4:20]) {
		t.Errorf("the audit log:\n%s", audit)
	}
	f.MustKeyadmin("operator", "revoke", "on call", "--yes")
	if status, _ := call(f.Gateways[0], "GET /tenants", ""); status != http.StatusUnauthorized {
		t.Errorf("with a revoked token: %d", status)
	}
}

package e2e_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

var revocations = testkit.Size(4, 20)

// confirmation is how keyadmin says that all gateways have applied a change.
const confirmation = "confirmed by 3 of 3 gateways"

// revoke revokes a key by keyadmin, or by the operators' API of a gateway if there is an operator's
// token.
func revoke(t *testing.T, f *fleet.Fleet, key fleet.Key, operator string) {
	t.Helper()
	if operator == "" {
		if done := f.Keyadmin("key", "revoke", key.ID, "--yes", "--wait", "20s"); done.Code != 0 ||
			!strings.Contains(done.Stderr, confirmation) {
			t.Fatalf("keyadmin key revoke: exit code %d\n%s", done.Code, done.Stderr)
		}
		return
	}
	status, text := callAPI(t, f.Gateways[0], operator, "POST /keys/"+key.ID+"/revoke?wait=20s", "")
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
}

// callAPI sends a call to a gateway's operators' API.
func callAPI(t *testing.T, g *fleet.Program, token, methodAndPath, body string) (status int, text string) {
	t.Helper()
	method, path, _ := strings.Cut(methodAndPath, " ")
	response, text := testkit.Send(t, http.DefaultClient, method, g.Admin+"/api/v1"+path, token, body)
	return response.StatusCode, text
}

// revokeUnderLoad revokes keys one after the other while all gateways get requests with them. It
// returns how long each revocation took. No request that starts after it may be answered 200.
func revokeUnderLoad(t *testing.T, f *fleet.Fleet, keys []fleet.Key, operator string) []time.Duration {
	t.Helper()
	l := fleet.StartLoad(t, keys[0].Token, 2, 4*time.Millisecond, f.Gateways...)
	took := make([]time.Duration, len(keys))
	for i, key := range keys {
		l.SetToken(key.Token)
		l.Await(t, key.Token, 200, 3, time.Time{})
		begun := time.Now()
		revoke(t, f, key, operator)
		over := time.Now()
		took[i] = over.Sub(begun).Round(time.Millisecond)
		l.Await(t, key.Token, 401, 5, over)
		for _, s := range l.Take() {
			if s.Status != 200 && s.Status != 401 ||
				s.Status == 401 && s.Token != key.Token && s.Token != keys[max(i-1, 0)].Token {
				t.Errorf("%s answers %v", s.Gateway.ID, s.Reply)
			}
			if s.Token == key.Token && s.Status == 200 && s.Started.After(over) {
				t.Errorf("%s answers 200 to a request begun %v after the revocation was confirmed", s.Gateway.ID,
					s.Started.Sub(over))
			}
		}
	}
	l.End()
	slices.Sort(took)
	return took
}

// A confirmed revocation holds at every gateway, whether keyadmin or the operators' API makes it.
// The API says what keyadmin says, and names the gateway that has not confirmed a change.
func TestRevocation(t *testing.T) {
	t.Parallel()
	redis, prefix := testkit.Redis(t)
	f := fleet.Start(t, fleet.Spec{
		Redis: redis, RedisPrefix: prefix, Gateways: 3, Upstreams: fleet.FixedUpstream(t),
		GatewayEnv: []string{"GATEWAY_OPERATORS_API=true"},
	})
	f.MustKeyadmin(append([]string{"tenant", "create", "acme"}, fleet.Unlimited...)...)
	operator := strings.TrimSpace(f.MustKeyadmin("operator", "create", "on call", "--role", "keys"))
	round := func(what string, n int, operator string) {
		var keys []fleet.Key
		for range n {
			keys = append(keys, f.NewKey("acme"))
		}
		took := revokeUnderLoad(t, f, keys, operator)
		t.Logf(
			"figure: %d revocations under load %s, 3 gateways on Postgres: confirmed in %v (median), %v (worst); no 200 afterwards",
			n, what, took[n/2], slices.Max(took),
		)
	}
	round("by keyadmin", revocations, "")
	round("by the operators' API", revocations, operator)
	for path, command := range map[string]string{
		"/tenants/acme":  "tenant show acme",
		"/usage":         "usage top",
		"/gateways/lost": "gateway lost",
	} {
		status, text, want := 0, "", ""
		if !testkit.Await(fleet.ReplyWithin, func() bool { // usage arrives between the two calls, for some seconds
			status, text = callAPI(t, f.Gateways[0], operator, "GET "+path, "")
			want = f.MustKeyadmin(append(strings.Fields(command), "-o", "json")...)
			return status == http.StatusOK && text == want
		}) {
			t.Errorf("GET %s: %d\n%s\nkeyadmin %s prints\n%s", path, status, text, command, want)
		}
	}
	for _, g := range f.Gateways {
		said := g.Stdout.String() + g.Stderr.String() + g.AdminPage(t, "/metrics") + g.AdminPage(t, "/about")
		if strings.Contains(said, "pto_") {
			t.Errorf("%s tells an operator's token", g.ID)
		}
	}
	f.Gateways[2].Kill()
	status, text := callAPI(t, f.Gateways[0], operator, "POST /keys?wait=1s", `{"tenant":"acme"}`)
	if status != http.StatusAccepted || !strings.Contains(text, `"gw-3 (127.0.0.1)"`) ||
		!strings.Contains(text, `"token"`) {
		t.Errorf("without gw-3: %d %s", status, text)
	}
}

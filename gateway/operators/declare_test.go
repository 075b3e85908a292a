package operators

import (
	"strings"
	"testing"

	"petgate/shared/keystore"
	"petgate/shared/keystore/sessions"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// Diff lists what apply then changes, once. What takes something away needs confirm=true. Package
// declare has the documents.
func TestDeclare(t *testing.T) {
	s := newSite(t, testkit.SQLite(t))
	const document = `{"version": 1, "tenants": [{"name": "acme", "plan": "PLAN"}]}`
	on := func(plan string) string { return strings.Replace(document, "PLAN", plan, 1) }
	events := func() keystore.Change {
		t.Helper()
		return must.Get[keystore.Change](t)(s.store.LastEvent(t.Context()))
	}
	begin := events()
	s.want(200, `"change": "name \"acme\", plan pro"`, "POST /diff", on("pro"))
	s.want(200, `"change": "name \"acme\", plan pro"`, "POST /apply?dryRun=true", on("pro"))
	must.Equal(t, events(), begin, "the last event after diff and a dry run")
	s.want(200, `"action": "create"`, "POST /apply", on("pro"))
	before := events()
	s.want(200, "\"changes\": [],\n  \"leftOut\": []", "POST /apply", on("pro"))
	got := s.want(409, "Apply 1 change? Some lower a limit", "POST /apply", on("free"))
	must.Equal(t, strings.Contains(got.text, `"field":"confirm"`), true, "the field is confirm")
	must.Equal(t, events(), before, "the last event before confirm=true")
	s.want(200, "plan pro → free", "POST /apply?confirm=true", "version: 1\ntenants:\n- {name: acme, plan: free}\n")
	s.want(200, `"actor": "operator:prog-admin"`, "GET /audit?kind=tenant", "")
	s.want(200, "suspended, because", "POST /diff?prune=true", "version: 1")

	for role, status := range map[sessions.Role]int{read: 403, keys: 403, admin: 200} {
		must.Equal(t, s.as(s.tokens[role], "POST /apply", on("free")).status, status, "apply as %s", role)
		must.Equal(t, s.as(s.tokens[role], "POST /diff", on("free")).status, 200, "diff as %s", role)
	}
	for _, c := range []struct{ call, body, want string }{
		{"/apply", "", "body is empty: it needs a version"},
		{
			"/apply", "version: 1\nplans:\n- name: Gold\n- {}\n",
			`the file cannot be applied. Nothing was changed. body:3: plans[0].name: \"Gold\" is not a plan name: `,
		},
		{"/diff", on("none"), `; body:1: tenants[0]: there is no plan \"none\": use business, enterprise, free, pro`},
		{"/diff", "version: 1\n" + strings.Repeat("#", documentBytesMax), "request body too large: use at most 1048576"},
		{"/diff", "version: 1\ntenants: [{name: ptg_live_" + strings.Repeat("a", 38) + "}]", "the document has a token"},
		{"/diff?wait=1s", "version: 1", "wait: there is no such field: the fields are prune"},
	} {
		want := strings.TrimPrefix(c.want, "; ")
		if got := s.want(400, want, "POST "+c.call, c.body); strings.Contains(got.text, "ptg_") {
			t.Errorf("the answer repeats a token: %s", got.text)
		}
	}
	must.Equal(t, s.admin("POST /diff", "version: 1\n"+strings.Repeat("#", documentBytesMax-11)).status, 200, "1 MiB")
}

// A change that no gateway has confirmed is answered with the members of its view, the gateways and
// the reason.
func TestUnconfirmed(t *testing.T) {
	s := newSite(t, testkit.SQLite(t))
	g := keystore.Registration{ID: "gw-7", Incarnation: "a", AdminAddress: "127.0.0.1:1"}
	must.Get[int64](t)(s.store.Register(t.Context(), g, nil))
	for _, c := range []struct{ call, body, view string }{
		{"POST /tenants?wait=0", `{"name": "<a>"}`, ",\n  \"id\": \"ten_"},
		{"POST /keys?wait=0", `{"tenant": "<a>"}`, ",\n  \"token\": \"ptg_live_"},
		{"POST /apply?wait=0", `{"version": 1, "plans": [{"name": "gold", "minute": 1}]}`, ",\n  \"changes\": [\n"},
	} {
		got := s.want(202, c.view, c.call, c.body)
		for _, part := range []string{
			"\n  \"unconfirmed\": [", `"gw-7 (127.0.0.1)"`,
			`"unconfirmedReason": "done, but confirmed by only 0 of 1 gateways after 0 ms:\n  gw-7 (127.0.0.1), `,
		} {
			if !strings.Contains(got.text, part) {
				t.Errorf("%s lacks %s:\n%s", c.call, part, got.text)
			}
		}
	}
	s.want(200, `"name": "<a>"`, "GET /tenants", "")
}

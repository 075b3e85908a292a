package operators

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/keystore/schema"
	"petgate/shared/keystore/sessions"
	"petgate/shared/keystore/usage"
	"petgate/shared/metering"
	"petgate/shared/operate"
	"petgate/shared/service"
	"petgate/shared/testkit"
	"petgate/shared/testkit/golden"
	"petgate/shared/testkit/must"
)

// A gateway of these tests answers on a busy machine, too.
func init() { operate.LiveWithin, operate.AskWithin = time.Minute, time.Minute }

// site is an admin port with an API.
type site struct {
	*testing.T
	url    string
	db     *database.DB
	store  *keystore.Store
	log    *bytes.Buffer
	tokens map[sessions.Role]string
	now    time.Time
}

func newSite(t *testing.T, databaseURL string) *site {
	t.Helper()
	s := serveSite(t, testkit.Open(t, databaseURL, schema.Migrations), time.Now())
	for _, role := range sessions.Roles {
		prog := sessions.OperatorToken{Name: "prog-" + string(role), Role: role}
		s.tokens[role] = must.First[string](t)(sessions.Of(s.store).CreateOperator(t.Context(), prog))
	}
	return s
}

// serveSite serves the API of a database at a time.
func serveSite(t *testing.T, db *database.DB, now time.Time) *site {
	t.Helper()
	s := &site{T: t, db: db, log: &bytes.Buffer{}, tokens: map[sessions.Role]string{}, now: now}
	clock := func() time.Time { return s.now }
	s.store = keystore.New(db, clock, nil, "keyadmin:alice")
	log := slog.New(slog.NewTextHandler(s.log, nil))
	admin := service.NewAdmin(log, service.Settings{}, "")
	own := s.store.As("gw-1")
	admin.Handle(Root+"/", New(Config{Store: own, Changes: own, Failures: 60, Log: log, Clock: clock}))
	server := httptest.NewServer(admin)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// reply is an answer of the API.
type reply struct {
	status int
	header http.Header
	text   string
}

// as sends a call with a token. Header fields follow in pairs.
func (s *site) as(token, methodAndPath, body string, fields ...string) reply {
	s.Helper()
	method, path, _ := strings.Cut(methodAndPath, " ")
	response, text := testkit.Send(s, http.DefaultClient, method, s.url+Root+path, token, body, fields...)
	return reply{response.StatusCode, response.Header, text}
}

func (s *site) admin(methodAndPath, body string, fields ...string) reply {
	s.Helper()
	return s.as(s.tokens[admin], methodAndPath, body, fields...)
}

// want sends a call as admin, and checks its status and a part of its answer.
func (s *site) want(status int, part, methodAndPath, body string, fields ...string) reply {
	s.Helper()
	got := s.admin(methodAndPath, body, fields...)
	if got.status != status || !strings.Contains(got.text, part) {
		s.Errorf("%s %s: %d, want %d and %q in\n%s", methodAndPath, body, got.status, status, part, got.text)
	}
	if got.header.Get("Content-Type") != "application/json" || got.header.Get("Cache-Control") != "no-store" {
		s.Errorf("%s: %v", methodAndPath, got.header)
	}
	return got
}

// read reads a member of the answer.
func (r reply) member(name string) (text string) {
	members := map[string]any{}
	_ = json.Unmarshal([]byte(r.text), &members) // without a member, the text is empty
	text, _ = members[name].(string)
	return text
}

// next is the path of the page after this one; empty: it is the last one.
func (r reply) next() string {
	address, _, _ := strings.Cut(strings.TrimPrefix(r.header.Get("Link"), "<"), ">")
	return strings.TrimPrefix(address, Root)
}

func (s *site) newKey() reply {
	s.Helper()
	s.admin("POST /tenants", `{"name":"acme","plan":"pro"}`)
	return s.want(201, `"token": "ptg_live_`, "POST /keys", `{"tenant":"acme","name":"ci"}`)
}

func TestDocument(t *testing.T) {
	text := Document()
	short := regexp.MustCompile(`\n {8,}`).ReplaceAllString(string(text), " ") // a line for each call and each schema
	golden.Check(t, "document", short, `"title": "Petgate, operators' API", +"version": "[^"]*"`)
	doc := must.Get[*openapi3.T](t)(openapi3.NewLoader().LoadFromData(text))
	must.Do(t, doc.Validate(t.Context()))
	n := 0
	for path, item := range doc.Paths.Map() {
		for method, o := range item.Operations() {
			n++
			if o.Summary == "" || o.Extensions["x-role"] == "" || o.Responses.Default() == nil {
				t.Errorf("%s %s is not described: %+v", method, path, o)
			}
		}
	}
	must.Equal(t, n, len(calls), "operations")
	s := newSite(t, testkit.SQLite(t))
	if got := s.as("", "GET /openapi.json", ""); got.status != 200 || got.text != string(text) {
		t.Errorf("the document is served as %d\n%s", got.status, got.text)
	}
}

// What programs read. TestVerbs has the calls that make changes.
func TestReads(t *testing.T) {
	s := newSite(t, testkit.SQLite(t))
	s.now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s.want(201, "", "POST /tenants", `{"name":"globex"}`)
	key := s.newKey()
	id, token := key.member("id"), key.member("token")
	s.want(201, `"by": "operator:prog-admin"`, "POST /bans", `{"key":"`+id+`","for":"1h","reason":"scraping"}`)
	said := &strings.Builder{}
	for _, c := range []struct{ call, body, part string }{
		{"GET /tenants", "", `"name": "acme"`},
		{"GET /tenants?search=LOB", "", `"name": "globex"`},
		{"GET /tenants?plan=free&state=suspended", "", `[]`},
		{"GET /tenants/acme", "", `"minute": 300`},
		{"GET /tenants/acme/usage", "", `[]`},
		{"GET /tenants/acme/usage/minutes?since=1h", "", `[]`},
		{"GET /plans", "", `"name": "enterprise"`},
		{"GET /keys?tenant=acme", "", `"name": "ci"`},
		{"GET /keys?tenant=globex", "", `[]`},
		{"GET /keys/" + id, "", `"status": "banned until 2026-03-01T13:00:00Z"`},
		{"POST /keys/whoami", `{"token":"` + token + `"}`, id},
		{"GET /bans", "", `"reason": "scraping"`},
		{"GET /bans?tenant=globex", "", `[]`},
		{"GET /usage", "", `[]`},
		{"POST /usage/explain", `{"token":"` + token + `"}`, `"passes": false`},
		{"POST /usage/explain", `{"key":"` + id + `"}`, `"code": "key_banned"`},
		{"GET /audit?kind=key.created", "", `"actor": "operator:prog-admin"`},
		{"GET /audit?actor=prog-admin&tenant=acme&since=1h", "", `"kind": "ban.added"`},
		{"GET /gateways", "", `[]`},
		{"GET /gateways/lost", "", `[]`},
	} {
		got := s.want(200, c.part, c.call, c.body)
		var text bytes.Buffer
		must.Do(t, json.Compact(&text, []byte(got.text)))
		fmt.Fprintln(said, c.call, text.String())
	}
	golden.Check(t, "reads", said.String(), `(ten|key|ptg_live)_[0-9A-Za-z]{16,}`, `"hint":"\w+"`)
	if s.store.CheckFile() != nil || strings.Contains(s.log.String(), "ptg_") ||
		strings.Contains(s.log.String(), "pto_") {
		t.Errorf("the log:\n%s", s.log)
	}
}

// A wrong call gets a status and a text that names what is wrong, and changes nothing.
func TestMistakes(t *testing.T) {
	s := newSite(t, testkit.SQLite(t))
	key := s.newKey()
	id, token := key.member("id"), key.member("token")
	const ofAny = "allow: \\\"any\\\" is not a CIDR block: " +
		"a key that is created without allow may be used from anywhere; "
	before := s.want(200, "", "GET /audit", "").text
	for _, c := range []struct {
		status           int
		call, body, part string
	}{
		{400, "GET /tenants?state=asleep", "", `state: \"asleep\" is not a state: use active or suspended`},
		{404, "GET /tenants/none", "", `{"code":"not_found","message":"there is no tenant \"none\"","status":404}`},
		{409, "POST /tenants", `{"name":"acme"}`, `"code":"already_exists"`},
		{404, "POST /tenants", `{"name":"new","plan":"none"}`, `there is no plan`},
		{
			400, "POST /tenants", `{"name":"new","colour":"red"}`,
			`colour: there is no such field: the fields are name, plan, minute, day, month, monthStarts`,
		},
		{400, "POST /tenants", `{"name":"new","colour":"red"}`, `"status":400,"details":{"field":"colour"}}`},
		{
			400, "POST /tenants", `{"name":"new","minute":0,"plan":"Free"}`,
			`minute: 0 is out of range: use 1 to 1000000000; plan: \"Free\" is not a plan name`,
		},
		{400, "POST /tenants", `{}`, `name: it is missing: The tenant's name`},
		{400, "POST /tenants", `{"name":["a","b"]}`, `name: give one value`},
		{400, "POST /tenants", `{"name":{}}`, `name: use a text`},
		{400, "POST /tenants", `[]`, `the body is not one JSON object`},
		{400, "POST /tenants", `{"name":"x"} {}`, `something follows the object`},
		{400, "POST /tenants", "{\"name\":\"\xff\"}", `the body is not one JSON object: it is not UTF-8`},
		{400, "POST /tenants?name=x", `{"name":"x"}`, `name: this call has no such parameter in its query`},
		{400, "POST /tenants?wait=61s", `{"name":"x"}`, `wait: it is too long`},
		{400, "GET /tenants?limit=x", "", `limit: \"x\" is not a whole number`},
		{400, "GET /tenants?limit=0", "", `limit: 0 is out of range: use 1 to 1000`},
		{400, "GET /keys?after=x", "", `after: no page has named this`},
		{400, "GET /keys?confirm=true", "", `confirm: there is no such field`},
		{400, "GET /tenants/%00", "", `bytes that are not text`},
		{409, "PUT /tenants/acme/plan", `{"plan":"enterprise"}`, `"code":"confirmation_required"`},
		{400, "PATCH /tenants/acme/limits", `{}`, `give minute, day, month or monthStarts`},
		{400, "GET /tenants/acme/usage?by=minute", "", `/usage/minutes`},
		{400, "GET /tenants/acme/usage?since=1h&until=2h", "", `until: `},
		{400, "GET /keys/key_x", "", `"field":"key"`},
		{400, "PATCH /keys/" + id, `{}`, `"give name, scopes, allow, allowAny, expires, noExpires, minute or day"`},
		{
			400, "PATCH /keys/" + id, `{"allow":[]}`,
			`"allow is empty: allowAny removes the allow-list","status":400,"details":{"field":"allow"}`,
		},
		{400, "PATCH /keys/" + id, `{"allow":["any"]}`, ofAny + "`keyadmin key update KEY --allow-any`"},
		{400, "POST /keys/whoami", `{"token":"ptg_live_x"}`, `"code":"invalid_request"`},
		{400, "POST /tenants", `{"name":"` + token + `"}`, `name: it has a token, which is not repeated here`},
		{400, "GET /tenants?search=" + token, "", `search: it has a token`},
		{400, "GET /tenants/" + token, "", `tenant: it has a token`},
		{400, "GET /audit?token=" + token, "", `token: it has a token`},
		{400, "POST /bans", `{"key":"` + id + `"}`, `for: it is missing`},
		{400, "GET /usage?n=1001", "", `n: 1001 is out of range`},
		{503, "GET /usage/deprecated", "", `no gateway is registered`},
		{400, "POST /usage/explain", `{"key":"` + id + `","tenant":"acme"}`, `give one of key, tenant and token`},
		{404, "DELETE /gateways/gw-9", "", `no gateway`},
		{404, "DELETE /gateways/lost/" + id, "", `no refusal`},
		{409, "DELETE /tenants/acme", "", `keys that have not ended`},
		{409, "DELETE /plans/pro", "", `move them to another plan first`},
		{404, "GET /nothing", "", `"code":"no_such_route"`},
		{404, "DELETE /tenants", "", `the API has no call DELETE of this path`},
	} {
		s.want(c.status, c.part, c.call, c.body)
	}
	s.want(200, before, "GET /audit", "")
	must.Equal(t, strings.Contains(s.log.String(), "ptg_"), false, "a token in the log")
}

// A list read page by page has each row once.
func TestPages(t *testing.T) {
	s := newSite(t, testkit.SQLite(t))
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		s.want(201, name, "POST /tenants", `{"name":"`+name+`"}`)
		key := s.want(201, "", "POST /keys", `{"tenant":"`+name+`"}`).member("id")
		s.want(201, key, "POST /bans", `{"key":"`+key+`","for":"1h","reason":"x"}`)
		s.now = s.now.Add(time.Second)
	}
	for _, path := range []string{"/tenants", "/keys", "/bans", "/audit"} {
		var all, paged []json.RawMessage
		must.Do(t, json.Unmarshal([]byte(s.want(200, "", "GET "+path, "").text), &all))
		for next := path + "?limit=2"; next != ""; {
			got := s.want(200, "", "GET "+next, "")
			var rows []json.RawMessage
			must.Do(t, json.Unmarshal([]byte(got.text), &rows))
			paged = append(paged, rows...)
			next = got.next()
		}
		if a, b := must.Get[[]byte](t)(json.Marshal(all)), must.Get[[]byte](t)(json.Marshal(paged)); len(all) < 5 ||
			!bytes.Equal(a, b) {
			t.Errorf("%s: at once %d rows\n%s\nby pages %d\n%s", path, len(all), a, len(paged), b)
		}
	}
}

// A bill read page by page has each event once, with its correction, and nothing of test keys.
func TestUsageExport(t *testing.T) {
	s := newSite(t, testkit.SQLite(t))
	hour := instant.Of(s.now).Truncate(time.Hour).Add(-3 * time.Hour)
	g := keystore.Registration{ID: "gw-1", Incarnation: "a", UsageThrough: hour.Add(2 * time.Hour)}
	g.Generation = must.Get[int64](t)(s.store.Register(t.Context(), g, nil))
	batch := int64(0)
	add := func(at instant.Millis, tenant byte, operation string, isTest bool) {
		batch++
		must.Do(t, usage.Of(s.store).AddUsage(t.Context(), g, batch, []usage.Row{{
			Tenant: id.Tenant{
				tenant,
			}, Operation: operation, Outcome: "ok", Charged: true, IsTest: isTest, Hour: at, Requests: 2, MoreUnits: 8,
		}}, nil))
	}
	for ago := range 3 { // the last one is open
		for tenant := range byte(2) {
			for _, operation := range []string{"", "getPet", "listPets"} {
				add(hour.Add(time.Duration(ago)*time.Hour), tenant+1, operation, false)
			}
		}
		add(hour.Add(time.Duration(ago)*time.Hour), 3, "listPets", true)
	}
	read := func(path string) (events []metering.UsageEventView) {
		for path != "" {
			got := s.want(200, `"until": "`+g.UsageThrough.String(), "GET "+path, "")
			var page ExportView
			must.Do(t, json.Unmarshal([]byte(got.text), &page))
			events = append(events, page.Events...)
			path = got.next()
		}
		return events
	}
	must.Equal(t, len(read("/usage/export")), 12, "events")
	add(hour, 2, "getPet", false)
	add(hour, 3, "listPets", true)
	all := read("/usage/export")
	if last := all[len(all)-1]; len(all) != 13 || last.Correction == 0 || last.Requests != 2 || last.Charged != 2 ||
		last.Units != 10 {
		t.Errorf("%d events, the last one is %+v", len(all), last)
	}
	for _, limit := range []string{"1", "2", "5", "13"} {
		if paged := read("/usage/export?limit=" + limit); !slices.Equal(paged, all) {
			t.Errorf("with pages of %s: %+v, want %+v", limit, paged, all)
		}
	}
	later := read("/usage/export?since=2h") // moves on while pages are read: the page before ended in an earlier hour
	if paged := read(s.want(200, "", "GET /usage/export?limit=5", "").next() + "&since=2h"); len(later) != 6 ||
		!slices.Equal(paged, later) {
		t.Errorf("after a page of an earlier hour: %+v, want %+v", paged, later)
	}
	s.want(200, `"events": []`, "GET /usage/export?since=1h", "")
	for _, after := range []string{"x", "0", "0.1.ten_x.y"} {
		s.want(400, "no page has named this", "GET /usage/export?after="+after, "")
	}
}

// Who calls a deprecated operation is known as soon as one gateway says which they are. Silent
// gateways are asked after the others: each of these would cost the whole time that a call has.
func TestDeprecated(t *testing.T) {
	s := newSite(t, testkit.SQLite(t))
	key := must.Get[id.Key](t)(id.ParseKey(s.newKey().member("id")))
	tenant := must.Get[keystore.Tenant](t)(s.store.Tenant(t.Context(), "acme"))
	about := testkit.AdminPort(t, map[string]any{"/about": operate.About{Operations: []operate.AboutOperation{
		{ID: "listPets"}, {ID: "getPet", DeprecatedAt: 1, SunsetAt: instant.Of(s.now.Add(50 * time.Hour))},
	}}})
	mute := must.Get[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0")) // it accepts, and says nothing
	t.Cleanup(func() { mute.Close() })
	r := keystore.Registration{ID: "gw-1", Incarnation: "a", AdminAddress: mute.Addr().String()}
	must.Get[int64](t)(s.store.Register(t.Context(), r, nil))
	must.Get[sql.Result](t)(s.db.Exec("UPDATE gateways SET seen_at = seen_at - 600000"))
	r.ID, r.AdminAddress = "gw-8", about
	r.Generation = must.Get[int64](t)(s.store.Register(t.Context(), r, nil))
	s.want(200, "[]", "GET /usage/deprecated", "")
	hour := instant.Of(s.now).Truncate(time.Hour)
	must.Do(t, usage.Of(s.store).AddUsage(t.Context(), r, 1, []usage.Row{
		{Tenant: tenant.ID, Key: key, Operation: "getPet", Outcome: "ok", Charged: true, Hour: hour, Requests: 1200},
		{Tenant: tenant.ID, Key: key, Operation: "listPets", Outcome: "ok", Charged: true, Hour: hour, Requests: 5},
	}, nil))
	got := s.want(200, `"requests": 1200`, "GET /usage/deprecated", "")
	if !strings.Contains(got.text, `"daysLeft": 2`) || strings.Contains(got.text, "listPets") {
		t.Errorf("%s", got.text)
	}
}

// Minutes are of one environment, and begin with the whole minute of since.
func TestMinutes(t *testing.T) {
	s := newSite(t, testkit.SQLite(t))
	s.newKey()
	tenant := must.Get[keystore.Tenant](t)(s.store.Tenant(t.Context(), "acme"))
	s.now = s.now.Truncate(time.Minute).Add(30 * time.Second)
	at := instant.Of(s.now).Add(-time.Minute).Truncate(time.Minute)
	used := usage.Minutes{Tenant: tenant.ID, Hour: at.Truncate(time.Hour), IsTest: true}
	used.Attempts[at.Sub(used.Hour)/time.Minute] = 3
	r := keystore.Registration{ID: "gw-1", Incarnation: "a"}
	r.Generation = must.Get[int64](t)(s.store.Register(t.Context(), r, nil))
	must.Do(t, usage.Of(s.store).AddUsage(t.Context(), r, 1, nil, []usage.Minutes{used}))
	s.want(200, "[]", "GET /tenants/acme/usage/minutes?since=1m", "")
	s.want(200, `"start": "`+at.String()+`"`, "GET /tenants/acme/usage/minutes?since=1m&environment=test", "")
}

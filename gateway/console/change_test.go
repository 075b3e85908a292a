package console

import (
	"database/sql"
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/keystore/lists"
	"petgate/shared/keystore/sessions"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// populated adds a tenant with two keys.
func (s *site) populated() (t keystore.Tenant, keys []keystore.Key, tokens []string) {
	s.Helper()
	t, _, err := s.operator.CreateTenant(s.Context(), keystore.TenantSpec{Name: "acme", Plan: "free"})
	for range 2 {
		var k keystore.Key
		var token string
		if err == nil {
			k, token, _, err = s.operator.CreateKey(s.Context(), keystore.KeySpec{Tenant: t.ID})
		}
		keys, tokens = append(keys, k), append(tokens, token)
	}
	must.Do(s, err)
	return t, keys, tokens
}

// newTenant creates a tenant.
func (s *site) newTenant(spec keystore.TenantSpec) keystore.Tenant {
	s.Helper()
	return must.First[keystore.Tenant](s)(s.operator.CreateTenant(s.Context(), spec))
}

func (s *site) lastEvent() keystore.Event {
	s.Helper()
	events, err := lists.Of(s.operator).FindEvents(s.Context(), lists.EventFilter{}, 0, 1)
	if err != nil || len(events) == 0 {
		s.Fatalf("the last event: %v, %v", events, err)
	}
	return events[0]
}

// A mistake in a form changes nothing, and the page names it.
func TestMistakes(t *testing.T) {
	s := newSite(t)
	tenant, keys, _ := s.populated()
	b := s.signIn(sessions.ConsoleInvitation{})
	at, key := "/console/tenants/"+tenant.ID.String(), "/console/keys/"+keys[0].ID.String()
	before := s.lastEvent().ID
	for _, c := range []struct {
		path, body string
		status     int
		says       string
	}{
		{
			"/console/tenants", "name=acme&plan=free", 422,
			"<p class=\"lines\">Already exists: a tenant named &#34;acme&#34;; choose another name.</p>",
		},
		{"/console/tenants", "name=&plan=free", 422, "Name: it is missing: The tenant&#39;s name; must be unique."},
		{"/console/tenants", "name=x&plan=nothing", 404, "There is no plan"},
		{"/console/tenants", "name=x&plan=free&day=many", 422, "Per day: &#34;many&#34; is not a whole number"},
		{"/console/tenants/nobody/suspend", "sure=yes", 404, "<p class=\"lines\">There is no tenant &#34;nobody&#34;.</p>"},
		{at + "/limits", "", 422, "Give at least one value"},
		{at + "/keys", "name=x", 422, "choose at least one"},
		{at + "/keys", "name=x&scopes=pets:read&expires=2020-01-01", 422, "is in the past"},
		{key + "/update", "was-scopes=pets:read", 422, "choose at least one"},
		{key + "/update", "name=default&was-name=default", 422, "Give at least one value"},
		{"/console/keys/nothing/revoke", "sure=yes", 404, "&#34;nothing&#34; is not an ID"},
		{"/console/keys/key_0000000000000000/revoke", "sure=yes", 404, "There is no key"},
		{"/console/bans", "key=nothing&for=0&reason=", 422, "\nFor: &#34;0&#34; is too short: use 1s or more.\nReason: "},
		{"/console/plans/update", "plan=free", 422, "Give at least one value"},
		{"/console/plans", "name=%zz", 400, "cannot be read"},
		{"/console/tenants", "name=pto_" + strings.Repeat("a", 38), 400, "No field of this form is for a token"},
		{"/console/tenants", "name=%ff&plan=free", 422, "not text"},
		{"/console/tenants/%ff/suspend", "sure=yes", 400, "not text"},
		{"/console/tenants/%00/suspend", "sure=yes", 400, "not text"},
	} {
		if status, _, page := s.send(b, "POST", c.path, c.body); status != c.status || !strings.Contains(page, c.says) {
			t.Errorf("%s %s: %d, want %d and %q in\n%s", c.path, c.body, status, c.status, c.says, page)
		} else if status != 400 && !strings.Contains(page, ">Back to the form</a>") {
			t.Errorf("%s %s: the page has no link to the form:\n%s", c.path, c.body, page)
		}
	}
	_, _, page := s.send(b, "POST", at+"/keys", "name=x")
	s.checkPage("the page of a mistake", 422, 422, page, `<a href="`+at+`">Back to the form</a>`)
	_, _, page = s.send(b, "POST", "/console/bans", "key=nothing")
	s.checkPage("the page of a mistake", 422, 422, page, `<a href="/console/bans">Back to the form</a>`)
	if s.lastEvent().ID != before {
		t.Error("a mistake has changed something")
	}
}

// A gateway that has not applied the change is named with the cure, and the page does not wait for
// one that has been silent for long.
func TestUnconfirmed(t *testing.T) {
	s := newSite(t)
	tenant, _, _ := s.populated()
	r := keystore.Registration{ID: "gw-7", Incarnation: "a", AdminAddress: "10.0.0.7:9090"}
	must.Get[int64](t)(s.operator.Register(t.Context(), r, nil))
	must.Get[sql.Result](t)(s.migrated().Exec(`UPDATE gateways SET seen_at = 1`))
	b := s.signIn(sessions.ConsoleInvitation{})
	_, header, _ := s.send(b, "POST", "/console/tenants/"+tenant.ID.String()+"/suspend", "sure=yes")
	s.wants(b, header.Get("Location"), 200, "Suspended tenant acme.", "confirmed by only 0 of 1 gateways",
		"gw-7 (10.0.0.7)", "may still serve this tenant", "keyadmin gateway forget")
	s.wants(
		s.signIn(sessions.ConsoleInvitation{}), header.Get("Location"), 200, "!gw-7 (10.0.0.7)",
	) // another session does not see the note
}

// No GET changes anything: neither of the pages, nor to the addresses of forms.
func TestGetChangesNothing(t *testing.T) {
	s := newSite(t)
	tenant, keys, _ := s.populated()
	b := s.signIn(sessions.ConsoleInvitation{})
	before := rowsOf(t, s.migrated())
	for _, path := range s.formPaths(tenant, keys[0]) {
		s.send(b, "GET", path+"?sure=yes&name=new&plan=pro&minute=400&for=1h&reason=scraping", "")
	}
	for _, path := range paths(s.console.routes, tenant, keys[0]) {
		s.send(b, "GET", path+"?sure=yes", "")
		s.send(b, "HEAD", path+"?sure=yes", "")
	}
	if after := rowsOf(t, s.migrated()); after != before {
		t.Errorf("a GET has changed the database:\n%s\nbefore:\n%s", after, before)
	}
}

// paths returns the paths of all routes.
func paths(routes []string, t keystore.Tenant, k keystore.Key) (paths []string) {
	fill := strings.NewReplacer("{tenant}", t.ID.String(), "{key}", k.ID.String(), "{$}", "")
	for _, route := range routes {
		if _, path, hasMethod := strings.Cut(route, " "); hasMethod {
			paths = append(paths, fill.Replace(path))
		}
	}
	return paths
}

// rowsOf writes out the tables that the console can change.
func rowsOf(t *testing.T, db *database.DB) string {
	t.Helper()
	var text strings.Builder
	for _, table := range []string{
		"plans", "tenants", "tenant_keys", "bans", "events", "gateways",
		"console_sessions", "quota_records", "lost_refusals",
	} {
		rows, err := db.Queryx("SELECT * FROM " + table)
		must.Do(t, err)
		for rows.Next() {
			fmt.Fprintln(&text, table, must.Get[[]any](t)(rows.SliceScan()))
		}
		must.Do(t, rows.Err())
	}
	return text.String()
}

var tokenInPage = regexp.MustCompile(`ptg_(?:live|test)_[0-9A-Za-z]{38}`)

// A token is in the page that creates it and nowhere else: not in another page, an address, the log
// or the database.
func TestTokenIsShownOnce(t *testing.T) {
	s := newSite(t)
	tenant, keys, tokens := s.populated()
	b := s.signIn(sessions.ConsoleInvitation{})
	for _, f := range []struct{ path, body string }{
		{"/console/tenants/" + tenant.ID.String() + "/keys", "name=fresh&scopes=pets:read"},
		{"/console/keys/" + keys[0].ID.String() + "/rotate", "sure=yes"},
	} {
		status, header, page := s.send(b, "POST", f.path, f.body)
		found := tokenInPage.FindAllString(page, -1)
		if status != 200 || len(found) != 1 || header.Get("Cache-Control") != "no-store" ||
			header.Get("Location") != "" {
			t.Fatalf("%s: %d with the tokens %v and the header %v", f.path, status, found, header)
		}
		tokens = append(tokens, found[0])
	}
	// A rotation that is repeated shows no token.
	_, header, page := s.send(b, "POST", "/console/keys/"+keys[0].ID.String()+"/rotate", "sure=yes")
	everything := page + header.Get("Location") + s.log.String() + rowsOf(t, s.migrated())
	all := must.Get[[]keystore.Key](t)(keystore.Collect(lists.Of(s.operator).Keys(t.Context(), tenant.ID)))
	seen := map[string]bool{}
	for _, k := range all {
		for _, path := range paths(s.console.routes, tenant, k) {
			if !seen[path] {
				seen[path] = true
				_, header, page := s.send(b, "GET", path, "")
				everything += page + fmt.Sprint(header)
			}
		}
	}
	for _, token := range tokens {
		for i := len("ptg_live_"); i+8 <= len(token)-6; i++ {
			if piece := token[i : i+8]; strings.Contains(everything, piece) {
				t.Errorf("the piece %s of a token is outside of the page that creates it", piece)
				break
			}
		}
	}
}

// Loading the page with a new token again creates no second key. A form that had a mistake can be
// sent again.
func TestFormIsCarriedOutOnce(t *testing.T) {
	s := newSite(t)
	tenant, _, _ := s.populated()
	b := s.signIn(sessions.ConsoleInvitation{})
	at := "/console/tenants/" + tenant.ID.String()
	_, _, page := s.send(b, "GET", at, "")
	once := regexp.MustCompile(`name="once" value="([0-9A-Z]+)"`).FindStringSubmatch(page)
	if once == nil {
		t.Fatalf("the form has no name:\n%s", page)
	}
	for i, want := range []int{422, 200, 409, 409} {
		body := "name=ci&scopes=pets:read&once=" + once[1]
		if i == 0 {
			body = "name=ci&once=" + once[1]
		}
		if status, _, page := s.send(b, "POST", at+"/keys", body); status != want {
			t.Errorf("time %d: %d, want %d\n%s", i, status, want, page)
		}
	}
	if keys, err := keystore.Collect(lists.Of(s.operator).Keys(t.Context(), tenant.ID)); err != nil || len(keys) != 3 {
		t.Errorf("%d keys, want 3: %v", len(keys), err)
	}
}

var nextPage = regexp.MustCompile(`<a href="([^"]+)" rel="next">`)

// walk reads a list page by page, and returns what the pattern finds.
func (s *site) walk(b *http.Client, path string, pattern *regexp.Regexp) (found map[string]bool, pages int) {
	s.Helper()
	found = map[string]bool{}
	for ; path != ""; pages++ {
		status, _, page := s.send(b, "GET", path, "")
		if status != 200 {
			s.Fatalf("%s: %d", path, status)
		}
		for _, match := range pattern.FindAllStringSubmatch(page, -1) {
			found[match[1]] = true
		}
		path = ""
		if nextPage.MatchString(page) {
			path = html.UnescapeString(nextPage.FindStringSubmatch(page)[1])
		}
	}
	return found, pages
}

// Lists have pages, and are searched by the database.
func TestLists(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, databaseURL string) {
		s := newSiteOn(t, databaseURL)
		b := s.signIn(sessions.ConsoleInvitation{ReadOnly: true})
		s.wants(b, "/console/bans?after=x", 400)
		s.wants(b, "/console/bans?tenant=none", 404)
		var edits keystore.Edits
		for i := range 120 {
			made := keystore.Tenant{Name: fmt.Sprintf("tenant-%03d", i), Plan: "free"}
			edits.Tenants = append(edits.Tenants, keystore.Edit[keystore.Tenant]{After: made})
		}
		must.Get[keystore.Change](t)(
			s.operator.Apply(t.Context(), func(keystore.State) (keystore.Edits, error) { return edits, nil }),
		)
		name := regexp.MustCompile(`>tenant-(\d+)<`)
		if seen, pages := s.walk(b, "/console/tenants", name); pages != 3 || len(seen) != 120 {
			t.Errorf("%d tenants in %d pages, want 120 in 3", len(seen), pages)
		}
		if seen, pages := s.walk(b, "/console/tenants?search=NT-0", name); pages != 2 || len(seen) != 100 {
			t.Errorf("the search finds %d tenants in %d pages, want 100 in 2", len(seen), pages)
		}
		key := keystore.KeySpec{}
		must.Do(t, s.db.Get(&key.Tenant, "SELECT id FROM tenants LIMIT 1"))
		for range pageRows + 1 {
			made, _, _, err := s.operator.CreateKey(t.Context(), key)
			must.Do(t, err)
			ban := keystore.Ban{Key: made.ID, Until: instant.Of(time.Now().Add(time.Hour)), Reason: "scraping"}
			must.First[keystore.Ban](t)(s.operator.AddBan(t.Context(), ban))
		}
		s.wants(b, "/console/bans", 200, "51 keys are banned.")
		if seen, pages := s.walk(b, "/console/bans",
			regexp.MustCompile(`data-title="Key"><a href="([^"]+)"`)); pages != 2 ||
			len(seen) != pageRows+1 {
			t.Errorf("%d bans in %d pages, want 51 in 2", len(seen), pages)
		}
		event := regexp.MustCompile(`data-title="Event" class="number">(\d+)<`)
		if seen, _ := s.walk(b, "/console/audit", event); len(seen) != int(s.lastEvent().ID) {
			t.Errorf("the audit log has %d events, want %d", len(seen), s.lastEvent().ID)
		}
		s.wants(b, "/console/tenants?search=%3Cnobody%3E", 200, "No tenant has “&lt;nobody&gt;” in its name",
			"0 of 120 tenants.")
	})
}

// A form changes only what its sender has changed. It does not undo what another person has done
// since its page was opened.
func TestTwoPeopleChangeAKey(t *testing.T) {
	s := newSite(t)
	_, keys, _ := s.populated()
	at := "/console/keys/" + keys[0].ID.String()
	b := s.signIn(sessions.ConsoleInvitation{})
	block := netip.MustParsePrefix("203.0.113.0/24")
	restrict := func(k *keystore.Key) {
		k.Allow = []netip.Prefix{block, netip.MustParsePrefix("::/0")}
		k.ExpiresAt = instant.Of(time.Now()).Add(time.Hour)
	}
	_, _, page := s.send(b, "GET", at, "")
	must.First[keystore.Key](t)(s.operator.UpdateKey(t.Context(), keys[0].ID, restrict))
	send := func(page string, edit url.Values) keystore.Key {
		t.Helper()
		fields := url.Values{}
		for _, was := range regexp.MustCompile(`name="was-([a-z]+)" value="([^"]*)"`).FindAllStringSubmatch(page, -1) {
			fields.Add("was-"+was[1], html.UnescapeString(was[2]))
		}
		for _, name := range []string{"name", "scopes", "allow", "expires", "minute", "day"} {
			fields[name] = slices.Clone(fields["was-"+name])
		}
		maps.Copy(fields, edit)
		if status, _, page := s.send(b, "POST", at+"/update", fields.Encode()+"&sure=yes"); status != 303 {
			t.Fatalf("%v: %d\n%s", fields, status, page)
		}
		return must.Get[keystore.Key](t)(s.operator.Key(t.Context(), keys[0].ID))
	}
	k := send(page, url.Values{"name": {"renamed"}})
	if k.Name != "renamed" || len(k.Allow) != 2 || k.ExpiresAt == 0 || k.Scopes != keys[0].Scopes {
		t.Errorf("the form has undone another change: %+v", k)
	}
	_, _, page = s.send(b, "GET", at, "")
	k = send(page,
		url.Values{"allow": {block.String() + "\r\n::/0"}, "scopes": {"pets:read"}, "minute": {"7"}, "day": {"70"}})
	if k.Scopes == keys[0].Scopes || len(k.Allow) != 2 || k.Limits != (plan.Limits{Minute: 7, Day: 70}) {
		t.Errorf("with other scopes and limits: %+v", k)
	}
	_, _, page = s.send(b, "GET", at, "")
	k = send(page, url.Values{"allow": {""}, "expires": {""}, "minute": {""}, "day": {""}})
	if len(k.Allow) != 0 || k.ExpiresAt != 0 || k.Limits.IsSet() || k.Name != "renamed" {
		t.Errorf("without an allow-list, an expiry and limits: %+v", k)
	}
}

// A token that somebody pastes into a wrong field or into an address is in no page, no log and not
// in the database.
func TestPastedToken(t *testing.T) {
	s := newSite(t)
	tenant, keys, tokens := s.populated()
	b, paste := s.signIn(sessions.ConsoleInvitation{}), tokens[0]
	fields := url.Values{"token": {paste}}
	for _, name := range []string{
		"key", "search", "tenant", "actor", "kind", "since", "from", "operation", "after",
		"usage", "name", "plan", "minute", "for", "reason", "grace",
	} {
		fields.Set(name, " "+paste+" ")
	}
	var everything strings.Builder
	add := func(method, path, body string, want int) {
		t.Helper()
		status, header, page := s.send(b, method, path, body)
		if status != want {
			t.Errorf("%s %s: %d, want %d\n%s", method, path, status, want, page)
		}
		fmt.Fprintln(&everything, header, page)
	}
	for _, path := range s.formPaths(tenant, keys[0]) {
		add("POST", path, fields.Encode()+"&sure=yes", 400)
	}
	for _, path := range []string{
		"", "tenants", "tenants/" + tenant.ID.String(), "keys/" + keys[0].ID.String(),
		"bans", "audit", "explain", "nothing",
	} {
		add("GET", "/console/"+path+"?"+fields.Encode(), "", 400)
	}
	for _, path := range []string{"tenants", "keys", "nothing"} {
		add("GET", "/console/"+path+"/"+paste, "", 400)
	}
	everything.WriteString(s.log.String() + rowsOf(t, s.migrated()))
	if at := strings.Index(everything.String(), paste[len("ptg_live_"):len(paste)-6]); at >= 0 {
		t.Errorf("the token is repeated: %.300s", everything.String()[max(0, at-200):])
	}
}

package console

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/quota"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/keystore/lists"
	"petgate/shared/keystore/schema"
	"petgate/shared/keystore/sessions"
	"petgate/shared/operate"
	"petgate/shared/service"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

const adminAddress = "10.0.0.1:9090"

// site is an admin port with a console, and an operator who can use its database.
type site struct {
	*testing.T
	url      string
	console  *Console
	handler  http.Handler // of the admin port
	database string       // its URL
	db       *database.DB // opened by the console
	operator *keystore.Store
	log      *strings.Builder
}

// A gateway of these tests answers on a busy machine, too.
func init() {
	operate.LiveWithin, operate.AskWithin = time.Minute, time.Minute
	figuresWithin, figuresFor, dutyCycle = time.Minute, 0, 0
}

func newSite(t *testing.T) *site {
	t.Helper()
	return newSiteOn(t, testkit.SQLite(t))
}

func newSiteOn(t *testing.T, databaseURL string) *site {
	t.Helper()
	return newSiteAt(t, databaseURL, time.Time{})
}

// newSiteAt is newSiteOn at a time that stays. Zero: the system's time.
func newSiteAt(t *testing.T, databaseURL string, now time.Time) *site {
	t.Helper()
	clock := time.Now
	if !now.IsZero() {
		clock = func() time.Time { return now }
	}
	s := &site{T: t, database: databaseURL, log: &strings.Builder{}}
	s.db = s.migrated()
	s.operator = keystore.New(s.db, clock, nil, "keyadmin:alice")
	log, own := slog.New(slog.NewTextHandler(s.log, nil)), s.operator.As("gw-1")
	pages, err := New(Config{
		Gateway: "gw-1", Address: adminAddress, Store: own, Forms: own, Log: log, Clock: clock,
		Quota: func(context.Context, id.Tenant) (v quota.Verdict, err error) { return v, nil },
		Problems: func() []service.Problem {
			return []service.Problem{{Name: "quotas", Detail: "Redis <does> not answer", Serving: true}}
		},
	})
	must.Do(t, err)
	pages.watch.every = 0
	admin := service.NewAdmin(log, service.Settings{}, "")
	admin.Handle(Home, pages)
	server := httptest.NewServer(admin)
	t.Cleanup(server.Close)
	t.Cleanup(pages.Close)
	s.url, s.handler, s.console = server.URL, admin, pages
	return s
}

// migrated opens the database, and creates it if its file is missing.
func (s *site) migrated() *database.DB {
	s.Helper()
	return testkit.Open(s, s.database, schema.Migrations)
}

func (s *site) code(i sessions.ConsoleInvitation) string {
	s.Helper()
	i.Address = adminAddress
	if i.Valid == 0 {
		i.Valid = time.Minute
	}
	if i.Lasts == 0 {
		i.Lasts = time.Hour
	}
	return must.First[string](s)(sessions.Of(s.operator).InviteToConsole(s.Context(), i))
}

// browser keeps cookies, and follows no redirects.
func browser() *http.Client { return asBrowser(&http.Client{}) }

func asBrowser(c *http.Client) *http.Client {
	c.Jar, _ = cookiejar.New(nil) // it never fails without options
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c
}

// send sends a request. A body makes it a form. Header fields follow in pairs.
func (s *site) send(
	b *http.Client, method, path, body string, fields ...string,
) (status int, header http.Header, page string) {
	s.Helper()
	if body != "" {
		fields = append(fields, "Content-Type", "application/x-www-form-urlencoded")
	}
	response, page := testkit.Send(s, b, method, s.url+path, "", body, fields...)
	return response.StatusCode, response.Header, page
}

// signIn opens a session in a new browser.
func (s *site) signIn(i sessions.ConsoleInvitation) *http.Client {
	s.Helper()
	b := browser()
	if status, header, _ := s.send(b, "POST", "/console/login", "code="+s.code(i)); status != 303 ||
		header.Get("Location") != "/console/" {
		s.Fatalf("signing in: %d to %q", status, header.Get("Location"))
	}
	return b
}

// request returns a request of the browser's session that is served without a connection.
func (s *site) request(ctx context.Context, b *http.Client, path string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	for _, cookie := range b.Jar.Cookies(r.URL) {
		r.AddCookie(cookie)
	}
	return r
}

func TestLinkOpensOneSession(t *testing.T) {
	s := newSite(t)
	code := s.code(sessions.ConsoleInvitation{})
	first, second := browser(), browser()
	status, header, _ := s.send(first, "POST", "/console/login", "code="+code)
	if status != 303 {
		t.Fatalf("the first use: %d", status)
	}
	cookie, attributes, _ := strings.Cut(header.Get("Set-Cookie"), "; ")
	if attributes != "Path=/console; HttpOnly; SameSite=Strict" { // without Max-Age: it ends with the browser
		t.Errorf("the cookie %q has the attributes %q", cookie, attributes)
	}
	status, _, page := s.send(first, "GET", "/console/", "")
	if status != 200 || !strings.Contains(page, "keyadmin:alice") ||
		!strings.Contains(page, "Redis &lt;does&gt; not answer") {
		t.Errorf("the overview: %d\n%s", status, page)
	}
	stolen, _, err := sessions.Of(s.operator).InviteToConsole(t.Context(), sessions.ConsoleInvitation{
		Address: "10.0.0.66:9090", Valid: time.Minute, Lasts: time.Hour,
	})
	must.Do(t, err)
	if status, _, _ := s.send(second, "POST", "/console/login", "code="+stolen); status != 403 {
		t.Errorf("the code of a link to another gateway: %d", status)
	}
	status, header, page = s.send(second, "POST", "/console/login", "code="+code)
	if status != 403 || header.Get("Set-Cookie") != "" || !strings.Contains(page, "works once, within a minute") {
		t.Errorf("the second use: %d, cookie %q", status, header.Get("Set-Cookie"))
	}
	if status, _, _ := s.send(second, "GET", "/console/", ""); status != 303 {
		t.Errorf("the second browser gets %d", status)
	}
	if log := s.log.String(); strings.Contains(log, code) || !strings.Contains(log, " actor=keyadmin:alice until=") {
		t.Errorf("the log has the code, or not who has signed in:\n%s", log)
	}
	events, err := lists.Of(s.operator).FindEvents(t.Context(), lists.EventFilter{}, 0, 2)
	if err != nil || len(events) != 2 || events[1].Kind != keystore.ConsoleOpened ||
		events[0].Actor != "keyadmin:alice" {
		t.Errorf("the events are %+v, %v", events, err)
	}
}

func TestCookieOverTLS(t *testing.T) {
	s := newSite(t)
	server := httptest.NewTLSServer(s.handler)
	t.Cleanup(server.Close)
	s.url = server.URL
	b := asBrowser(server.Client())
	_, header, _ := s.send(b, "POST", "/console/login", "code="+s.code(sessions.ConsoleInvitation{}))
	cookie, attributes, _ := strings.Cut(header.Get("Set-Cookie"), "; ")
	const want = "Path=/console; HttpOnly; Secure; SameSite=Strict"
	if !strings.HasPrefix(cookie, "__Secure-") || attributes != want {
		t.Errorf("the cookie %q has the attributes %q", cookie, attributes)
	}
	if status, _, _ := s.send(b, "GET", "/console/", ""); status != 200 {
		t.Errorf("with the cookie: %d", status)
	}
	name, token, _ := strings.Cut(cookie, "=")
	if status, _, _ := s.send(asBrowser(server.Client()), "GET", "/console/", "", "Cookie",
		strings.TrimPrefix(name, "__Secure-")+"="+token); status != 303 {
		t.Errorf("a cookie that may have come without TLS: %d", status)
	}
}

// Consoles at two ports of one host, such as forwarded ones, have sessions of their own.
func TestTwoConsolesOnOneHost(t *testing.T) {
	one, two, b := newSite(t), newSite(t), browser()
	for _, s := range []*site{one, two} {
		if status, _, _ := s.send(b, "POST", "/console/login",
			"code="+s.code(sessions.ConsoleInvitation{})); status != 303 {
			t.Fatalf("signing in: %d", status)
		}
	}
	for _, s := range []*site{one, two} {
		if status, _, _ := s.send(b, "GET", "/console/", ""); status != 200 {
			t.Errorf("with two sessions: %d", status)
		}
		s.send(b, "POST", "/console/logout", "")
	}
}

// Nothing but an open session sees a page, and a session ends when its row does.
func TestNoSession(t *testing.T) {
	s := newSite(t)
	u, _ := url.Parse(s.url) // it is valid
	name := "petgate-console-" + u.Port()
	for _, cookie := range []string{
		"", name + "=", name + "=AAAAAAAAAAAAAAAAAAAAAAAAAA", "__Secure-" + name + "=x",
		name + "=" + s.code(sessions.ConsoleInvitation{}),
	} {
		for _, method := range []string{"GET", "POST", "DELETE"} {
			for _, path := range []string{"/console/", "/console/logout", "/console/nothing"} {
				status, header, page := s.send(browser(), method, path, "", "Cookie", cookie)
				isAway := status == 303 && strings.HasPrefix(header.Get("Location"), "/console/login") || status == 405
				if !isAway || strings.Contains(page, "gw-1") {
					t.Errorf("%s %s with cookie %q: %d to %q", method, path, cookie, status, header.Get("Location"))
				}
			}
		}
	}
	s.wants(browser(), "/console/login?ended", 200, "Your session has ended.")
	b := s.signIn(sessions.ConsoleInvitation{})
	must.Get[int64](t)(sessions.Of(s.operator).EndConsoles(t.Context()))
	if status, header, _ := s.send(b, "GET", "/console/", ""); status != 303 ||
		header.Get("Location") != "/console/login?ended" {
		t.Errorf("a session whose row is removed: %d to %q", status, header.Get("Location"))
	}
}

func TestSignOut(t *testing.T) {
	s := newSite(t)
	b := s.signIn(sessions.ConsoleInvitation{ReadOnly: true})
	u, _ := url.Parse(s.url + "/console/") // it is valid
	cookies := b.Jar.Cookies(u)
	if status, _, _ := s.send(b, "POST", "/console/logout", ""); status != 303 || len(b.Jar.Cookies(u)) > 0 {
		t.Fatalf("signing out: %d, the browser keeps %v", status, b.Jar.Cookies(u))
	}
	if status, _, _ := s.send(browser(), "GET", "/console/", "", "Cookie", cookies[0].String()); status != 303 {
		t.Errorf("the cookie of an ended session: %d", status)
	}
	events, err := lists.Of(s.operator).FindEvents(t.Context(), lists.EventFilter{}, 0, 1)
	if err != nil || events[0].Kind != keystore.ConsoleEnded || events[0].Actor != "keyadmin:alice" {
		t.Errorf("the events are %+v, %v", events, err)
	}
}

// After a restore, the console uses the new file: not the connections to the removed one, whose
// sessions and events would be lost.
func TestRestoredDatabase(t *testing.T) {
	s := newSite(t)
	b := s.signIn(sessions.ConsoleInvitation{})
	path := strings.TrimPrefix(s.database, "sqlite:")
	for _, suffix := range []string{"-wal", "-shm", ""} {
		if err := os.Rename(path+suffix, path+".away"+suffix); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	if status, _, page := s.send(b, "GET", "/console/", ""); status != 503 || !strings.Contains(page, "was removed") {
		t.Errorf("without its file: %d\n%s", status, page)
	}
	if status, _, page := s.send(browser(), "POST", "/console/login", "code=x"); status != 503 ||
		!strings.Contains(page, "was removed") {
		t.Errorf("signing in without the file: %d\n%s", status, page)
	}
	s.operator = keystore.New(s.migrated(), nil, nil, "keyadmin:alice")
	if status, header, _ := s.send(b, "GET", "/console/", ""); status != 303 ||
		header.Get("Location") != "/console/login?ended" {
		t.Errorf("a session that the new file does not have: %d to %q", status, header.Get("Location"))
	}
	if status, _, _ := s.send(s.signIn(sessions.ConsoleInvitation{}), "GET", "/console/", ""); status != 200 {
		t.Errorf("a session of the new file: %d", status)
	}
}

// Every response, of every kind, is protected from scripts of others, from frames and from caches.
func TestHeaders(t *testing.T) {
	s := newSite(t)
	tenant, keys, _ := s.populated()
	b := s.signIn(sessions.ConsoleInvitation{})
	check := func(what string, header http.Header) {
		if policy := header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'") ||
			strings.Contains(policy, "unsafe") {
			t.Errorf("%s: Content-Security-Policy %q", what, policy)
		}
		if header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Cache-Control") == "" ||
			header.Get("Referrer-Policy") != "same-origin" {
			t.Errorf("%s: %v", what, header)
		}
	}
	for _, path := range append(paths(s.console.routes, tenant, keys[0]), "/console/nothing") {
		_, header, page := s.send(b, "GET", path, "")
		check(path, header)
		isPage := strings.HasPrefix(header.Get("Content-Type"), "text/html")
		if isPage && (strings.Contains(page, "style=") || strings.Contains(page, "onclick")) {
			t.Errorf("%s has inline style or script", path)
		}
		if isCurrent := strings.Contains(page,
			`<a href="/console/" aria-current="page">`); isCurrent != (path == "/console/") {
			t.Errorf("%s is marked as the overview: %t", path, isCurrent)
		}
	}
	_, header, _ := s.send(b, "POST", "/console/tenants/"+tenant.ID.String()+"/suspend", "")
	check("a question", header)
	_, header, _ = s.send(b, "POST", "/console/tenants/"+tenant.ID.String()+"/suspend", "sure=yes")
	check("an answer", header)
}

// Pages that hold all their connections do not delay a form.
func TestFormsHaveConnections(t *testing.T) {
	s := newSite(t)
	b := s.signIn(sessions.ConsoleInvitation{})
	forms := must.Get[*database.DB](t)(database.Open(s.database))
	defer forms.Close()
	s.console.cfg.Forms = keystore.New(forms, nil, nil, "gw-1")
	s.db.SetMaxOpenConns(1)
	held, err := s.db.Connx(t.Context())
	must.Do(t, err)
	defer held.Close()
	if status, _, page := s.send(b, "POST", Home+"logout", ""); status != 303 {
		t.Errorf("%d: %s", status, page)
	}
}

// proxied is the status of a request that comes from an address, with the fields that a proxy sets.
func (s *site) proxied(from, method, path, form string, fields ...string) (status int, body string) {
	s.Helper()
	r := httptest.NewRequestWithContext(s.Context(), method, "http://localhost"+path, strings.NewReader(form))
	r.RemoteAddr = from
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// A person whom an identity proxy names needs no link. Only the proxy is believed, and the groups
// decide what the person may do.
func TestIdentityProxy(t *testing.T) {
	s := newSite(t)
	tenant, keys, _ := s.populated()
	const proxy, user, groups = "10.1.0.7:4000", "X-Forwarded-User", "X-Forwarded-Groups"
	s.console.cfg.Proxies = Proxies{
		From: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, UserHeader: user, GroupsHeader: groups,
		Roles: map[string]sessions.Role{
			"staff":    sessions.RoleRead,
			"support":  sessions.RoleKeys,
			"platform": sessions.RoleAdmin,
		},
	}
	for _, test := range []struct {
		what, from string
		fields     []string
		status     int
		text       string
	}{
		{"an admin", proxy, []string{user, "anna@example.com", groups, "staff, platform"}, 200, "Signed in as console:anna@example.com"},
		{
			"an admin, the larger role first", proxy,
			[]string{user, "anna", groups, "platform, staff"},
			200,
			"Signed in as console:anna </p>",
		},
		{"a reader", proxy, []string{user, "bob", groups, "staff"}, 200, "read-only"},
		{"groups in two fields", proxy, []string{user, "bob", groups, "x", groups, "support"}, 200, "keys and bans only"},
		{"another address", "10.2.0.7:4000", []string{user, "anna", groups, "platform"}, 303, ""},
		{"no name", proxy, []string{groups, "platform"}, 303, ""},
		{"two names", proxy, []string{user, "bob", user, "anna", groups, "platform"}, 403, "name you once"},
		{"an empty name", proxy, []string{user, " ", groups, "platform"}, 403, "name you once"},
		{"no group with a role", proxy, []string{user, "eve", groups, "sales"}, 403, "none of the groups of eve"},
	} {
		if status, body := s.proxied(test.from, "GET", Home, "", test.fields...); status != test.status ||
			!strings.Contains(body, test.text) {
			t.Errorf("%s: %d, want %d and %q in\n%s", test.what, status, test.status, test.text, body)
		}
	}

	admin := []string{user, "anna@example.com", groups, "platform"}
	if status, body := s.proxied(proxy, "POST", tenantPath(tenant.ID.String())+"/suspend", "sure=yes",
		admin...); status != 303 {
		t.Fatalf("a change: %d\n%s", status, body)
	}
	if e := s.lastEvent(); e.Actor != "console:anna@example.com" || e.Kind != "tenant.suspended" {
		t.Errorf("the change is %s by %s", e.Kind, e.Actor)
	}
	if status, body := s.proxied(proxy, "GET", Home+"audit?actor=anna@example.com", "", admin...); status != 200 ||
		!strings.Contains(body, ">tenant.suspended<") {
		t.Errorf("the audit log by the name alone: %d\n%s", status, body)
	}
	if status, _ := s.proxied(proxy, "POST", tenantPath(tenant.ID.String())+"/resume", "sure=yes",
		append(admin, "Origin", "https://evil.example")...); status != 403 {
		t.Errorf("a form of a foreign page: %d", status)
	}

	// Every form needs at least the role that its kind of change needs.
	const ofKeys = "|bans|keys/K/update|keys/K/rotate|keys/K/revoke|keys/K/ban|keys/K/lift|" +
		"keys/K/disable|keys/K/enable|tenants/T/keys|"
	forms, says := 0, map[string]string{
		"staff":   "This session is read-only",
		"support": "This session may only change keys and bans",
	}
	for _, route := range s.console.routes {
		path, isForm := strings.CutPrefix(route, "POST "+Home)
		if !isForm || path == "login" || path == "logout" {
			continue
		}
		forms++
		name := strings.NewReplacer("{tenant}", "T", "{key}", "K").Replace(path)
		at := strings.NewReplacer("{tenant}", url.PathEscape(tenant.ID.String()), "{key}", keys[0].ID.String()).Replace(
			Home + path,
		)
		for group, mayBe := range map[string]bool{
			"staff": false, "support": strings.Contains(ofKeys, "|"+name+"|"),
			"platform": true,
		} {
			status, body := s.proxied(proxy, "POST", at, "", user, "bob", groups, group)
			if isRefused := status == http.StatusForbidden; isRefused == mayBe ||
				isRefused && !strings.Contains(body, says[group]) {
				t.Errorf("%s of %s: %d\n%s", name, group, status, body)
			}
		}
	}
	s.proxied(proxy, "POST", Home+"bans", "key="+keys[1].ID.String()+"&for=1h&reason=scraping&sure=yes", admin...)
	if status, body := s.proxied(proxy, "GET", Home+"bans", "", user, "bob", groups, "support"); status != 200 ||
		!strings.Contains(body, ">Lift<") {
		t.Errorf("those who may change keys cannot lift a ban: %d\n%s", status, body)
	}
	if forms < 14 {
		t.Errorf("only %d forms were tried", forms)
	}
}

package console

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"petgate/shared/keystore"
	"petgate/shared/keystore/lists"
	"petgate/shared/keystore/schema"
	"petgate/shared/keystore/sessions"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// proxied returns a site whose database can be cut off, and a store that cannot.
func proxied(t *testing.T) (*site, *testkit.Proxy, *keystore.Store) {
	t.Helper()
	u := must.Get[*url.URL](t)(url.Parse(testkit.Postgres(t)))
	direct := keystore.New(testkit.Open(t, u.String(), schema.Migrations), nil, nil, "keyadmin:alice")
	proxy := testkit.NewProxy(t, u.Host)
	u.Host = proxy.Addr
	return newSiteOn(t, u.String()), proxy, direct
}

// However the connection to the database breaks, the page says the truth about the change. No token
// is lost or shown in vain, and the same form does not make the change again.
func TestFormsKnowTheirOutcome(t *testing.T) {
	s, proxy, direct := proxied(t)
	tenant := must.First[keystore.Tenant](t)(
		direct.CreateTenant(t.Context(), keystore.TenantSpec{Name: "acme", Plan: "free"}),
	)
	b := s.signIn(sessions.ConsoleInvitation{})
	keys := func() int {
		return len(must.Get[[]keystore.Key](t)(keystore.Collect(lists.Of(direct).Keys(t.Context(), tenant.ID))))
	}
	path, outcomes := "/console/tenants/"+tenant.ID.String()+"/keys", map[string]int{}
	for _, mode := range []testkit.Cut{{}, {Delivered: true}, {ForEver: true}, {Delivered: true, ForEver: true}} {
		for k := 1; ; k++ {
			before := keys()
			mode.Trip = proxy.RoundTrips() + k
			proxy.CutAt(mode)
			body := fmt.Sprintf("name=ci&scopes=pets:read&once=%d-%t-%t", k, mode.Delivered, mode.ForEver)
			status, _, page := s.send(b, "POST", path, body)
			isCut := proxy.IsCut()
			proxy.CutAt(testkit.Cut{})
			proxy.Restore(t)
			made, tokens := keys() > before, tokenInPage.FindAllString(page, -1)
			isUnknown := strings.Contains(page, "The change may have been made")
			switch {
			case status == 200 && made && len(tokens) == 1:
			case status == 503 && !isUnknown && !made && len(tokens) == 0 &&
				strings.Contains(page, "Nothing was changed"):
			case status == 503 && isUnknown && mode.ForEver && len(tokens) == 1:
				if status, _, _ := s.send(b, "POST", path, body); (status == 409) != made || !made && status != 200 {
					t.Errorf("the change was made: %t; the same form again: %d", made, status)
				}
			default:
				t.Errorf("%+v: the change was made: %t; %d with %d tokens\n%s", mode, made, status, len(tokens), page)
			}
			for _, token := range tokens {
				if _, err := direct.KeyByToken(t.Context(), token); (err == nil) != made {
					t.Errorf("%+v: the change was made: %t; the token: %v", mode, made, err)
				}
			}
			outcomes[fmt.Sprintf("%d, unknown %t, made %t", status, isUnknown, made)]++
			if !isCut {
				break
			}
		}
	}
	if len(outcomes) != 4 {
		t.Errorf("not all outcomes have occurred: %v", outcomes)
	}
}

// While the database is away, a session that it has confirmed before shows live figures, and forms
// are closed.
func TestConsoleWithoutDatabase(t *testing.T) {
	s, proxy, _ := proxied(t)
	b, unknown := s.signIn(sessions.ConsoleInvitation{}), s.signIn(sessions.ConsoleInvitation{})
	s.busy("gw-2")
	left := s.signIn(sessions.ConsoleInvitation{})
	site := must.Get[*url.URL](t)(url.Parse(s.url + Home))
	cookies := append(left.Jar.Cookies(site), b.Jar.Cookies(site)...)
	s.send(left, "GET", Home, "")
	s.send(left, "POST", Home+"logout", "")
	if status, _, page := s.send(b, "GET", Home, ""); status != 200 || !strings.Contains(page, "gw-2") {
		t.Fatalf("%d\n%s", status, page)
	}
	proxy.Kill()
	f := func(b *http.Client, method, path string, want int, says ...string) {
		t.Helper()
		body := ""
		if method == "POST" {
			body = "name=acme&plan=free"
		}
		status, _, page := s.send(b, method, path, body)
		for _, text := range says {
			if status != want || !strings.Contains(page, text) {
				t.Errorf("%s %s: %d, want %d and %q in\n%s", method, path, status, want, text, page)
			}
		}
	}
	f(b, "GET", Home, 200, "The database is away", `data-title="Gateway"><span class="whole">gw-2</span></th>`,
		">50.0<", "Sign out")
	f(b, "GET", Home+"tenants", 503, "The database cannot be used", "Sign out")
	f(b, "POST", Home+"tenants", 503, "Forms are closed", "Nothing was changed")
	f(unknown, "GET", Home, 503, "The database cannot be used")
	s.console.cfg.Clock = func() time.Time { return time.Now().Add(2 * time.Hour) }
	f(b, "GET", Home, 503, "The database cannot be used") // the session would have ended
	s.console.cfg.Clock = time.Now
	proxy.Restore(t)
	must.Get[int64](t)(sessions.Of(s.operator).EndConsoles(t.Context()))
	f(b, "GET", Home, 303, "")
	proxy.Kill()
	for i, cookie := range cookies {
		status, _, _ := s.send(browser(), "GET", Home, "", "Cookie", cookie.String())
		must.Equal(t, status, 503, "the cookie of a session that was left or ended (%d)", i)
	}
}

// A browser that leaves a page cancels the page's statements. That says nothing about the database.
func TestBrowserLeaves(t *testing.T) {
	s := newSite(t)
	b := s.signIn(sessions.ConsoleInvitation{})
	s.log.Reset()
	ctx, leave := context.WithCancel(t.Context())
	leave()
	w := httptest.NewRecorder()
	s.console.ServeHTTP(w, s.request(ctx, b, Home+"tenants"))
	s.console.fail(w, &visit{hasLeft: func() bool { return true }}, keystore.ErrUnavailable)
	if s.log.Len() > 0 || w.Body.Len() > 0 {
		t.Errorf("it gets %q, and the log %q", w.Body, s.log)
	}
	s.console.fail(w, &visit{hasLeft: func() bool { return false }}, keystore.ErrUnavailable)
	if s.log.Len() == 0 || w.Code != http.StatusServiceUnavailable {
		t.Errorf("a browser that waits gets %d, and the log %q", w.Code, s.log)
	}
}

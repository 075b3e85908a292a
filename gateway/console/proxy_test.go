package console

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"petgate/shared/keystore"
)

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

// A person whom an identity proxy names needs no link. Only the proxy is believed, and the groups decide what the person may do.
func TestIdentityProxy(t *testing.T) {
	s := newSite(t)
	tenant, keys, _ := s.populated()
	const proxy, user, groups = "10.1.0.7:4000", "X-Forwarded-User", "X-Forwarded-Groups"
	s.console.cfg.Proxies = Proxies{
		From: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, UserHeader: user, GroupsHeader: groups,
		Roles: map[string]keystore.Role{"staff": keystore.RoleRead, "support": keystore.RoleKeys, "platform": keystore.RoleAdmin},
	}
	for _, test := range []struct {
		what, from string
		fields     []string
		status     int
		text       string
	}{
		{"an admin", proxy, []string{user, "anna@example.com", groups, "staff, platform"}, 200, "Signed in as console:anna@example.com"},
		{"an admin, the larger role first", proxy, []string{user, "anna", groups, "platform, staff"}, 200, "Signed in as console:anna </p>"},
		{"a reader", proxy, []string{user, "bob", groups, "staff"}, 200, "read-only"},
		{"groups in two fields", proxy, []string{user, "bob", groups, "x", groups, "support"}, 200, "keys and bans only"},
		{"another address", "10.2.0.7:4000", []string{user, "anna", groups, "platform"}, 303, ""},
		{"no name", proxy, []string{groups, "platform"}, 303, ""},
		{"two names", proxy, []string{user, "bob", user, "anna", groups, "platform"}, 403, "name you once"},
		{"an empty name", proxy, []string{user, " ", groups, "platform"}, 403, "name you once"},
		{"no group with a role", proxy, []string{user, "eve", groups, "sales"}, 403, "none of the groups of eve"},
	} {
		if status, body := s.proxied(test.from, "GET", Home, "", test.fields...); status != test.status || !strings.Contains(body, test.text) {
			t.Errorf("%s: %d, want %d and %q in\n%s", test.what, status, test.status, test.text, body)
		}
	}

	admin := []string{user, "anna@example.com", groups, "platform"}
	if status, body := s.proxied(proxy, "POST", tenantPath(tenant.ID.String())+"/suspend", "sure=yes", admin...); status != 303 {
		t.Fatalf("a change: %d\n%s", status, body)
	}
	if e := s.lastEvent(); e.Actor != "console:anna@example.com" || e.Kind != "tenant.suspended" {
		t.Errorf("the change is %s by %s", e.Kind, e.Actor)
	}
	if status, body := s.proxied(proxy, "GET", Home+"audit?actor=anna@example.com", "", admin...); status != 200 || !strings.Contains(body, ">tenant.suspended<") {
		t.Errorf("the audit log by the name alone: %d\n%s", status, body)
	}
	if status, _ := s.proxied(proxy, "POST", tenantPath(tenant.ID.String())+"/resume", "sure=yes", append(admin, "Origin", "https://evil.example")...); status != 403 {
		t.Errorf("a form of a foreign page: %d", status)
	}

	// Every form needs at least the role that its kind of change needs.
	const ofKeys = "|bans|keys/K/update|keys/K/rotate|keys/K/revoke|keys/K/ban|keys/K/lift|keys/K/disable|keys/K/enable|tenants/T/keys|"
	forms := 0
	for _, route := range s.console.routes {
		path, isForm := strings.CutPrefix(route, "POST "+Home)
		if !isForm || path == "login" || path == "logout" {
			continue
		}
		forms++
		name := strings.NewReplacer("{tenant}", "T", "{key}", "K").Replace(path)
		at := strings.NewReplacer("{tenant}", url.PathEscape(tenant.ID.String()), "{key}", keys[0].ID.String()).Replace(Home + path)
		for group, mayBe := range map[string]bool{"staff": false, "support": strings.Contains(ofKeys, "|"+name+"|"), "platform": true} {
			status, body := s.proxied(proxy, "POST", at, "", user, "bob", groups, group)
			if isRefused := status == http.StatusForbidden; isRefused == mayBe {
				t.Errorf("%s of %s: %d\n%s", name, group, status, body)
			}
		}
	}
	if forms < 14 {
		t.Errorf("only %d forms were tried", forms)
	}
}

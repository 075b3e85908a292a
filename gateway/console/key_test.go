package console

import (
	"fmt"
	"html"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/testkit/must"
)

// A form changes only what its sender has changed. It does not undo what another person has done since its page was opened.
func TestTwoPeopleChangeAKey(t *testing.T) {
	s := newSite(t)
	_, keys, _ := s.populated()
	at := "/console/keys/" + keys[0].ID.String()
	b := s.signIn(keystore.ConsoleInvitation{})
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
		for _, name := range []string{"name", "scopes", "allow", "expires"} {
			fields[name] = slices.Clone(fields["was-"+name])
		}
		maps.Copy(fields, edit)
		if status, _, page := s.send(b, "POST", at+"/update", fields.Encode()); status != 303 {
			t.Fatalf("%v: %d\n%s", fields, status, page)
		}
		return must.Get[keystore.Key](t)(s.operator.Key(t.Context(), keys[0].ID))
	}
	k := send(page, url.Values{"name": {"renamed"}})
	if k.Name != "renamed" || len(k.Allow) != 2 || k.ExpiresAt == 0 || k.Scopes != keys[0].Scopes {
		t.Errorf("the form has undone another change: %+v", k)
	}
	_, _, page = s.send(b, "GET", at, "")
	if k := send(page, url.Values{"allow": {block.String() + "\r\n::/0"}, "scopes": {"pets:read"}}); k.Scopes == keys[0].Scopes || len(k.Allow) != 2 {
		t.Errorf("with other scopes: %+v", k)
	}
	if k := send(page, url.Values{"allow": {""}, "expires": {""}}); len(k.Allow) != 0 || k.ExpiresAt != 0 || k.Name != "renamed" {
		t.Errorf("without an allow-list and an expiry: %+v", k)
	}
}

// A token that somebody pastes into a wrong field or into an address is in no page, no log and not in the database.
func TestPastedToken(t *testing.T) {
	s := newSite(t)
	tenant, keys, tokens := s.populated()
	b, paste := s.signIn(keystore.ConsoleInvitation{}), tokens[0]
	fields := url.Values{"token": {paste}}
	for _, name := range []string{"key", "search", "tenant", "actor", "kind", "since", "from", "operation", "after", "usage", "name", "plan", "minute", "for", "reason", "grace"} {
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
	for _, f := range formCases(tenant, keys[0], keys[1]) {
		add("POST", f.path, fields.Encode()+"&sure=yes", 400)
	}
	for _, path := range []string{"", "tenants", "tenants/" + tenant.ID.String(), "keys/" + keys[0].ID.String(), "bans", "audit", "explain", "nothing"} {
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

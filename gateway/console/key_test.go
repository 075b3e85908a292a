package console_test

import (
	"html"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"testing"
	"time"

	"petgate/shared/core/instant"
	"petgate/shared/keystore"
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
	if _, _, err := s.operator.UpdateKey(t.Context(), keys[0].ID, restrict); err != nil {
		t.Fatal(err)
	}
	send := func(page string, edit url.Values) keystore.Key {
		t.Helper()
		fields := url.Values{}
		for _, was := range regexp.MustCompile(`name="was-([a-z]+)" value="([^"]*)"`).FindAllStringSubmatch(page, -1) {
			fields.Add("was-"+was[1], html.UnescapeString(was[2]))
		}
		for _, name := range []string{"name", "scope", "allow", "expires"} {
			fields[name] = slices.Clone(fields["was-"+name])
		}
		maps.Copy(fields, edit)
		if status, _, page := s.send(b, "POST", at+"/update", fields.Encode()); status != 303 {
			t.Fatalf("%v: %d\n%s", fields, status, page)
		}
		k, err := s.operator.Key(t.Context(), keys[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	k := send(page, url.Values{"name": {"renamed"}})
	if k.Name != "renamed" || len(k.Allow) != 2 || k.ExpiresAt == 0 || k.Scopes != keys[0].Scopes {
		t.Errorf("the form has undone another change: %+v", k)
	}
	_, _, page = s.send(b, "GET", at, "")
	if k := send(page, url.Values{"allow": {block.String() + "\r\n::/0"}, "scope": {"pets:read"}}); k.Scopes == keys[0].Scopes || len(k.Allow) != 2 {
		t.Errorf("with other scopes: %+v", k)
	}
	if k := send(page, url.Values{"allow": {""}, "expires": {""}}); len(k.Allow) != 0 || k.ExpiresAt != 0 || k.Name != "renamed" {
		t.Errorf("without an allow-list and an expiry: %+v", k)
	}
}

package console

import (
	"html"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"petgate/shared/keystore"
	"petgate/shared/keystore/sessions"
	"petgate/shared/operate"
	"petgate/shared/testkit/must"
	"petgate/shared/testkit/verbs"
)

// Each form does what its verb does. Package operate has the texts.
func TestVerbs(t *testing.T) {
	var all []verbs.Verb
	for _, f := range forms {
		all = append(all, verbs.Verb{
			Name: f.path, Arguments: f.arguments,
			Send: func(t *testing.T, w *verbs.World, c verbs.Call) verbs.Answer { return sendForm(t, w, f, c) },
		})
	}
	verbs.Check(t, "keyadmin:alice", all)
}

// sendForm sends a form with its arguments, and follows to the page that says what was done.
func sendForm(t *testing.T, w *verbs.World, f form, c verbs.Call) verbs.Answer {
	t.Helper()
	s := newSiteAt(t, w.URL, verbs.Noon)
	b := s.signIn(sessions.ConsoleInvitation{})
	path, fields := Home+f.path, url.Values(maps.Clone(c.Given))
	for name, values := range c.Given {
		at := values[0]
		if name == "tenant" { // pages have its ID
			at = must.Get[keystore.Tenant](t)(s.operator.Tenant(t.Context(), at)).ID.String()
		}
		path = strings.Replace(path, "{"+name+"}", at, 1)
	}
	if _, isUpdate := f.arguments.(operate.UpdateKey); isUpdate {
		empty(fields, "allowAny", "allow")
		empty(fields, "noExpires", "expires")
	}
	if c.Sure {
		fields.Set("sure", "yes")
	}
	status, header, page := s.send(b, "POST", path, "x=&"+fields.Encode())
	if status == http.StatusSeeOther {
		status, _, page = s.send(b, "GET", header.Get("Location"), "")
	}
	if status != http.StatusOK {
		t.Errorf("%s: %d\n%s", path, status, page)
	}
	isQuestion := strings.Contains(page, `name="sure"`)
	if !isQuestion && !strings.Contains(page, "No gateway is registered, so no confirmation is needed.") {
		t.Errorf("%s does not say who has confirmed the change:\n%s", path, page)
	}
	return verbs.Answer{IsQuestion: isQuestion, Text: html.UnescapeString(page)}
}

// A form changes nothing for those who may not change anything.
func TestFormsAreRefused(t *testing.T) {
	s := newSite(t)
	tenant, keys, _ := s.populated()
	b, reader := s.signIn(sessions.ConsoleInvitation{}), s.signIn(sessions.ConsoleInvitation{ReadOnly: true})
	before := s.lastEvent().ID
	for _, path := range s.formPaths(tenant, keys[0]) {
		for _, c := range []struct {
			what   string
			b      *http.Client
			status int
			fields []string
		}{
			{"without a session", browser(), 303, nil},
			{"with a foreign cookie", browser(), 303, []string{"Cookie", "petgate-console=AAAAAAAAAAAAAAAAAAAAAAAAAA"}},
			{"read-only", reader, 403, nil},
			{"of another origin", b, 403, []string{"Origin", "https://evil.example"}},
		} {
			status, header, _ := s.send(c.b, "POST", path, "sure=yes", c.fields...)
			isAway := strings.HasPrefix(header.Get("Location"), "/console/login")
			if status != c.status || isAway != (status == 303) {
				t.Errorf("%s %s: %d to %q, want %d", path, c.what, status, header.Get("Location"), c.status)
			}
		}
	}
	must.Equal(t, s.lastEvent().ID, before, "the last event")
}

// formPaths returns the paths of all forms for a tenant and a key.
func (s *site) formPaths(t keystore.Tenant, k keystore.Key) (paths []string) {
	at := strings.NewReplacer("{tenant}", t.ID.String(), "{key}", k.ID.String())
	for _, f := range forms {
		paths = append(paths, Home+at.Replace(f.path))
	}
	return paths
}

// empty empties a field of the form, as a person does who wants what an argument says.
func empty(fields url.Values, argument, field string) {
	if fields.Has(argument) {
		fields.Del(argument)
		fields.Set("was-"+field, "something")
		fields.Set(field, "")
	}
}

package console

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"html"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
	"petgate/shared/keystore"
	"petgate/shared/operate"
	"petgate/shared/service"
	"petgate/shared/testkit"
	"petgate/shared/testkit/golden"
	"petgate/shared/testkit/must"
)

// gateway registers a gateway whose admin port knows one deprecated operation and a tenant that has
// used 7 of 10 requests.
func (s *site) gateway(id string) keystore.Registration {
	s.Helper()
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/about":
			service.WriteJSON(w, http.StatusOK, operate.About{Environment: "live", Operations: []operate.AboutOperation{
				{ID: "listPets", Scopes: []string{"pets:read"}},
				{ID: "createPet", Scopes: []string{"pets:write"}},
				{ID: "getPet", Scopes: []string{"pets:read"}, DeprecatedAt: 1, SunsetAt: instant.Of(time.Now().Add(50 * time.Hour))},
			}})
		case strings.HasPrefix(r.URL.Path, "/quota/"):
			policy := map[string]int64{"limit": 10, "used": 7, "remaining": 3}
			service.WriteJSON(w, http.StatusOK,
				map[string]any{"environment": "live", "mode": "shared", "minute": policy, "day": policy})
		default:
			http.NotFound(w, r)
		}
	}))
	s.Cleanup(admin.Close)
	r := keystore.Registration{ID: id, Incarnation: "a", AdminAddress: admin.Listener.Addr().String()}
	r.Generation = must.Get[int64](s)(s.operator.Register(s.Context(), r, nil))
	return r
}

// wants checks the status of a page, and that it contains and lacks texts. Those that it must lack
// begin with an exclamation mark.
func (s *site) wants(b *http.Client, path string, status int, texts ...string) {
	s.Helper()
	got, _, page := s.send(b, "GET", path, "")
	s.checkPage(path, got, status, page, texts...)
}

func (s *site) checkPage(what string, got, status int, page string, texts ...string) {
	s.Helper()
	if got != status {
		s.Errorf("%s: %d, want %d\n%s", what, got, status, page)
	}
	for _, text := range texts {
		if lacked, isLacked := strings.CutPrefix(text, "!"); isLacked == strings.Contains(page, lacked) {
			s.Errorf("%s: contains %q = %t:\n%s", what, lacked, isLacked, page)
		}
	}
}

func TestAudit(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, databaseURL string) {
		s := newSiteOn(t, databaseURL)
		tenant, keys, _ := s.populated()
		gone := must.First[keystore.Tenant](t)(
			s.operator.CreateTenant(t.Context(), keystore.TenantSpec{Name: "gone", Plan: "free"}),
		)
		must.First[keystore.Tenant](t)(s.operator.DeleteTenant(t.Context(), gone.ID))
		must.First[keystore.Key](t)(s.operator.As("keyadmin:bob").RevokeKey(t.Context(), keys[0].ID))
		b := s.signIn(keystore.ConsoleInvitation{ReadOnly: true})
		key := keys[0].ID.String()
		s.wants(b, "/console/audit", 200, "tenant.created", "key.revoked",
			`<a href="/console/tenants/`+tenant.ID.String()+`">acme</a>`, `<a href="/console/keys/`+key+`">`,
			tenantPath(gone.ID.String())+`">`+gone.ID.String()+"<", `!href="/console/keys/"`)
		_, header, _ := s.send(b, "GET", "/console/tenants?search=+"+key, "")
		must.Equal(t, header.Get("Location"), keyPath(key), "where the search for a key leads")
		s.wants(b, "/console/audit?actor=bob", 200, "key.revoked", `!data-title="Kind">key.created<`, `value="bob"`)
		s.wants(b, "/console/audit?tenant=acme&kind=key", 200, "key.revoked", "key.created",
			`!data-title="Kind">tenant.created<`, "<option selected>key</option>")
		s.wants(b, "/console/audit?key="+key+"&since=1h", 200, "key.revoked", "!"+keys[1].ID.String())
		s.wants(b, "/console/audit?since=2099-01-01", 200,
			"There are no such changes. Clear a field, or look further back.")
		s.wants(b, "/console/audit?since=soon", 400, "neither a duration nor a date")
		s.wants(b, "/console/audit?kind=ke", 400, "is not a kind of change")
		s.wants(b, "/console/audit?key=x", 400, "Key: ")
		s.wants(b, "/console/audit?tenant=nobody", 404, "There is no tenant")
		s.wants(b, "/console/audit?after=1&done=x", 200, `href="/console/audit"`, "!done=")
		s.wants(b, "/console/audit?after=x", 400, "begin with the first page")
	})
}

func TestGateways(t *testing.T) {
	s := newSite(t)
	b := s.signIn(keystore.ConsoleInvitation{ReadOnly: true})
	s.gateway("gw-8")
	s.wants(b, "/console/gateways", 200, ">gw-8</span></th>", "!gateway forget", "!has lost")
	tenant, _, _ := s.populated()
	must.Get[keystore.Change](t)(
		s.operator.ReportLost(t.Context(), []keystore.LostRefusal{{Kind: keystore.LostSuspension, Tenant: tenant.ID}}),
	)
	must.Get[sql.Result](t)(s.migrated().Exec(`UPDATE gateways SET seen_at = seen_at - 60000`))
	s.wants(b, "/console/gateways", 200, `<span class="tag warn">silent</span>`, "gw-8:</strong> not seen for",
		"keyadmin gateway forget gw-8", "keep in force: 1.")
}

// The page explains by the ID of a key.
func TestExplain(t *testing.T) {
	s := newSite(t)
	_, keys, _ := s.populated()
	reader := s.signIn(keystore.ConsoleInvitation{ReadOnly: true})
	key := keys[0].ID.String()
	s.wants(reader, "/console/explain?key="+key, 503, "no gateway is registered")
	s.gateway("gw-8")
	before := s.lastEvent().ID
	s.wants(reader, "/console/explain", 200, "!It would")
	s.wants(reader, "/console/explain?key="+key, 200, "It would pass", "7 of 10 used, 3 remaining",
		"by all gateways together")
	s.wants(reader, "/console/explain?key="+key+"&from=+203.0.113.5&operation=createPet+", 200,
		"passes from 203.0.113.5")
	s.wants(reader, "/console/explain?key="+key+"&operation=nothing", 400, "nothing")
	s.wants(reader, "/console/explain?key="+key+"&from=here", 400, "use 203.0.113.5")
	s.wants(reader, "/console/explain?key=x", 400, "Key: ")
	s.wants(reader, "/console/explain?key=key_0000000000000000", 404, "There is no key")
	if s.lastEvent().ID != before {
		t.Error("asking has changed something")
	}
}

// The list and the page of a tenant show how much it has used, of both limits. A tenant that the
// gateway does not know yet hides nothing of the others. After another failure, no other tenant is
// asked for.
func TestUseOfQuotas(t *testing.T) {
	s := newSite(t)
	b := s.signIn(keystore.ConsoleInvitation{})
	ids := map[id.Tenant]string{}
	var last keystore.Tenant
	for _, name := range []string{"a", "b", "c"} {
		made := must.First[keystore.Tenant](t)(
			s.operator.CreateTenant(t.Context(), keystore.TenantSpec{Name: name, Plan: "free"}),
		)
		ids[made.ID], last = name, made
	}
	var unknown error
	isAway := false
	s.console.cfg.Quota = func(_ context.Context, tenant id.Tenant) (v quota.Verdict, err error) {
		if ids[tenant] == "b" {
			return v, unknown
		}
		v.Usages[quota.Minute] = quota.Usage{Limit: 60, Used: 30, Remaining: 9}
		v.Usages[quota.Day] = quota.Usage{Limit: 1000, Used: 200, Remaining: 400}
		v.Degraded = isAway
		return v, nil
	}
	for _, test := range []struct {
		err  error
		want int // tenants with known use
	}{
		{fmt.Errorf("%w: b", ErrUnknownTenant), 2}, {errors.New("Redis does not answer"), 1},
	} {
		unknown = test.err
		_, _, page := s.send(b, "GET", Home+"tenants", "")
		if n := len(regexp.MustCompile(`data-title="Used now" class="number"><span.*</svg>50 %</span></td>.*</svg>20 %</span></td>`).FindAllString(page, -1)); n != test.want {
			t.Errorf("%v: the use of %d tenants, want %d:\n%s", test.err, n, test.want, page)
		}
	}
	must.Get[sql.Result](t)(s.db.Exec("DROP TABLE usage_hours"))
	s.wants(b, tenantPath(last.ID.String()), 200, "The requests cannot be read: ", "New key",
		"30 of 60 (50 %)", "200 of 1,000 (20 %)", "!Redis is away")
	isAway = true
	s.wants(b, tenantPath(last.ID.String()), 200, "30 of 60 (50 %)",
		"Redis is away: this gateway admits 9 more of its share.")
}

// What a person sees who creates plans, tenants, and keys in every state, and what one sees who may
// only look. A line is the path of a page, or, after a plus, that of a form and its fields. {acme}
// is the ID of a tenant, and {acme/used} that of its key. The address of a link stands before its
// text.
func TestEveryPage(t *testing.T) {
	s, now := newSite(t), at.Add(-8*day)
	clock := func() time.Time { return now }
	store := keystore.New(s.db, clock, rand.NewChaCha8([32]byte{}), "keyadmin:alice")
	s.operator, s.console.cfg.Store, s.console.cfg.Forms, s.console.watch.store = store, store, store, store
	s.console.cfg.Clock, s.console.watch.clock = clock, clock
	s.console.cfg.Quota = func(context.Context, id.Tenant) (v quota.Verdict, err error) {
		return quota.Verdict{
			Usages: [...]quota.Usage{
				{Limit: 1000, Used: 790}, {Limit: 21_000, Used: 21_000}, {Limit: 300_000, Used: 240_000}, {}, {},
			},
		}, nil
	}
	named := regexp.MustCompile(`\{(\w+)/?(\w*)\}`)
	idOf := func(text string) string {
		name := named.FindStringSubmatch(text)
		owner := must.Get[keystore.Tenant](t)(store.Tenant(t.Context(), name[1]))
		found := owner.ID.String()
		for _, k := range must.Get[[]keystore.Key](t)(keystore.Collect(store.Keys(t.Context(), owner.ID))) {
			if k.Name == name[2] && (k.GraceEndsAt == 0 || found == owner.ID.String()) {
				found = k.ID.String()
			}
		}
		return found
	}
	seen, tag := &strings.Builder{}, regexp.MustCompile(`^[^>]*>|<[^>]*>`)
	cells, actions := regexp.MustCompile(`</(?:td|th|dt)><`), regexp.MustCompile(
		`<form method="post" action="([^"]*)"|<a href="(?:/console/)?([^"]*)"|<button[^>]* aria-label="([^"]*)"`,
	)
	current, unstable := regexp.MustCompile(`aria-current="(page|true)">[^<]*</a>`), regexp.MustCompile(
		`(?s)<svg.*?</svg>|<nav.*?</nav>|<summary>.*?</summary>|<form[^>]*class.*?</form>|as of [\d:]+ UTC|ends <span class="whole">[^<]*`,
	)
	see := func(b *http.Client, lines string) {
		for line := range strings.FieldsSeq(lines) {
			now = now.Add(time.Minute)
			path, isForm := strings.CutPrefix(named.ReplaceAllStringFunc(line, idOf), "+")
			status, header, page := s.send(b, "GET", Home+path, "")
			if at, fields, _ := strings.Cut(path, "?"); isForm {
				status, header, page = s.send(b, "POST", Home+at, fields)
			}
			if status == http.StatusSeeOther {
				status, _, page = s.send(b, "GET", header.Get("Location"), "")
				page, _, _ = strings.Cut(page, "<section")
			}
			fmt.Fprintln(seen, "#", line, status, current.FindString(page))
			_, page, _ = strings.Cut(page, "<main")
			page = cells.ReplaceAllString(
				unstable.ReplaceAllString(actions.ReplaceAllString(page, "$1$2$3 $0"), ""), " | <",
			) // one line for a row
			for text := range strings.Lines(html.UnescapeString(tag.ReplaceAllString(page, ""))) {
				if text = strings.Trim(text, " |\n"); text != "" {
					fmt.Fprintln(seen, text)
				}
			}
		}
	}
	b := s.signIn(keystore.ConsoleInvitation{Lasts: 30 * day})
	see(b, `rankings tenants plans bans audit gateways explain
		+plans?name=small&minute=1000&day=20000&month=300000&testMinute=3 +tenants?name=acme&plan=small&day=21000&monthStarts=15
		+tenants?name=bare&plan=enterprise +tenants?name=globex&plan=pro
		+tenants/{globex}/suspend? +tenants/{globex}/suspend?sure=yes
		+tenants/{acme}/keys?name=plain&scopes=pets:read&environment=test
		+tenants/{acme}/keys?name=used&scopes=usage:read&allow=203.0.113.0/24%0A2001:db8::/32&expires=21d&minute=7&day=900
		+tenants/{acme}/keys?name=old&scopes=pets:read +keys/{acme/old}/revoke?sure=yes +tenants/{acme}/keys?name=off&scopes=pets:read
		+keys/{acme/off}/disable?sure=yes +tenants/{acme}/keys?name=bad&scopes=pets:read
		+bans?key={acme/bad}&for=30d&reason=scraping&tell=Please+pay.&sure=yes +tenants/{acme}/keys?name=turned&scopes=pets:read
		+keys/{acme/turned}/rotate?grace=10d&sure=yes +keys/{acme/turned}/update?name=fresh&scopes=pets:read&was-scopes=pets:read
		+tenants/{acme}/keys?name=over&scopes=pets:read +keys/{acme/over}/rotate?grace=1h&sure=yes
		+keys/{acme/over}/update?name=next&scopes=pets:read&was-scopes=pets:read
		+tenants/{acme}/keys?name=late&scopes=pets:read&expires=1h bans?tenant=acme`)
	acme := must.Get[keystore.Tenant](t)(store.Tenant(t.Context(), "acme"))
	key := must.Get[id.Key](t)(id.ParseKey(idOf("{acme/used}")))
	now = at
	row := func(ago time.Duration, outcome, operation string, requests int64) keystore.UsageRow {
		then := instant.Of(at.Add(-ago))
		return keystore.UsageRow{
			Tenant: acme.ID, Key: key, Operation: operation, Outcome: outcome, Charged: operation != "", Hour: then.Truncate(time.Hour), Requests: requests, LastAt: then,
		}
	}
	must.Do(t, store.AddUsage(t.Context(), s.gateway("gw-8"), 1, []keystore.UsageRow{
		row(
			0, "ok", "listPets", 3000,
		), row(time.Hour, "minute_quota_exceeded", "", 40), row(time.Hour, "upstream_timeout", "getPet", 5), row(2*time.Hour, "key_banned", "", 70),
		row(27*time.Hour, "ok", "getPet", 600),
	}, []keystore.UsageMinutes{{Tenant: acme.ID, Hour: instant.Of(at).Truncate(time.Hour), Attempts: [60]int64{8: 80, 9: 90}}}))
	must.Get[sql.Result](t)(
		s.db.Exec(`UPDATE gateways SET seen_at = seen_at + 3600000`),
	) // it stays live on a slow machine, too
	see(
		b,
		`? rankings?period=7d tenants plans bans audit gateways tenants/{acme} tenants/{acme}?usage=3h tenants/{bare} tenants/{bare}?usage=3h
		keys/{acme/used} keys/{acme/old} keys/{acme/off} keys/{acme/bad} keys/{acme/turned} keys/{acme/over} keys/{acme/late} keys/x explain?key={acme/used}&from=203.0.113.5 explain?key={acme/old}
		keys/{acme/used}?usage=400d`,
	)
	see(s.signIn(keystore.ConsoleInvitation{ReadOnly: true, Lasts: 30 * day}),
		"keys/{acme/late} tenants/{bare} tenants?search=nothing plans bans")
	golden.Check(t, "pages", seen.String(), `127\.0\.0\.1:\d+`, `ptg_\w+`, `done=\w+`)
}

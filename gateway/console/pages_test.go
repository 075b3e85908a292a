package console

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"html"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
	"petgate/shared/keystore"
	"petgate/shared/keystore/sessions"
	"petgate/shared/keystore/usage"
	"petgate/shared/operate"
	"petgate/shared/testkit"
	"petgate/shared/testkit/golden"
	"petgate/shared/testkit/must"
)

// gateway registers a gateway whose admin port knows one deprecated operation and a tenant that has
// used 7 of 10 requests.
func (s *site) gateway(id string) keystore.Registration {
	s.Helper()
	pets := []operate.AboutOperation{
		{ID: "listPets", Scopes: []string{"pets:read"}},
		{ID: "createPet", Scopes: []string{"pets:write"}},
		{ID: "getPet", Scopes: []string{"pets:read"}, DeprecatedAt: 1, SunsetAt: instant.Of(time.Now().Add(50 * time.Hour))},
	}
	policy := map[string]int64{"limit": 10, "used": 7, "remaining": 3}
	address := testkit.AdminPort(s, map[string]any{
		"/about":  operate.About{Environment: "live", Operations: pets},
		"/quota/": map[string]any{"environment": "live", "mode": "shared", "minute": policy, "day": policy},
	})
	r := keystore.Registration{ID: id, Incarnation: "a", AdminAddress: address}
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
		gone := s.newTenant(keystore.TenantSpec{Name: "gone", Plan: "free"})
		must.First[keystore.Tenant](t)(s.operator.DeleteTenant(t.Context(), gone.ID))
		must.First[keystore.Key](t)(s.operator.As("keyadmin:bob").RevokeKey(t.Context(), keys[0].ID))
		b := s.signIn(sessions.ConsoleInvitation{ReadOnly: true})
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
	b := s.signIn(sessions.ConsoleInvitation{ReadOnly: true})
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
	reader := s.signIn(sessions.ConsoleInvitation{ReadOnly: true})
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
	b := s.signIn(sessions.ConsoleInvitation{})
	ids := map[id.Tenant]string{}
	var last keystore.Tenant
	for _, name := range []string{"a", "b", "c"} {
		made := s.newTenant(keystore.TenantSpec{Name: name, Plan: "free"})
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
		if n := strings.Count(textOf(page), " | 60 | 50 % | 1,000 | 20 % | "); n != test.want {
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

// world is a site at a fixed time, with tenants, and with keys in every state by their names.
type world struct {
	*site
	acme, bare keystore.Tenant
	keys       map[string]string // IDs
}

func newWorld(t *testing.T) world {
	t.Helper()
	now := at.Add(-8 * day)
	clock := func() time.Time { return now }
	w := world{site: newSite(t), keys: map[string]string{}}
	store := keystore.New(w.db, clock, rand.NewChaCha8([32]byte{}), "keyadmin:alice")
	w.operator, w.console.cfg.Store, w.console.cfg.Forms, w.console.watch.store = store, store, store, store
	w.console.cfg.Clock, w.console.watch.clock = clock, clock
	w.console.cfg.Quota = func(context.Context, id.Tenant) (v quota.Verdict, err error) {
		v.Usages[quota.Minute] = quota.Usage{Limit: 1000, Used: 790}
		v.Usages[quota.Day] = quota.Usage{Limit: 21_000, Used: 21_000}
		v.Usages[quota.Month] = quota.Usage{Limit: 300_000, Used: 240_000}
		return v, nil
	}
	o := operate.Operator{Store: store, Clock: clock}
	do := func(verb operate.Preparer) operate.KeyView {
		t.Helper()
		op := must.Get[operate.Operation](t)(verb.Prepare(t.Context(), o))
		made, _ := must.Get[operate.Outcome](t)(op.Change(t.Context())).NewKey()
		return made
	}
	acme := operate.TenantRef{Tenant: "acme"}
	key := func(name string, arguments operate.CreateKey) operate.KeyRef {
		t.Helper()
		arguments.TenantRef, arguments.Name = acme, operate.Name(name)
		w.keys[name] = do(arguments).ID
		return operate.KeyRef{Key: operate.KeyID{Key: must.Get[id.Key](t)(id.ParseKey(w.keys[name]))}}
	}
	own := operate.NewLimits{Day: 21_000}
	do(operate.CreatePlan{
		Name: "small", NewLimits: operate.NewLimits{Minute: 1000, Day: 20_000, Month: 300_000},
		TestMinute: 3,
	})
	do(operate.CreateTenant{
		Name: "acme", Plan: "small", NewLimits: own,
		MonthStart: operate.MonthStart{MonthStarts: 15},
	})
	do(operate.CreateTenant{Name: "bare", Plan: "enterprise"})
	do(operate.CreateTenant{Name: "globex", Plan: "pro"})
	do(operate.SuspendTenant{TenantRef: operate.TenantRef{Tenant: "globex"}})
	key("plain", operate.CreateKey{Environment: apikey.Test})
	used := key("used", operate.CreateKey{
		Scopes:  []operate.Scope{"usage:read"},
		Allow:   []operate.Block{{Prefix: netip.MustParsePrefix("203.0.113.0/24")}},
		Expires: operate.Moment{Period: operate.Period(21 * day)}, Minute: 7, Day: 900,
	})
	do(operate.RevokeKey{KeyRef: key("old", operate.CreateKey{})})
	do(operate.DisableKey{KeyRef: key("off", operate.CreateKey{})})
	do(operate.AddBan{
		KeyRef: key("bad", operate.CreateKey{}), For: operate.Period(30 * day), Reason: "scraping", Tell: "Please pay.",
	})
	do(operate.RotateKey{
		KeyRef: key("turned", operate.CreateKey{}),
		Grace:  operate.Delay{Given: true, Length: 10 * day},
	})
	do(operate.RotateKey{
		KeyRef: key("over", operate.CreateKey{}),
		Grace:  operate.Delay{Given: true, Length: time.Hour},
	})
	key("late", operate.CreateKey{Expires: operate.Moment{Period: operate.Period(time.Hour)}})
	now = at
	w.acme = must.Get[keystore.Tenant](t)(store.Tenant(t.Context(), "acme"))
	w.bare = must.Get[keystore.Tenant](t)(store.Tenant(t.Context(), "bare"))
	w.use(used.Key.Key)
	return w
}

// use stores usage of a key.
func (w world) use(key id.Key) {
	w.Helper()
	var rows []usage.Row
	for _, used := range []struct {
		ago                time.Duration
		outcome, operation string
		requests           int64
	}{
		{0, "ok", "listPets", 3000},
		{time.Hour, "minute_quota_exceeded", "", 40},
		{time.Hour, "upstream_timeout", "getPet", 5},
		{2 * time.Hour, "key_banned", "", 70},
		{27 * time.Hour, "ok", "getPet", 600},
	} {
		then := instant.Of(at.Add(-used.ago))
		rows = append(rows, usage.Row{
			Tenant: w.acme.ID, Key: key, Operation: used.operation, Outcome: used.outcome,
			Charged: used.operation != "",
			Hour:    then.Truncate(time.Hour), Requests: used.requests, LastAt: then,
		})
	}
	minutes := usage.Minutes{Tenant: w.acme.ID, Hour: instant.Of(at).Truncate(time.Hour)}
	minutes.Attempts[8], minutes.Attempts[9] = 80, 90
	gateway := w.gateway("gw-8")
	must.Do(w, usage.Of(w.operator).AddUsage(w.Context(), gateway, 1, rows, []usage.Minutes{minutes}))
	must.Get[sql.Result](w)(w.db.Exec(`UPDATE gateways SET seen_at = seen_at + 3600000`)) // so that it stays live
}

// What a person reads on each page, and to which addresses its links and forms lead. Each page has
// a golden file of its own.
func TestPages(t *testing.T) {
	w := newWorld(t)
	b := w.signIn(sessions.ConsoleInvitation{Lasts: 30 * day})
	acme := "tenants/" + w.acme.ID.String()
	for _, c := range []struct{ name, path string }{
		{"overview", ""},
		{"rankings", "rankings?period=7d"},
		{"tenants", "tenants"},
		{"tenant", acme},
		{"plans", "plans"},
		{"bans", "bans"},
		{"audit", "audit?kind=key"},
		{"gateways", "gateways"},
		{"explain", "explain?key=" + w.keys["used"] + "&from=203.0.113.5"},
		{"key", "keys/" + w.keys["used"] + "?usage=400d"},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, _, page := w.send(b, "GET", Home+c.path, "")
			must.Equal(t, status, 200, "the status of %s", c.path)
			golden.Check(t, "page_"+c.name, textOf(page), `127\.0\.0\.1:\d+`, `as of [\d:]+ UTC`)
		})
	}
}

var (
	tag    = regexp.MustCompile(`<[^>]*>`)
	image  = regexp.MustCompile(`(?s)<svg.*?</svg>`)
	target = regexp.MustCompile(`(?:action|href)="([^"]*)"`)
)

// textOf writes what a page has below its navigation: a line for each block and each row, with the
// addresses to which links and forms lead.
func textOf(page string) string {
	page = page[max(0, strings.Index(page, "<main")):]
	page = tag.ReplaceAllStringFunc(image.ReplaceAllString(page, ""), func(tag string) string {
		to := target.FindStringSubmatch(tag)
		switch {
		case to != nil && strings.HasPrefix(tag, "<form"):
			return "form " + to[1] + "\n"
		case to != nil && strings.HasPrefix(tag, "<a"):
			return "[" + strings.TrimPrefix(to[1], Home) + "] "
		case tag == "</td>" || tag == "</th>" || tag == "</dt>":
			return " | "
		}
		return ""
	})
	var lines strings.Builder
	for line := range strings.Lines(html.UnescapeString(page)) {
		line = strings.Trim(line, "> |\n")
		if line != "" {
			fmt.Fprintln(&lines, line)
		}
	}
	return lines.String()
}

// What the page of a key says depends on its state, and so do its forms.
func TestKeysInEveryState(t *testing.T) {
	w := newWorld(t)
	b, reader := w.signIn(sessions.ConsoleInvitation{}), w.signIn(sessions.ConsoleInvitation{ReadOnly: true})
	for key, texts := range map[string][]string{
		"used":   {"Status | active", "/update", "/rotate", "/disable", "/ban", "/revoke", "!/enable", "!/lift"},
		"old":    {"Status | revoked", "It cannot be changed or used again", "/ban", "!/update", "!/rotate", "!/revoke"},
		"off":    {"Status | disabled", "/enable", "/revoke", "!/disable"},
		"bad":    {"Status | banned until ", "Told the tenant | “Please pay.”", "/lift", "/update"},
		"turned": {"Status | rotating until ", "Replaced by | [keys/key_", "its terms cannot be changed", "!/update", "/rotate"},
		"over":   {"Status | rotated", "It cannot be changed or used again", "!/rotate", "!/revoke"},
		"late":   {"Status | expired", "With a later expiry it is valid again", "/update", "!/rotate", "/revoke"},
	} {
		_, _, page := w.send(b, "GET", keyPath(w.keys[key]), "")
		w.checkPage("the page of key "+key, 200, 200, textOf(page), texts...)
		_, _, page = w.send(reader, "GET", keyPath(w.keys[key]), "")
		w.checkPage("the page of key "+key+" for a reader", 200, 200, textOf(page), texts[0], "!form ")
	}
	bare := tenantPath(w.bare.ID.String())
	w.wants(b, bare, 200, "has no quota: plan enterprise has no limits", "This tenant has no keys.", "New key")
	w.wants(b, bare+"?usage=3h", 200, "There were no ")
	w.wants(b, keyPath("x"), 404, "&#34;x&#34; is not an ID")
	w.wants(b, Home+"explain?key="+w.keys["old"], 200, "It would be refused", "401 invalid_api_key")
	w.wants(b, Home+"bans?tenant=acme", 200, "Bans of acme", ">“bad”<")
	w.wants(b, tenantPath(w.acme.ID.String())+"?usage=3h", 200, "Attempts by minute")
	w.wants(reader, Home+"tenants?search=nothing", 200,
		"No tenant has “nothing” in its name, and none has this ID.", "!New tenant")
	w.wants(reader, Home+"bans", 200, "One key is banned.", "!>Lift<")
}

// Without any records, each page says so, and how the first one is made.
func TestEmptyPages(t *testing.T) {
	s := newSite(t)
	b := s.signIn(sessions.ConsoleInvitation{})
	s.wants(b, Home+"tenants", 200, "0 of 0 tenants.", "keyadmin tenant create NAME")
	s.wants(b, Home+"bans", 200, "No key is banned.")
	s.wants(b, Home+"rankings", 200, "There were no requests.", "No request was refused or failed.")
}

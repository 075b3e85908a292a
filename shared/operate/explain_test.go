package operate_test

import (
	"crypto/rand"
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"petgate/shared/core/apikey"
	"petgate/shared/keystore"
	"petgate/shared/keystore/schema"
	"petgate/shared/operate"
	"petgate/shared/testkit"
	"petgate/shared/testkit/golden"
	"petgate/shared/testkit/must"
)

// What usage explain says about the next call. A server of the test stands for the admin port of
// gateways. The rows follow one another.
func TestExplain(t *testing.T) {
	t.Parallel()
	db := testkit.Open(t, testkit.SQLite(t), schema.Migrations)
	o, ci, clock := operatorOf(t, db)
	answers := map[string]string{} // by path, with or without a query
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.URL.RequestURI()]
		if !ok { // as an earlier version, which ignores the query
			answer, ok = answers[r.URL.Path]
		}
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(admin.Close)
	tester := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"environment":"test"}`) }),
	)
	t.Cleanup(tester.Close)
	quota := "/quota/" + must.Get[operate.Owner](t)(o.Tenant(t.Context(), "acme")).ID.String()
	gateway := func(id, address string) keystore.Registration {
		r := keystore.Registration{ID: id, Incarnation: "a", AdminAddress: address}
		r.Generation = must.Get[int64](t)(o.Store.Register(t.Context(), r, nil))
		return r
	}
	made := func(k operate.CreateKey) (operate.KeyRef, operate.NextCall) {
		k.TenantRef = acme
		r := done(t, o, k)
		v, _ := r.NewKey()
		return keyOf(t, r), operate.NextCall{Token: v.Token + "\n"}
	}
	mine, byToken := made(operate.CreateKey{Name: "mine"})
	insider, inside := made(operate.CreateKey{Allow: blocks(t, "10.0.0.0/8")})
	_, test := made(operate.CreateKey{Test: true})
	brief, short := made(operate.CreateKey{Expires: operate.Moment{Period: operate.Period(time.Minute)}})
	stranger := must.Get[string](t)(apikey.Draw(apikey.Beginning(apikey.DefaultPrefix, apikey.Live), rand.Reader))
	byTenant, byKey := operate.NextCall{Tenant: "acme"}, operate.NextCall{Key: ci.Key}
	call := func(from, operation string) operate.NextCall {
		return operate.NextCall{
			Key:       insider.Key,
			From:      operate.Address{Addr: netip.MustParseAddr(from)},
			Operation: operation,
		}
	}
	set := func(mode, more string) func() {
		return func() {
			isDegraded, refuses := mode != "shared" && mode != "memory", mode == "refuse"
			answers[quota] = fmt.Sprintf(`{"environment":"live","mode":%q,"degraded":%t,"refuses":%t,%s}`,
				mode, isDegraded, refuses, more)
		}
	}
	verbs := func(all ...operate.Preparer) func() {
		return func() {
			for _, verb := range all {
				done(t, o, verb)
			}
		}
	}
	const (
		minuteFree = `"minute":{"limit":60,"used":3,"remaining":57,"resetAt":1772366450250}`
		minuteFull = `"minute":{"limit":60,"used":60,"resetAt":1772366450250,"retryAt":1772366430001}`
		dayFull    = `"day":{"limit":1000,"used":1000,"resetAt":1772409600000,"retryAt":1772409600000}`
		untold     = "no gateway told how much of the quota is used, and only gateways know"
		banned     = "refused: 429 key_banned, banned by ada: scraping"
	)
	ban := func(lasts time.Duration) operate.AddBan {
		return operate.AddBan{KeyRef: ci, For: operate.Period(lasts), Reason: "scraping", Tell: "Write to us."}
	}
	lift := operate.LiftBan{KeyRef: ci}
	var whole strings.Builder
	var gw1 keystore.Registration
	for i, c := range []struct {
		before func()
		call   operate.NextCall
		want   string // the verdict, or a part of the error
	}{
		{nil, operate.NextCall{Token: "nonsense"}, "refused: 401 malformed_api_key, a key begins with a prefix and _live_ or _test_"},
		{nil, operate.NextCall{Token: stranger}, "refused: 401 invalid_api_key, no key has this token"},
		{nil, byToken, "no gateway is registered, and only gateways know how much of a quota is used"},
		{func() { gateway("gw-0", "127.0.0.1:1") }, byKey, untold + "\n  gw-0 (127.0.0.1): "},
		{func() { gw1 = gateway("gw-1", admin.URL) }, byKey, "404 Not Found"},
		{
			set("outage", minuteFree+`,"day":{"limit":1000,"used":960,"remaining":40},`+
				`"month":{"limit":5000,"used":3,"remaining":4997}`),
			byKey, "passes",
		},
		{set("memory", minuteFree), byToken, "passes"},
		{nil, byTenant, "passes, if its key is valid"},
		{nil, operate.NextCall{Tenant: "acme", Operation: "listPets"}, "--from and --operation are for a key"},
		{nil, operate.NextCall{Tenant: "acme", From: operate.Address{Addr: netip.IPv6Loopback()}}, "--from and --operation are for a key"},
		{
			set("shared", minuteFull), byKey,
			"refused: 429 minute_quota_exceeded, 60 of 60 requests of the last 60 seconds are used; " +
				"passes from 2026-03-01T12:00:31Z",
		},
		{
			set("shared", minuteFull+","+dayFull), byTenant,
			"refused: 429 day_quota_exceeded, 1,000 of 1,000 requests of this UTC day are used; " +
				"passes from 2026-03-02T00:00:00Z",
		},
		{
			set("shared", dayFull+`,"month":{"limit":5000,"used":5000,"retryAt":1772409600000}`), byTenant,
			"refused: 429 month_quota_exceeded, 5,000 of 5,000 requests of this month are used; passes from 2026-03-02T00:00:00Z",
		},
		{set("outage", minuteFull), byKey, "refused: 429 limits_degraded, Redis is away, and the share of gateway gw-1 is used up"},
		{
			set("refuse", minuteFull), byKey,
			"refused: 503 limits_unavailable, Redis is away, and gateway gw-1 refuses all requests until it answers",
		},

		{verbs(ban(10 * time.Minute)), byKey, banned + `; the tenant is told "Write to us."; passes from 2026-03-01T12:10:00Z`},
		{set("shared", minuteFull+","+dayFull), byKey, `"Write to us."; passes from 2026-03-02T00:00:00Z`},
		{
			verbs(operate.AddBan{KeyRef: brief, For: operate.Period(30 * time.Second), Reason: "scraping"}), short,
			banned + "; the ban ends at 2026-03-01T12:00:30Z, and calls are refused then too: " +
				"expired at 2026-03-01T12:01:00Z",
		},
		{
			func() { clear(answers) }, byKey,
			`"Write to us."; no gateway told how much of the quota is used; passes from 2026-03-01T12:10:00Z`,
		},
		{verbs(lift, operate.UpdateKey{KeyRef: ci, Minute: 5, Day: 50}), byKey, "404 Not Found"},
		{func() {
			answers[quota+"?key="+ci.Key.String()] = `{"environment":"live","mode":"shared",` + minuteFree +
				`,"keyMinute":{"limit":5,"used":5,"retryAt":1772366440001},"keyDay":{"limit":50,"used":5,"remaining":45}}`
		}, byKey, "refused: 429 key_quota_exceeded, 5 of 5 requests of this key in the last 60 seconds are used; " +
			"passes from 2026-03-01T12:00:41Z"},
		{set("shared", minuteFree), byToken, "passes"},

		{func() { answers[quota] = "no JSON" }, byToken, "invalid character"},
		{
			set("shared", minuteFree), test,
			"refused: 401 invalid_api_key, this is a test key, but all gateways that respond accept only live keys",
		},
		{func() { gateway("gw-0", tester.URL) }, test, "passes"},
		{nil, inside, "passes from 10.0.0.0/8 only"},
		{nil, call("192.0.2.1", ""), "refused: 403 address_not_allowed, the address is not in the allow-list of the key: 10.0.0.0/8"},
		{func() { // a silent gateway is asked last
			gateway("gw-0", admin.URL)
			must.Get[sql.Result](t)(db.Exec("UPDATE gateways SET seen_at = 1000 WHERE id = 'gw-0'"))
		}, call("10.1.2.3", ""), "passes from 10.1.2.3"},
		{func() {
			answers["/about"] = `{"operations":[{"id":"listPets","scopes":["pets:read"]},` +
				`{"id":"createPet","scopes":["pets:read","pets:write"]},` +
				`{"id":"getPet","gone":true,"scopes":["pets:write"]}]}`
		}, call("10.1.2.3", "listPets"), "passes from 10.1.2.3"},
		{
			verbs(operate.UpdateKey{KeyRef: insider, Scopes: []operate.Scope{"pets:read"}}),
			call("10.1.2.3", "createPet"),
			"refused: 403 insufficient_scope, the key does not have the scope pets:write. The request is charged",
		},
		{nil, call("10.1.2.3", "getPet"), "refused: 410 operation_removed, the operation has been removed. The request is charged"},
		{nil, call("10.1.2.3", "listPet"), `--operation: there is no operation "listPet": use listPets, createPet, getPet`},

		// The gateway is asked for the cost of the operation, and a call that costs more than a
		// limit never passes.
		{func() {
			document := keystore.Document{Costs: map[string]int64{"getPet": 20}}
			must.Do(t, o.Store.DescribeGateway(t.Context(), gw1, document))
			answers[quota+"?cost=20"] = `{"environment":"live","mode":"shared",` +
				`"minute":{"limit":60,"used":41,"remaining":19,"retryAt":1772366430001}}`
		}, call("10.1.2.3", "getPet"), "41 of 60 requests of the last 60 seconds are used, " +
			"and the operation costs 20; passes from 2026-03-01T12:00:31Z"},
		{
			func() { answers[quota+"?cost=20"] = strings.Replace(answers[quota+"?cost=20"], "60", "19", 1) },
			call("10.1.2.3", "getPet"), "costs 20",
		},
		{
			func() { answers[quota+"?cost=20"] = strings.Replace(answers[quota+"?cost=20"], "19", "20", 1) },
			call("10.1.2.3", "getPet"), "costs 20; passes from",
		},

		{verbs(operate.SuspendTenant{TenantRef: acme}), byTenant, "refused: 403 tenant_suspended, the tenant is suspended"},
		{
			verbs(operate.ResumeTenant{TenantRef: acme}, operate.MoveTenant{TenantRef: acme, Plan: "enterprise"}),
			byToken, "refused: 403 quota_not_set, neither plan enterprise nor the tenant sets a limit",
		},
		{
			verbs(operate.MoveTenant{TenantRef: acme, Plan: "free"}, operate.DisableKey{KeyRef: mine}), byToken,
			"refused: 401 invalid_api_key, disabled at 2026-03-01T12:00:00Z",
		},
		{
			verbs(
				operate.EnableKey{KeyRef: mine},
				operate.RotateKey{KeyRef: mine, Grace: operate.Delay{Given: true, Length: time.Second}},
			),
			byToken, "passes",
		},
		{func() { *clock = clock.Add(time.Hour) }, byToken, "refused: 401 invalid_api_key, replaced by KEY; ended at 2026-03-01T12:00:01Z"},
		{nil, short, "refused: 401 invalid_api_key, expired at 2026-03-01T12:01:00Z"},
		{verbs(operate.RevokeKey{KeyRef: ci}), byKey, "refused: 401 invalid_api_key, revoked at 2026-03-01T13:00:00Z"},
	} {
		if c.before != nil {
			c.before()
		}
		e, err := c.call.Explain(t.Context(), o)
		got := plain(fmt.Sprint(err))
		if err == nil {
			got = plain(e.Sheet()[0][1])
			fmt.Fprintf(&whole, "%s\n", asJSON(t, e))
			for _, row := range e.Sheet() {
				fmt.Fprintf(&whole, "    %s: %s\n", row[0], plain(row[1]))
			}
		}
		if !strings.Contains(got, c.want) || err == nil && strings.HasPrefix(c.want, "passes") && got != c.want {
			t.Errorf("row %d: %s\nwant %s", i, got, c.want)
		}
	}
	golden.Check(t, "explain", whole.String())
}

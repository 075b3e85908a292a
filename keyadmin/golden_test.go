package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
)

func TestMigrate(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		s := newShell(t, testkit.SQLite(t))
		s.terminal = terminal
		s.want(exitFailed, "`keyadmin migrate` creates it", "tenant", "list")
		s.record.Reset() // the message has a path that differs in every run
		s.ok("migrate", "-o", "json")
		s.ok("migrate")
		s.ok("migrate", "-o", "json")
		s.golden("migrate")
	}
}

func TestTenant(t *testing.T) {
	eachMode(t, "tenant", func(s *shell) {
		s.ok("tenant", "list")
		s.ok("tenant", "list", "-o", "json")
		acme := s.ok("tenant", "create", "acme")
		globex := s.ok("tenant", "create", "globex", "--plan", "enterprise")
		s.ok("tenant", "create", "initech", "--plan", "pro", "--minute", "5", "-o", "json")
		s.ok("tenant", "show", acme)
		s.ok("tenant", "show", "globex")
		s.ok("tenant", "show", "initech", "-o", "json")
		s.keyadmin("tenant", "show", acme[:len(acme)-1]+"z")
		s.sure("tenant", "suspend", "acme")
		s.ok("tenant", "suspend", "acme", "--yes")
		s.ok("tenant", "show", "acme")
		s.ok("tenant", "resume", "acme")
		s.ok("tenant", "resume", "acme", "-o", "json")
		s.ok("tenant", "set-plan", "acme", "pro")
		s.ok("tenant", "set-plan", "acme", "pro")
		s.sure("tenant", "set-plan", "acme", "enterprise")
		s.keyadmin("tenant", "set-plan", "initech", "enterprise", "--yes")
		s.ok("tenant", "set-plan", "acme", "enterprise", "--minute", "10", "--day", "100")
		s.ok("tenant", "set-plan", "acme", "pro")
		s.ok("tenant", "set-plan", "acme", "enterprise")
		s.ok("tenant", "create", "acme", "--plan", "pro", "--if-not-exists")
		s.ok("tenant", "set-quota", "globex", "--minute", "5000", "--day", "2000000")
		s.ok("tenant", "set-quota", "globex", "--minute", "6000", "-o", "json")
		s.ok("tenant", "set-quota", "globex", "--minute", "6000")
		s.ok("tenant", "list")
		s.sure("tenant", "set-quota", "globex", "--clear")

		s.ok("tenant", "rename", "acme", "acme inc")
		s.ok("tenant", "rename", acme, "acme inc")
		s.keyadmin("tenant", "rename", "acme inc", "globex")
		s.ok("key", "create", "globex")
		key := keyID(s, "globex")
		s.keyadmin("tenant", "delete", "globex", "--yes")
		s.ok("key", "revoke", key, "--yes")
		s.sure("tenant", "delete", "globex")
		s.keyadmin("tenant", "show", "globex")
		s.keyadmin("key", "show", key)
		s.ok("usage", "show", globex)
		s.ok("audit", "--tenant", globex)
		s.ok("tenant", "create", "globex")
	})
}

func TestPlan(t *testing.T) {
	eachMode(t, "plan", func(s *shell) {
		s.ok("plan", "list")
		s.ok("plan", "create", "team", "--minute", "120", "--day", "4000")
		s.ok("plan", "create", "bespoke", "-o", "json")
		s.keyadmin("plan", "create", "team", "--minute", "1", "--day", "1")
		s.ok("plan", "create", "team", "--minute", "1", "--day", "1", "--if-not-exists")
		s.ok("plan", "update", "team", "--day", "3000")
		s.ok("tenant", "create", "acme", "--plan", "team")
		s.sure("plan", "update", "team", "--day", "2900")
		s.ok("plan", "update", "team", "--day", "5000")
		s.ok("plan", "update", "team", "--day", "5000")
		s.ok("plan", "update", "team", "--minute", "130", "-o", "json")
		s.keyadmin("plan", "update", "team")
		s.keyadmin("plan", "delete", "team", "--yes")
		s.keyadmin("plan", "delete", "teem", "--yes")
		s.ok("tenant", "set-plan", "acme", "free", "--yes")
		s.sure("plan", "delete", "team")
		s.ok("plan", "delete", "enterprise", "--yes", "-o", "json")
		s.ok("plan", "list", "-o", "json")
	})
}

func TestOperator(t *testing.T) {
	eachMode(t, "operator", func(s *shell) {
		s.ok("operator", "list")
		token := s.ok("operator", "create", "terraform", "--role", "admin")
		s.ok("operator", "create", "sign up", "--role", "keys", "--expires", "90d", "-o", "json")
		s.keyadmin("operator", "create", "terraform", "--role", "read")
		s.keyadmin("operator", "create", "x", "--role", "owner")
		s.keyadmin("operator", "create", "x", "--role", "read", "--expires", "2020-01-01")
		s.keyadmin("operator", "revoke", token)
		s.now = s.now.Add(91 * 24 * time.Hour)
		s.ok("operator", "list")
		s.sure("operator", "revoke", "terraform")
		s.ok("operator", "revoke", "sign up", "--yes", "-o", "json")
		s.keyadmin("operator", "revoke", "terraform", "--yes")
		s.ok("audit", "--kind", "operator", "--since", "2026-01-01")
	})
}

func TestLimits(t *testing.T) {
	eachMode(t, "limits", func(s *shell) {
		s.keyadmin("plan", "create", "bad", "--minute", "600", "--day", "100")
		s.keyadmin("plan", "create", "bad", "--day", "600", "--month", "100", "--test-minute", "700")
		s.keyadmin("plan", "create", "bad", "--day", "600", "--test-minute", "700")
		s.ok("plan", "create", "gold", "--minute", "600", "--month", "3000000", "--test-minute", "60")
		s.ok("tenant", "create", "acme", "--plan", "gold")
		s.ok("tenant", "set-quota", "acme", "--month", "5000000", "--month-starts", "15")
		s.keyadmin("tenant", "set-quota", "acme", "--month-starts", "31")
		s.sure("tenant", "set-quota", "acme", "--day", "700")
		s.ok("tenant", "show", "acme")
		s.sure("plan", "update", "gold", "--day", "100000")
		s.ok("plan", "update", "gold", "--month", "none", "--test-minute", "none", "-o", "json")
		s.ok("key", "create", "acme", "--name", "ci", "--minute", "10", "--day", "700", "-o", "json")
		key := keyID(s, "acme")
		s.ok("key", "update", key, "--minute", "700", "--day", "none")
		s.keyadmin("key", "update", key, "--minute", "70", "--day", "60")
		s.ok("key", "list")
		s.ok("export")
		s.ok("tenant", "set-quota", "acme", "--month", "none")
		s.ok("tenant", "list")
		s.sure("plan", "update", "gold", "--minute", "none", "--day", "none")
		store := s.store()
		if err := store.DescribeGateway(s.t.Context(), s.gateway(store, "gw-1", "127.0.0.1:1").Registration,
			keystore.Document{Costs: map[string]int64{"searchPets": 20}}); err != nil {
			s.t.Fatal(err)
		}
		s.keyadmin("tenant", "set-quota", "acme", "--minute", "19", "--wait", "0")
		s.keyadmin("tenant", "set-quota", "acme", "--minute", "20", "-y", "--wait", "0")
		s.keyadmin("plan", "update", "gold", "--test-minute", "19", "--wait", "0")
	})
}

// unknownToken is well formed, but belongs to no key.
func unknownToken(s *shell) string {
	s.t.Helper()
	token, err := apikey.Mint(apikey.Live, rand.NewChaCha8([32]byte{1}))
	if err != nil {
		s.t.Fatal(err)
	}
	return token
}

// keyID finds the ID of the tenant's newest key.
func keyID(s *shell, tenant string) string {
	s.t.Helper()
	t, err := s.store().Tenant(s.t.Context(), tenant)
	if err != nil {
		s.t.Fatal(err)
	}
	keys, err := keystore.Collect(s.store().Keys(s.t.Context(), t.ID))
	if err != nil || len(keys) == 0 {
		s.t.Fatalf("%d keys, %v", len(keys), err)
	}
	return keys[len(keys)-1].ID.String()
}

func TestKey(t *testing.T) {
	eachMode(t, "key", func(s *shell) {
		s.ok("tenant", "create", "acme")
		s.ok("tenant", "create", "globex", "--plan", "enterprise")
		s.ok("key", "list")
		answer := s.stdin
		token := s.ok("key", "create", "acme", "--name", "ci")
		first := keyID(s, "acme")
		s.ok("key", "create", "acme", "--scope", "pets:read", "--allow", "203.0.113.0/24", "--allow", "2001:db8::1",
			"--expires", "90d", "--test", "-o", "json")
		s.ok("key", "create", "globex", "--name", "first", "--expires", "1h")

		s.stdin = " \n\t" + token + " \r\nmore"
		if s.terminal {
			s.stdin = token + "  "
		}
		s.ok("key", "whoami")
		s.stdin = unknownToken(s)
		s.keyadmin("key", "whoami")
		s.stdin = answer

		s.ok("key", "show", first)
		s.ok("key", "show", first, "-o", "json")
		s.ok("key", "create", "acme", "--name", "ci", "--if-not-exists")
		s.ok("key", "update", first, "--name", "build", "--scope", "pets:read", "--allow", "10.0.0.0/8", "--expires", "2026-12-31")
		s.ok("key", "update", first, "--name", "build")
		s.ok("key", "update", first, "--name", "ci", "--scope", "pets:read", "--scope", "pets:write", "--allow-any", "--no-expires", "-o", "json")
		s.keyadmin("key", "update", first, "--expires", "2026-02-28")

		s.ok("key", "rotate", first, "--grace", "36h")
		s.ok("key", "rotate", first)
		s.ok("key", "rotate", first, "-o", "json")
		s.ok("key", "rotate", first, "--grace", "7d")
		s.sure("key", "rotate", first, "--grace", "12h")
		s.ok("key", "show", first)
		second := keyID(s, "acme")
		s.sure("key", "rotate", second, "--grace", "0", "-o", "json")
		s.keyadmin("key", "rotate", second)
		third := keyID(s, "acme")
		s.ok("key", "enable", third)
		s.sure("key", "disable", third)
		s.ok("key", "disable", third, "--yes")
		s.ok("key", "show", third)
		s.keyadmin("key", "rotate", third, "--yes")
		s.ok("key", "enable", third, "-o", "json")
		s.sure("key", "revoke", third)
		s.ok("key", "revoke", third, "--yes", "-o", "json")
		s.keyadmin("key", "rotate", third)
		s.keyadmin("key", "enable", third)
		s.keyadmin("key", "disable", third, "--yes")
		s.now = s.now.Add(2 * time.Hour)
		s.ok("key", "list")
		s.ok("key", "list", "globex")
		s.ok("key", "list", "--expiring", "90d")
		s.ok("key", "list", "acme", "--expiring", "1h")
		s.keyadmin("key", "update", first, "--name", "late")
		s.ok("key", "list", "-o", "csv")
		s.sure("key", "rotate", first, "--grace", "0")
		s.keyadmin("key", "rotate", first, "--grace", "0", "--yes")
		s.ok("key", "list", "globex", "-o", "json")
		s.ok("tenant", "suspend", "globex", "-y")
		s.ok("key", "create", "globex")
	})
}

func TestBan(t *testing.T) {
	eachMode(t, "ban", func(s *shell) {
		s.ok("tenant", "create", "acme")
		s.ok("key", "create", "acme")
		key := keyID(s, "acme")
		s.ok("ban", "list")
		s.ok("ban", "lift", key)
		s.sure("ban", "add", key, "--for", "1h", "--reason", "scraping")
		s.sure("ban", "add", key, "--for", "30m", "--reason", "again")
		s.ok("ban", "add", key, "--for", "7d", "--reason", "and again", "--tell", "Please write to us.", "-y", "-o", "json")
		s.ok("ban", "list")
		s.ok("ban", "list", "-o", "json")
		s.ok("ban", "list", "-o", "csv")
		s.ok("key", "list", "acme")
		s.ok("key", "show", key, "-o", "json")
		s.ok("ban", "lift", key)
		s.ok("ban", "lift", key, "-o", "json")
		s.ok("ban", "list", "-o", "json")
	})
}

func TestAudit(t *testing.T) {
	eachMode(t, "audit", func(s *shell) {
		s.ok("audit")
		s.ok("audit", "-o", "json")
		s.ok("tenant", "create", "acme")
		s.ok("plan", "create", "team", "--minute", "120", "--day", "4000")
		s.ok("plan", "update", "team", "--day", "5000")
		s.ok("tenant", "set-plan", "acme", "team")
		s.sure("tenant", "set-quota", "acme", "--minute", "7")
		s.sure("tenant", "set-quota", "acme", "--clear")
		s.ok("key", "create", "acme", "--name", "ci", "--expires", "30d", "--allow", "10.0.0.0/8")
		key := keyID(s, "acme")
		s.ok("key", "rotate", key, "--grace", "1h")
		s.sure("ban", "add", key, "--for", "1h", "--reason", "scraping")
		s.ok("ban", "lift", key)
		s.sure("key", "revoke", key)
		s.sure("tenant", "suspend", "acme")
		s.ok("tenant", "resume", "acme")
		s.sure("usage", "reset", "acme")
		store := s.store()
		s.gateway(store, "gw-1", "10.0.0.5:9090")
		s.sure("gateway", "forget", "gw-1")
		s.ok("audit")
		s.ok("audit", "--since", "10s", "-o", "json")
		s.ok("audit", "--kind", "ban", "--tenant", "acme")
		s.ok("audit", "--key", key, "--actor", "anna", "-n", "2", "-o", "csv")
		s.ok("audit", "--actor", "gw-7")
		s.ok("audit", "--since", "2026-03-02")
	})
}

func TestGateway(t *testing.T) {
	eachMode(t, "gateway", func(s *shell) {
		s.ok("gateway", "list")
		s.ok("gateway", "list", "-o", "json")
		s.ok("tenant", "create", "acme")
		store := s.store()
		s.gateway(store, "gw-1", "10.0.0.4:9090").follow()
		s.gateway(store, "gw-2", "10.0.0.5:9090")
		s.ok("gateway", "list")
		s.keyadmin("key", "create", "acme", "--wait", "100ms")
		s.ok("gateway", "list", "-o", "json")
		s.keyadmin("gateway", "forget", "gw-3")
		s.ok("gateway", "lost")
		key := keyID(s, "acme")
		acme, err1 := store.Tenant(s.t.Context(), "acme")
		k, err2 := id.ParseKey(key)
		_, err3 := store.ReportLost(s.t.Context(), []keystore.LostRefusal{
			{Kind: keystore.LostRevocation, Tenant: acme.ID, Key: k, At: instant.Of(s.now)},
			{Kind: keystore.LostSuspension, Tenant: acme.ID},
		})
		if err := errors.Join(err1, err2, err3); err != nil {
			s.t.Fatal(err)
		}
		s.ok("gateway", "list")
		s.ok("gateway", "lost")
		s.ok("gateway", "lost", "-o", "json")
		s.keyadmin("gateway", "drop", key, "--wait", "0", "-y")
		s.keyadmin("gateway", "drop", key, "--wait", "0", "-y")
		s.sure("gateway", "forget", "gw-2")
		s.ok("gateway", "forget", "gw-1", "--yes", "-o", "json")
		s.ok("gateway", "list")
	})
}

func TestUsage(t *testing.T) {
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"operations":[{"id":"listPets"},
			{"id":"getPet","deprecatedAt":1767225600000,"sunsetAt":1772755200000,"successor":"/v1/pets"}]}`))
	}))
	t.Cleanup(admin.Close)
	eachMode(t, "usage", func(s *shell) {
		s.ok("tenant", "create", "acme")
		s.ok("key", "create", "acme", "--name", "ci")
		s.ok("usage", "show", "acme")
		s.ok("usage", "show", "acme", "-o", "json")
		s.keyadmin("usage", "deprecated")
		store := s.store()
		acme, err := store.Tenant(s.t.Context(), "acme")
		if err != nil {
			s.t.Fatal(err)
		}
		key, err := id.ParseKey(keyID(s, "acme"))
		if err != nil {
			s.t.Fatal(err)
		}
		g := s.gateway(store, "gw-1", "10.0.0.4:9090")
		g.follow()
		hour := func(ago int) instant.Millis {
			return instant.Of(s.now.Truncate(time.Hour).Add(-time.Duration(ago) * time.Hour))
		}
		if err := store.AddUsage(s.t.Context(), g.Registration, 1, []keystore.UsageRow{
			{Tenant: acme.ID, Key: key, Operation: "listPets", Outcome: "ok", Charged: true, Hour: hour(1), Requests: 1234567, LastAt: instant.Of(s.now)},
			{Tenant: acme.ID, Key: key, Operation: "getPet", Outcome: "ok", Charged: true, Hour: hour(2), Requests: 3, MoreUnits: 12},
			{Tenant: acme.ID, Key: key, Operation: "createPet", Outcome: "ok", Charged: true, IsTest: true, Hour: hour(2), Requests: 9, MoreUnits: 90},
			{Tenant: acme.ID, Key: key, Operation: "getPet", Outcome: "ok", Charged: true, Hour: hour(170), Requests: 2},
			{Tenant: acme.ID, Key: key, Outcome: "no_such_route", Charged: true, Hour: hour(2), Requests: 1},
			{Tenant: acme.ID, Key: key, Outcome: "minute_quota_exceeded", Hour: hour(2), Requests: 4},
			{Tenant: acme.ID, Key: key, Operation: "listPets", Outcome: "ok", Charged: true, Hour: hour(30), Requests: 5},
		}, []keystore.UsageMinutes{
			{Tenant: acme.ID, Hour: hour(1), Attempts: [60]int64{7: 1234560, 58: 7}}, {Tenant: acme.ID, Hour: hour(2), Attempts: [60]int64{59: 8}},
		}); err != nil {
			s.t.Fatal(err)
		}
		s.ok("usage", "show", "acme")
		s.ok("usage", "show", "acme", "--by", "hour,outcome", "--since", "1d12h")
		s.ok("usage", "show", "acme", "--by", "day")
		s.ok("usage", "show", "acme", "--test", "--by", "operation")
		s.ok("usage", "show", "acme", "--test", "--by", "hour", "--plot")
		s.ok("usage", "show", "acme", "--test", "--by", "minute")
		s.ok("usage", "show", "acme", "--by", "minute")
		s.ok("usage", "show", "acme", "--by", "minute", "--since", "60d", "-o", "csv")
		s.ok("usage", "show", "acme", "--by", "minute", "--since", "2026-03-01T11:00:00Z", "--until", "2026-03-01T11:58:00Z", "-o", "json")
		s.keyadmin("usage", "show", "acme", "--by", "minute", "--since", "60d", "--until", "40d")
		s.ok("usage", "show", "acme", "--by", "operation")
		s.ok("usage", "show", "acme", "--by", "operation,key,outcome", "-o", "csv")
		s.ok("usage", "show", "acme", "--by", "key", "-o", "json")
		s.ok("usage", "show", "acme", "--since", "24h", "-o", "json")
		s.ok("usage", "show", "acme", "--since", "2026-02-01", "--until", "2h")
		s.ok("usage", "show", "acme", "--since", "2026-02-01", "--until", "2026-02-28", "--by", "hour", "-o", "csv")
		s.ok("usage", "top")
		s.ok("usage", "top", "-o", "json", "-n", "1")
		s.ok("usage", "top", "--since", "1s")
		s.ok("usage", "top", "--until", "2h", "-o", "csv")
		s.ok("usage", "top", "--since", "2026-02-01", "--until", "2026-02-02")
		s.keyadmin("usage", "top", "-n", "0")
		s.gateway(store, "gw-0", strings.TrimPrefix(admin.URL, "http://")).follow()
		s.ok("usage", "deprecated")
		s.ok("usage", "deprecated", "-o", "json")
		s.now = s.now.Add(8 * 24 * time.Hour)
		s.ok("usage", "deprecated")
		s.now = s.now.Add(8 * 24 * time.Hour)
		s.ok("usage", "deprecated")
		s.now = s.now.Add(20 * 24 * time.Hour)
		s.ok("usage", "show", "acme", "--by", "minute", "--since", "60d") // no later usage has removed the minutes
		s.now = s.now.Add(-36 * 24 * time.Hour)
		s.ok("gateway", "forget", "gw-0", "-y")
		s.ok("key", "show", key.String())
		s.onSleep = g.follow
		s.sure("usage", "reset", "acme")
		s.keyadmin("usage", "reset", "acme", "--wait", "0", "-y")
	})
}

// explaining runs usage explain on tokens in every state. A server of the test stands for the gateway's admin port.
func TestUsageExplain(t *testing.T) {
	answers := map[string]string{}
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.URL.RequestURI()]
		if !ok { // as an earlier version, which ignores the query
			answer, ok = answers[r.URL.Path]
		}
		if !ok || r.Method != http.MethodGet {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(admin.Close)
	eachMode(t, "explain", func(s *shell) {
		clear(answers)
		acme := s.ok("tenant", "create", "acme")
		token := s.ok("key", "create", "acme")
		key := keyID(s, "acme")
		explain := func(token string, args ...string) {
			s.t.Helper()
			answer := s.stdin
			s.stdin = token
			s.keyadmin(append([]string{"usage", "explain"}, args...)...)
			s.stdin = answer
		}
		explain("nonsense")
		explain(token[:46], "-o", "json")
		explain(unknownToken(s))
		explain(token)
		store := s.store()
		dead := s.gateway(store, "gw-0", "127.0.0.1:1")
		dead.follow()
		explain(token)
		s.gateway(store, "gw-1", strings.TrimPrefix(admin.URL, "http://")).follow()
		explain(token)
		if err := store.SignOff(s.t.Context(), dead.Registration); err != nil {
			s.t.Fatal(err)
		}
		set := func(mode, minute, day string) {
			answers["/quota/"+acme] = `{"environment":"live","tenant":"` + acme + `","plan":"free","limits":{"minute":60,"day":1000},"mode":"` + mode +
				fmt.Sprintf(`","degraded":%t,"refuses":%t`, mode != "shared" && mode != "memory", mode == "refuse") + `,"minute":{` + minute + `},"day":{` + day + `}}`
		}
		const (
			minuteFree = `"limit":60,"used":3,"remaining":57,"resetAt":1772366450250,"retryAt":0`
			minuteFull = `"limit":60,"used":60,"remaining":0,"resetAt":1772366450250,"retryAt":1772366430001`
			minuteLeft = `"limit":60,"used":40,"remaining":5,"resetAt":1772366450250,"retryAt":0`
			dayFree    = `"limit":1000,"used":3,"remaining":997,"resetAt":1772409600000,"retryAt":0`
			dayFull    = `"limit":1000,"used":1000,"remaining":0,"resetAt":1772409600000,"retryAt":1772409600000`
		)
		set("memory", minuteFree, dayFree)
		explain(token)
		explain(token, "-o", "json")
		s.keyadmin("usage", "explain", "acme")
		set("shared", minuteFull, dayFree)
		explain(token)
		s.keyadmin("usage", "explain", "acme", "-o", "json")
		explain(token, "-o", "json")
		set("outage", minuteLeft, dayFree)
		explain(token)
		set("outage", minuteFull, dayFree)
		explain(token)
		set("refuse", minuteFull, dayFree)
		explain(token)
		answers["/quota/"+acme] = `{"environment":"live","mode":"shared","month":{"limit":5000000,"used":5000000,"remaining":0,"resetAt":1773532800000,"retryAt":1773532800000}}`
		s.keyadmin("usage", "explain", "acme")
		set("shared", minuteFull, dayFull)
		s.want(exitUnconfirmed, "may still accept this key", "ban", "add", key, "--for", "10m", "--reason", "scraping", "-y", "--wait", "0")
		explain(token)
		answers = map[string]string{}
		explain(token)
		s.want(exitUnconfirmed, "may still refuse this key", "ban", "lift", key, "--wait", "0")
		set("shared", minuteFull, dayFree)
		s.want(exitUnconfirmed, "may still accept this key", "ban", "add", key, "--for", "5s", "--reason", "scraping", "-y", "--wait", "0")
		explain(token)
		s.want(exitUnconfirmed, "may still refuse this key", "ban", "lift", key, "--wait", "0")
		s.keyadmin("key", "update", key, "--minute", "5", "--day", "50", "-y", "--wait", "0")
		explain(token)
		answers["/quota/"+acme+"?key="+key] = `{"environment":"live","mode":"shared","minute":{` + minuteFree + `},"day":{` + dayFree +
			`},"keyMinute":{"limit":5,"used":5,"resetAt":1772366450250,"retryAt":1772366440001},"keyDay":{"limit":50,"used":5,"remaining":45,"resetAt":1772409600000}}`
		explain(token)
		explain(token, "-o", "json")
		s.keyadmin("usage", "explain", "acme")
		s.keyadmin("key", "update", key, "--minute", "none", "--day", "none", "--wait", "0")
		answers["/quota/"+acme] = "no JSON"
		explain(token)

		s.ok("gateway", "forget", "gw-1", "-y")
		s.ok("tenant", "suspend", "acme", "-y")
		explain(token)
		s.keyadmin("usage", "explain", acme)
		s.ok("tenant", "resume", "acme")
		s.sure("tenant", "set-plan", "acme", "enterprise")
		explain(token)
		s.ok("tenant", "set-plan", "acme", "free")
		test := s.ok("key", "create", "acme", "--test", "--expires", "1h")
		explain(test)
		inside := s.ok("key", "create", "acme", "--allow", "10.0.0.0/8")
		live := s.gateway(store, "gw-1", strings.TrimPrefix(admin.URL, "http://"))
		live.follow()
		set("shared", minuteFree, dayFree)
		explain(test)
		explain(inside)
		insider := keyID(s, "acme")
		s.keyadmin("usage", "explain", insider)
		s.keyadmin("usage", "explain", insider, "--from", "192.0.2.1")
		s.keyadmin("usage", "explain", insider, "--from", "::ffff:10.1.2.3", "-o", "json")
		answers["/about"] = `{"operations":[{"id":"listPets","scopes":["pets:read"]},{"id":"createPet","scopes":["pets:write"]},{"id":"getPet","scopes":["pets:read"],"gone":true}]}`
		s.keyadmin("key", "update", insider, "--scope", "pets:read", "--wait", "0")
		for _, operation := range []string{"listPets", "createPet", "getPet", "listPet"} {
			s.keyadmin("usage", "explain", insider, "--from", "10.1.2.3", "--operation", operation)
		}
		if err := store.SignOff(s.t.Context(), live.Registration); err != nil {
			s.t.Fatal(err)
		}
		s.now = s.now.Add(time.Hour)
		explain(test)
		s.ok("key", "rotate", key, "--grace", "1s", "-y")
		explain(token)
		s.now = s.now.Add(time.Second)
		explain(token)
		s.ok("key", "revoke", key, "-y")
		explain(token, "-o", "json")
	})
}

// audit --follow prints each change once, as it is made, under one head.
func TestAuditFollow(t *testing.T) {
	for _, c := range []struct {
		format string
		heads  string // occurs once
	}{{"table", "EVENT"}, {"csv", "id,at,actor"}, {"json", ""}} {
		s := newMigrated(t, testkit.SQLite(t))
		s.ok("tenant", "create", "before")
		other := newShell(t, strings.TrimPrefix(s.env[0], "DATABASE_URL="))
		other.random = s.random
		steps := []string{"one", "two", ""}
		s.onSleep = func() {
			if name := steps[0]; name != "" {
				other.now = s.now
				other.ok("tenant", "create", name)
			}
			steps = steps[1:]
			s.ended = len(steps) == 0
		}
		r := s.want(exitDone, "", "audit", "--follow", "--kind", "tenant", "-o", c.format)
		for _, name := range []string{"before", "one", "two"} {
			if n := strings.Count(r.stdout, `name "`+name+`",`) + strings.Count(r.stdout, `"name": "`+name+`"`) + strings.Count(r.stdout, `""name"":""`+name+`""`); n != 1 {
				t.Errorf("%s: %q occurs %d times in\n%s", c.format, name, n, r.stdout)
			}
		}
		if n := strings.Count(r.stdout, c.heads); c.heads != "" && n != 1 {
			t.Errorf("%s: %d heads in\n%s", c.format, n, r.stdout)
		}
	}
}

package main

import (
	"bytes"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/operate"
	"petgate/shared/operate/declare"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

func TestMigrate(t *testing.T) {
	t.Parallel()
	s := newShell(t, testkit.SQLite(t))
	s.want(exitFailed, "`keyadmin migrate` creates it", "tenant", "list")
	if got := s.keyadmin("migrate", "-o", "csv").stdout; !strings.HasPrefix(got, "from,to\r\n0,") {
		t.Errorf("migrate: %q", got)
	}
	s.want(exitDone, "The key tables are up to date", "migrate")
	must.Get[sql.Result](t)(s.open().Exec(`UPDATE keystore_schema SET version_id = version_id + 1000`))
	s.want(exitFailed, "upgrade the program", "tenant", "list")
	s.want(exitFailed, "use a newer keyadmin", "migrate")
}

// unknownToken is well formed, but belongs to no key.
func unknownToken(s *shell) string {
	s.t.Helper()
	return must.Get[string](s.t)(
		apikey.Draw(apikey.Beginning(apikey.DefaultPrefix, apikey.Live), rand.NewChaCha8([32]byte{1})),
	)
}

// keyID finds the ID of the tenant's newest key.
func keyID(s *shell, tenant string) string {
	s.t.Helper()
	keys, err := keystore.Collect(s.store().Keys(s.t.Context(), tenantID(s, tenant)))
	if err != nil || len(keys) == 0 {
		s.t.Fatalf("%d keys, %v", len(keys), err)
	}
	return keys[len(keys)-1].ID.String()
}

func tenantID(s *shell, name string) id.Tenant {
	s.t.Helper()
	return must.Get[keystore.Tenant](s.t)(s.store().Tenant(s.t.Context(), name)).ID
}

// The columns of CSV are the members of JSON, which scripts rely on.
func TestFields(t *testing.T) {
	t.Parallel()
	for want, rows := range map[string]any{
		"id,name,plan,limits.minute,limits.day,limits.month,override.minute,override.day,override.month,monthStarts,suspended,createdAt": []operate.TenantView{},
		"name,limits.minute,limits.day,limits.month,test.minute,test.day,test.month,createdAt":                                           []operate.PlanView{},
		"id,token,tenantId,tenant,name,hint,environment,scopes,allow,limits.minute,limits.day,limits.month,status,createdAt,expiresAt,revokedAt,graceEndsAt," +
			"replacedBy,bannedUntil,lastUsedAt,lastRefusedAt,disabledAt,replaces,oldGraceEndsAt,repeated": []operate.RotationView{},
		"keyId,key,tenantId,tenant,imposedAt,until,automatic,reason,notice,by":                                                                                                       []operate.BanView{},
		"id,adminAddress,state,applied,lag,registeredAt,seenAt,ageMillis,generation,document.hash,document.title,document.version,document.scopes,document.keyPrefix,document.costs": []operate.GatewayView{},
		"kind,tenantId,keyId,at,reportedBy,reportedAt":                                                                                                                               []operate.LostView{},
		"id,at,actor,kind,tenantId,keyId,plan,before,after":                                                                                                                          []operate.EventView{},
		"start,operation,key,keyName,outcome,requests,charged,units":                                                                                                                 []operate.UsageView{},
		"start,attempts": []operate.MinuteView{},
		"tenantId,tenant,plan,limits.minute,limits.day,limits.month,requests,charged,units,busiestDay":   []operate.TopView{},
		"operation,deprecatedAt,sunsetAt,daysLeft,successor,tenantId,tenant,key,keyName,requests,before": []operate.DeprecatedView{},
		"name,token,role,status,createdAt,expiresAt":                                                     []operatorView{},
		"action,kind,name,keyId,change":                                                                  []declare.ChangeView{},
		"part,problem,cure":                                                                              []finding{},
		"file,takenAt,schema,lastEvent,tables":                                                           []backupView{},
		"takenAt,live,newer,lost,restored":                                                               []restoreView{},
		"url,gateway,readOnly":                                                                           []consoleView{},
		"at,activeTenants,gateways,tenants,problem":                                                      []topView{},
		"id,adminAddress,error,mode,requestsPerSecond,refusedPerSecond,p50Millis,p99Millis,bansImposed":  []topGateway{},
		"tenantId,tenant,plan,requestsPerSecond,refusedPerSecond,minuteUsed,minuteLimit,minuteShare,dayUsed,dayLimit,dayShare,bannedKeys,monthUsed,monthLimit,monthShare": []topTenant{},
		"passes,status,code,reason,until,keyId,tenantId,tenant,plan,environment,scopes,allow,from,operation,gateway,mode,degraded," +
			"minute.limit,minute.used,minute.remaining,minute.resetAt,day.limit,day.used,day.remaining,day.resetAt,month.limit,month.used,month.remaining,month.resetAt," +
			"keyMinute.limit,keyMinute.used,keyMinute.remaining,keyMinute.resetAt,keyDay.limit,keyDay.used,keyDay.remaining,keyDay.resetAt": []operate.Explanation{},
	} {
		var out bytes.Buffer
		must.Do(t, operate.WriteCSV(&out, rows))
		must.Equal(t, strings.TrimSpace(out.String()), want, "%T", rows)
	}
}

// The keys that expire until a time are those in use that end at that time or before.
func TestKeysThatExpire(t *testing.T) {
	t.Parallel()
	s := newMigrated(t, testkit.SQLite(t))
	s.ok("tenant", "create", "acme")
	for _, name := range []string{"late", "disable", "revoke", "rotate", "next", "last"} {
		s.ok("key", "create", "acme", "--name", name, "--expires",
			map[bool]string{true: "2026-04-02", false: "2026-04-01"}[name == "late"])
		if name == "disable" || name == "revoke" {
			s.ok("key", name, keyID(s, "acme"), "-y")
		}
		if name == "rotate" {
			s.ok("key", name, keyID(s, "acme"), "--grace", "1s") // the new key expires later
		}
	}
	s.ok("key", "create", "acme", "--name", "eternal")
	if r := s.keyadmin("key", "list", "--expiring", "2026-04-01", "-o", "csv"); !strings.Contains(r.stdout, ",next,") ||
		!strings.Contains(r.stdout, ",last,") ||
		strings.Count(r.stdout, "\n") != 3 {
		t.Errorf("%s\nwant last and next", r.stdout)
	}
	s.want(exitDone, "No key expires until 2026-03-31T00:00:00Z.", "key", "list", "--expiring", "2026-03-31")
}

// A session has the table of each command, and its JSON and CSV where they are more than the
// members of TestFields. What the database is does not matter. What verbs ask and say is in
// TestVerbs of package operate.
func TestSession(t *testing.T) {
	t.Parallel()
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		t.Parallel()
		s := newMigrated(t, url)
		s.dir = t.TempDir()
		from := func(stdin string, args ...string) {
			t.Helper()
			s.stdin = stdin
			s.keyadmin(args...)
			s.stdin = ""
		}
		for _, empty := range []string{"tenant list", "tenant list -o json", "key list", "ban list", "operator list", "gateway list", "gateway lost", "usage top", "audit"} {
			s.ok(strings.Fields(empty)...)
		}
		acme := s.ok("tenant", "create", "acme")
		s.ok("tenant", "create", "globex", "--plan", "enterprise", "-o", "json")
		s.ok("tenant", "set-quota", "globex", "--day", "2000000", "--month-starts", "15")
		s.ok("tenant", "show", "globex")
		s.ok("tenant", "list")
		s.ok("plan", "create", "team", "--minute", "120", "--day", "4000", "--test-minute", "9")
		s.ok("plan", "list")
		token := s.ok("key", "create", "acme", "--name", "ci")
		first := keyID(s, "acme")
		s.ok("key", "create", "acme", "--scope", "pets:read", "--allow", "203.0.113.0/24", "--allow", "2001:db8::1",
			"--expires", "90d", "--test", "-o", "json")
		from(" \n\t"+token+" \r\nmore", "key", "whoami")
		from(unknownToken(s), "key", "whoami")
		s.ok("key", "rotate", first, "--grace", "36h")
		s.ok("key", "rotate", first, "-o", "json")
		second := keyID(s, "acme")
		s.ok("ban", "add", second, "--for", "7d", "--reason", "scraping", "--tell", "Please write to us.", "-y")
		s.ok("ban", "list")
		s.ok("key", "list")
		s.ok("key", "list", "acme", "--expiring", "1d", "-o", "csv")
		s.ok("operator", "create", "terraform", "--role", "admin")
		s.keyadmin("operator", "create", "terraform", "--role", "read")
		s.ok("operator", "create", "ansible", "--role", "read", "--expires", "1s")
		s.ok("operator", "list")
		s.ok("operator", "revoke", "terraform", "--yes")
		s.ok("plan", "update", "free", "--test-minute", "7", "--yes")

		store, tenant := s.store(), tenantID(s, "acme")
		key, err := id.ParseKey(first)
		must.Do(t, err)
		admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/about" {
				fmt.Fprint(
					w,
					`{"operations":[{"id":"listPets"},{"id":"getPet","deprecatedAt":1767225600000,"sunsetAt":1772755200000,"successor":"/v1/pets"}]}`,
				)
				return
			}
			fmt.Fprint(
				w,
				`{"environment":"live","mode":"shared","minute":{"limit":60,"used":3,"remaining":57,"resetAt":1772366450250},`+
					`"day":{"limit":1000,"used":1000,"resetAt":1772409600000,"retryAt":1772409600000}}`,
			)
		}))
		t.Cleanup(admin.Close)
		g := s.gateway(store, "gw-1", strings.TrimPrefix(admin.URL, "http://"))
		g.follow()
		must.Do(
			t,
			store.DescribeGateway(
				t.Context(),
				g.Registration,
				keystore.Document{
					Hash:    "0123456789ab",
					Title:   "Orders",
					Version: "7",
					Scopes:  []string{"pets:read", "pets:write"},
				},
			),
		)
		s.gateway(store, "gw-2", "10.0.0.5:9090")
		hour := func(ago int) instant.Millis {
			return instant.Of(s.now.Truncate(time.Hour).Add(-time.Duration(ago) * time.Hour))
		}
		must.Do(t, store.AddUsage(t.Context(), g.Registration, 1, []keystore.UsageRow{
			{
				Tenant:    tenant,
				Key:       key,
				Operation: "listPets",
				Outcome:   "ok",
				Charged:   true,
				Hour:      hour(1),
				Requests:  1234567,
				LastAt:    instant.Of(s.now),
			},
			{Tenant: tenant, Key: key, Operation: "getPet", Outcome: "ok", Charged: true, Hour: hour(2), Requests: 3, MoreUnits: 12},
			{
				Tenant:    tenant,
				Key:       key,
				Operation: "createPet",
				Outcome:   "ok",
				Charged:   true,
				IsTest:    true,
				Hour:      hour(2),
				Requests:  9,
				MoreUnits: 90,
			},
			{Tenant: tenant, Key: key, Operation: "getPet", Outcome: "ok", Charged: true, Hour: hour(170), Requests: 2},
			{Tenant: tenant, Key: key, Outcome: "minute_quota_exceeded", Hour: hour(2), Requests: 4, LastAt: hour(0)},
		}, []keystore.UsageMinutes{{Tenant: tenant, Hour: hour(1), Attempts: [60]int64{7: 1234560, 58: 7}}, {Tenant: tenant, Hour: hour(2), Attempts: [60]int64{59: 8}}, {Tenant: tenant, Hour: hour(3), Attempts: [60]int64{5: 3, 6: 3}, IsTest: true}}))
		s.ok("usage", "show", "acme")
		s.ok("usage", "show", "acme", "--by", "operation", "--since", "2026-02-01", "--until", "2h", "-o", "json")
		s.ok("usage", "show", "acme", "--by", "operation,key,outcome", "--since", "1d12h", "--until", "2s", "-o", "csv")
		s.ok("usage", "show", "acme", "--test", "--by", "hour", "--plot")
		s.ok("usage", "show", "acme", "--by", "minute", "--since", "60d")
		s.keyadmin("usage", "show", "acme", "--by", "minute", "--since", "60d", "--until", "35d")
		s.ok("usage", "show", "acme", "--by", "minute", "--since", "35d", "--test")
		s.ok("usage", "top")
		s.ok("usage", "deprecated")
		s.ok("usage", "explain", "acme")
		from(token, "usage", "explain", "-o", "json")
		s.ok("key", "show", first)
		s.keyadmin("key", "create", "acme", "--wait", "100ms")
		_, err = store.ReportLost(t.Context(), []keystore.LostRefusal{
			{
				Kind:   keystore.LostRevocation,
				Tenant: tenant,
				Key:    key,
				At:     instant.Of(s.now),
			}, {Kind: keystore.LostSuspension, Tenant: tenant},
		})
		must.Do(t, err)
		s.ok("gateway", "list")
		s.ok("gateway", "lost")
		s.keyadmin("gateway", "drop", first, "--wait", "0", "-y")
		s.keyadmin("gateway", "forget", "gw-3")
		s.keyadmin("gateway", "forget", "gw-2", "--yes", "-o", "json", "--wait", "0")
		must.Do(t, store.SignOff(t.Context(), g.Registration))
		s.keyadmin("usage", "deprecated")

		s.ok("audit", "--since", "2026-03-01T12:00:10Z")
		s.ok("audit", "--kind", "ban", "--tenant", "acme", "-o", "json")
		s.ok("audit", "--key", first, "--actor", "anna", "-n", "1", "-o", "csv")

		s.ok("backup", filepath.Join(s.dir, "petgate.backup"))
		s.ok("key", "revoke", first, "--yes")
		s.ok("tenant", "suspend", "globex", "--yes")
		s.ok("restore", filepath.Join(s.dir, "petgate.backup"), "--dry-run")
		s.ok("restore", filepath.Join(s.dir, "petgate.backup"), "--dry-run", "-o", "json")
		s.ok("restore", filepath.Join(s.dir, "petgate.backup"), "--yes", "-o", "json")
		s.ok("key", "list")
		s.ok("audit", "--kind", "database")

		s.ok("export")
		from(stated, "diff", "-")
		from(stated, "apply", "-", "--yes")
		from(stated, "apply", "-", "--yes")
		changed := strings.Replace(
			stated,
			"{name: acme, plan: team}",
			"{name: acme, plan: bespoke, keys: [{id: "+second+
				", name: build, scopes: [\"pets:read\"], allow: [10.0.0.0/8]}, {id: key_0000000000000000, name: gone, scopes: [\"pets:read\"]}]}",
			1,
		)
		changed = strings.Replace(changed, "minute: 120, day: 4000", "minute: 100, day: 4000", 1)
		from(changed, "apply", "-", "--dry-run", "--prune", "--yes")
		from(changed, "apply", "-", "--prune", "--yes", "-o", "json")
		s.keyadmin("tenant", "delete", "acme", "--yes")
		for k, err := range store.Keys(t.Context(), tenant) {
			must.Do(t, err)
			if k.RevokedAt <= 0 {
				must.First[keystore.Key](t)(store.RevokeKey(t.Context(), k.ID))
			}
		}
		s.ok("tenant", "delete", "acme", "--yes")
		s.ok("usage", "show", acme, "--by", "day")
		s.ok("audit", "--kind", "tenant.deleted")
		s.golden("session")
	})
}

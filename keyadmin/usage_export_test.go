package main

import (
	"database/sql"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// useHours stores usage of two tenants in each of the last five hours. A gateway has stored everything before the hour that began an hour ago.
func useHours(s *shell) (use func(tenant string, ago int, requests int64)) {
	s.t.Helper()
	s.ok("tenant", "create", "acme")
	s.ok("tenant", "create", "globex")
	store := s.store()
	g := s.gateway(store, "gw-1", "127.0.0.1:1")
	batch := int64(0)
	hour := func(ago int) instant.Millis {
		return instant.Of(s.now).Truncate(time.Hour).Add(-time.Duration(ago) * time.Hour)
	}
	use = func(tenant string, ago int, requests int64) {
		s.t.Helper()
		t := must.Get[keystore.Tenant](s.t)(store.Tenant(s.t.Context(), tenant))
		batch++
		rows := []keystore.UsageRow{{Tenant: t.ID, Operation: "listPets", Outcome: "ok", Charged: true, Hour: hour(ago), Requests: requests, MoreUnits: requests}}
		must.Do(s.t, store.AddUsage(s.t.Context(), g.Registration, batch, rows, nil))
	}
	for n, name := range []string{"acme", "globex"} {
		for ago := range 5 { // of the hour that has just begun, too
			use(name, ago, int64(10*ago+n+1))
		}
	}
	g.UsageThrough = hour(1)
	g.follow()
	return use
}

func TestUsageExport(t *testing.T) {
	t.Parallel()
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		s := newMigrated(t, url)
		use := useHours(s)
		s.record.Reset()
		s.ok("usage", "export", "--format", "cloudevents", "--since", "2h")
		s.ok("usage", "export", "--format", "csv", "--since", "1h")
		s.ok("usage", "export", "--format", "csv", "--until", "3h")
		use("acme", 2, 5)
		use("acme", 2, 1)
		s.ok("usage", "export", "--format", "csv", "--since", "2h")
		s.keyadmin("usage", "export", "--format", "xml", "--to", "ftp://x")
		s.keyadmin("usage", "export", "--format", "csv", "--token-file", "x")
		s.keyadmin("usage", "export")
		s.golden("export")
	})
}

// A receiver gets the token and what it has not got yet.
func TestUsageExportTo(t *testing.T) {
	t.Parallel()
	s := newMigrated(t, testkit.SQLite(t))
	use := useHours(s)
	status := http.StatusOK
	meter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		want := map[string]string{"/": "Bearer secret"}[r.URL.Path] // a receiver at /open has no token
		if r.Header.Get("Authorization") != want || r.Header.Get("Content-Type") != "text/csv; charset=utf-8; header=present" {
			t.Errorf("%v", r.Header)
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(meter.Close)
	s.dir = t.TempDir()
	token := filepath.Join(s.dir, "token")
	must.Do(t, os.WriteFile(token, []byte("secret\n"), 0o600))
	export := func(code exitCode, says string, more ...string) {
		t.Helper()
		s.want(code, says, append([]string{"usage", "export", "--format", "csv", "--to", meter.URL, "--token-file", token}, more...)...)
	}
	export(exitDone, "Sent 6 events: 189 requests with live keys, 189 charged, 378 units. "+meter.URL+" has got every hour before 2026-03-01T11:00:00Z.", "--since", "1d")
	export(exitDone, "Sent 0 events")
	export(exitDone, "Sent 0 events", "--until", "30d") // before the default of --since, which a receiver with a cursor ignores
	use("globex", 3, 7)
	status = http.StatusForbidden
	export(exitFailed, "403 Forbidden: \n"+meter.URL+" has got every hour before 2026-03-01T11:00:00Z. Repeat the command to continue")
	status = http.StatusServiceUnavailable
	s.onSleep = func() { status = http.StatusOK }
	export(exitDone, "503 Service Unavailable: : next try in 1 s\nSent 1 event: 7 requests with live keys, 7 charged, 14 units.")
	s.want(exitDone, "No hour since 2026-03-01T11:00:00Z is closed.", "usage", "export", "--format", "csv", "--since", "1h")
	const noon = "2026-03-01T12:00:00Z"
	s.want(exitDone, "0 events of "+noon+" to "+noon, "usage", "export", "--format", "csv", "--since", noon)
	s.golden("export-to")
	s.want(exitDone, "Sent 7 events: 196 requests", "usage", "export", "--format", "csv", "--to", meter.URL+"/open")
}

// Whatever table is away, a list says so or is the same, and a list that cannot be written is a failure.
func TestListsWithoutATable(t *testing.T) {
	t.Parallel()
	s := newMigrated(t, testkit.SQLite(t))
	useHours(s)
	s.keyadmin("key", "create", "acme") // the gateway does not confirm it
	key := keyID(s, "acme")
	s.keyadmin("ban", "add", key, "--for", "7d", "--reason", "scraping", "-y")
	s.ok("operator", "create", "terraform", "--role", "admin")
	db, all := s.registry, map[string]string{}
	s.registry = nil
	for _, list := range []string{
		"usage show acme", "usage show acme --by hour --plot", "usage show acme --by minute", "usage top", "usage export --format csv", "ban list",
		"ban list -o json", "tenant list", "key show " + key, "plan list", "gateway list", "operator list", "audit", "export",
	} {
		all[list] = s.run(strings.Fields(list)).stdout
		s.broken = true
		if r := s.run(strings.Fields(list)); r.code == exitDone && all[list] != "" {
			t.Errorf("keyadmin %s into a broken pipe: exit 0", list)
		}
		s.broken = false
	}
	for _, table := range []string{"plans", "tenants", "tenant_keys", "bans", "gateways", "usage_hours", "usage_minutes", "usage_gaps", "usage_ledger"} {
		must.Get[sql.Result](t)(db.Exec("ALTER TABLE " + table + " RENAME TO away"))
		for list, want := range all {
			if !strings.HasPrefix(list, "usage") && !strings.HasPrefix(list, "ban") {
				continue
			}
			if r := s.run(strings.Fields(list)); r.code == exitDone && r.stdout != want {
				t.Errorf("without %s, keyadmin %s:\n%s\nwant\n%s", table, list, r.stdout, want)
			}
		}
		must.Get[sql.Result](t)(db.Exec("ALTER TABLE away RENAME TO " + table))
	}
}

//go:build e2e

package console

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
	"petgate/shared/database"
	"petgate/shared/keystore/sessions"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// The rows of TestPagesAtScale. Each is made of its number n, which begins with 1.
const (
	scaleTenants = 100_000
	scaleKeys    = 1_000_000
	scaleEvents  = 500_000
	scaleBans    = 20_000
	scaleActive  = 5_000 // tenants with requests in an hour, of 48 hours
)

// A page reads at most so many rows beside those that it counts.
const rowsMax = 500

// No page reads more rows the more keys, events and requests there are. Some count all tenants, or
// all bans, and a search looks at the names of all tenants.
func TestPagesAtScale(t *testing.T) {
	figuresWithin, figuresFor, dutyCycle = time.Second, time.Hour, 0
	s := newSiteOn(t, testkit.Postgres(t))
	fillScale(t, s.database)
	s.gateway("gw-8")
	s.console.cfg.Quota = func(_ context.Context, tenant id.Tenant) (v quota.Verdict, err error) {
		v.Usages[quota.Day] = quota.Usage{Limit: 1000, Used: 950 - int64(tenant[0])}
		return v, nil
	}
	s.db.SetMaxOpenConns(1) // so that this test can ask the session of the pages what it has read
	b := s.signIn(sessions.ConsoleInvitation{})
	tenant, key := "ten_"+fmt.Sprintf("%016x", 77), "key_"+fmt.Sprintf("%016x", 77)
	for _, c := range []struct {
		path, want string
		counts     int // rows
	}{
		{"", "Busiest tenants", scaleBans},
		{"rankings", "Nearest to a limit", 0},
		{"rankings?period=yesterday", "Refused or failed most", 0},
		{"rankings?period=7d&outcome=minute_quota_exceeded", "All outcomes", 0},
		{"tenants", "100,000 of 100,000 tenants.", 2 * scaleTenants},
		{"tenants?after=tenant-050000", "tenant-050001", 2 * scaleTenants},
		{"tenants?search=tenant-09999", "10 of 100,000", 3 * scaleTenants},
		{"tenants?search=nothing+like+this", "0 of 100,000", 3 * scaleTenants},
		{"tenants?plan=business&state=suspended", "tenant-0", 2 * scaleTenants},
		{"tenants?plan=enterprise", "0 of 100,000", 2 * scaleTenants},
		{"tenants?newest=true", "tenant-100000", 2 * scaleTenants},
		// PostgreSQL may look for the bans of some keys by reading all bans.
		{"tenants/" + tenant, "Requests by outcome", scaleBans},
		{"tenants/" + tenant + "?usage=400d", "Requests by outcome", scaleBans},
		{"keys/" + key, "Requests by outcome", scaleBans},
		{"plans", "enterprise", scaleTenants},
		{"bans", "20,000 keys are banned.", scaleBans},
		{"audit", "key.created", 0},
		{"audit?actor=nobody", "There are no such changes.", 0},
		{"audit?key=" + key, "key.created", 0},
		{"gateways", "gw-8", 0},
		{"explain", "Ask with", 0},
	} {
		testkit.Eventually(t, 2*time.Minute, c.path+" is complete", func() bool {
			_, header, page := s.send(b, "GET", Home+c.path, "")
			return header.Get("Refresh") == "" && strings.Contains(page, c.want)
		})
		before := s.rowsRead()
		s.wants(b, Home+c.path, 200, c.want)
		rows := s.rowsRead() - before
		t.Logf("figure: the console's page /%s at %d tenants and %d keys reads %d rows", c.path, scaleTenants,
			scaleKeys, rows)
		if rows > int64(c.counts+rowsMax) {
			t.Errorf("/%s reads %d rows, want at most %d", c.path, rows, c.counts+rowsMax)
		}
	}
}

// rowsRead returns how many rows the database has read so far, of tables and of indexes.
func (s *site) rowsRead() (rows int64) {
	s.Helper()
	must.Get[sql.Result](s)(s.db.Exec(`SELECT pg_stat_force_next_flush()`))
	must.Do(s, s.db.Get(&rows, `SELECT SUM(seq_tup_read + COALESCE(idx_tup_fetch, 0)) FROM pg_stat_user_tables`))
	return rows
}

func fillScale(t *testing.T, url string) {
	t.Helper()
	db := must.Get[*database.DB](t)(database.OpenPatient(url, false))
	defer db.Close()
	const (
		numbers = "generate_series(1, %d) AS r(n)"
		hash    = "sha256(CAST(CAST(n AS TEXT) AS BYTEA))"
		digits  = "lpad(to_hex(%s), 16, '0')"
		text    = "lpad(CAST(%s AS TEXT), 6, '0')"
	)
	from := func(n int) string { return " FROM " + fmt.Sprintf(numbers, n) }
	hex := func(n string) string { return fmt.Sprintf(digits, n) }
	now := instant.Of(time.Now())
	hour := now.Truncate(time.Hour)
	tenantOfRow := fmt.Sprintf("(n - 1) %% %d + 1", scaleTenants)
	ofTenant := func(n string) string { return "'ten_' || " + hex(n) }
	active := fmt.Sprintf("(n %% %d) * 7 + 77", scaleActive)
	usage := func(outcome, operation string, every, requests int) string {
		return fmt.Sprintf(
			`INSERT INTO usage_hours (tenant_id, hour, operation, correction, charged, key_id, outcome, requests)
			SELECT %s, %d - CAST(n / %d AS BIGINT) * 3600000, '%s', 0, %t, 'key_' || %s, '%s', %d + n %% 97%s`,
			ofTenant(active),
			hour,
			scaleActive/every,
			operation,
			outcome == "ok",
			hex(active),
			outcome,
			requests,
			from(48*scaleActive/every),
		)
	}
	for _, statement := range []string{
		`INSERT INTO tenants (id, name, plan, minute_limit, day_limit, suspended, created_at)
			SELECT ` + ofTenant("n") + `, 'tenant-' || ` + fmt.Sprintf(text, "n") + `,
			CASE WHEN n % 10 = 0 THEN 'business' WHEN n % 3 = 0 THEN 'pro' ELSE 'free' END,
			0, 0, n % 40 = 0, n` + from(scaleTenants),
		`INSERT INTO tenant_keys (id, tenant_id, hash, name, hint, environment, scopes, allow_list,
			created_at, expires_at, revoked_at, grace_ends_at, replaced_by, last_used_at)
			SELECT 'key_' || ` + hex("n") + `, ` + ofTenant(tenantOfRow) + `, ` + hash +
			fmt.Sprintf(`, 'ci', 'abcd', 'live', 'pets:read', '', n,
			CASE WHEN n %% 1000 = 0 THEN %d + n * 1000 ELSE 0 END, 0, 0, '', 0`, now) + from(scaleKeys),
		`INSERT INTO bans (key_id, until, automatic, notice, reason, imposed_by, imposed_at, lifted_at)
			SELECT 'key_' || ` + hex("n") +
			fmt.Sprintf(`, %d + n, false, '', 'unpaid', 'keyadmin:anna', 1, 0`, now.Add(day)) + from(scaleBans),
		`INSERT INTO events (id, uuid, at, actor, kind, tenant_id, key_id, plan, before_json, after_json)
			SELECT n, ` + hex("n") + `, n, 'keyadmin:anna', 'key.created', ` + ofTenant(tenantOfRow) + `,
			'key_' || ` + hex("n") + `, '', '', '{"name":"ci"}'` + from(scaleEvents),
		usage("ok", "listPets", 1, 100), usage("ok", "getPet", 1, 50),
		usage("minute_quota_exceeded", "", 4, 5), usage("upstream_timeout", "listPets", 20, 1),
		`ANALYZE`,
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%v: %s", err, statement)
		}
	}
}

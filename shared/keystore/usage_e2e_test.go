//go:build e2e

package keystore_test

import (
	"net/url"
	"testing"
	"time"

	"petgate/shared/core/instant"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// Two days of 10,000 tenants that are active in every hour: how large it is, and how long the query for those that used most takes.
func TestSizeOfUsage(t *testing.T) {
	const tenants, days = 10_000, 2
	address, err := url.Parse(testkit.Postgres(t))
	must.Do(t, err)
	query := address.Query()
	query.Set("statement_timeout", "300000") // a busy machine may be slow; the figure says how long it takes
	address.RawQuery = query.Encode()
	db, err := database.Open(address.String())
	must.Do(t, err)
	defer db.Close()
	must.Do(t, db.Migrate(t.Context(), keystore.Migrations))
	until := instant.Of(time.Now()).Truncate(time.Hour)
	since := until.Add(-days * 24 * time.Hour)
	last := until.Add(-time.Hour)
	const ids = `'ten_' || substr(md5(i::text), 1, 16), h`
	for _, statement := range []string{
		`INSERT INTO usage_hours (tenant_id, hour, operation, correction, charged, key_id, outcome, requests)
			SELECT ` + ids + `, 'listPets', 0, true, 'key_' || substr(md5(i::text), 1, 16), 'ok', i FROM generate_series($3::bigint, $1, 3600000) h, generate_series(1, $2) i`,
		`INSERT INTO usage_minutes (tenant_id, hour, gateway, attempts)
			SELECT ` + ids + `, 'gateway-1', repeat('@1234', 60) FROM generate_series($3::bigint, $1, 3600000) h, generate_series(1, $2) i`,
	} {
		from := since
		if statement[:25] == "INSERT INTO usage_minutes" {
			from = last.Add(-23 * time.Hour)
		}
		if _, err := db.Exec(statement, last, tenants, from); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.Exec(`ANALYZE usage_hours`); err != nil {
		t.Fatal(err)
	}
	size := func(table string) (bytes float64) {
		t.Helper()
		must.Do(t, db.Get(&bytes, `SELECT pg_total_relation_size($1::text::regclass)`, table))
		return bytes
	}
	const megabyte = 1 << 20
	hours, minutes := size("usage_hours")/days/10/megabyte, size("usage_minutes")/10/megabyte
	store := keystore.New(db, nil, nil, "test")
	began := time.Now()
	top, err := store.TopUsage(t.Context(), since, until, 10)
	took := time.Since(began)
	if err != nil || len(top) != 10 || top[0].Charged != tenants*days*24 {
		t.Fatalf("%v, %v", top, err)
	}
	t.Logf("figure: usage of 1,000 tenants that are active in every hour of a day: %.1f MB of hours for each key, operation and outcome, "+
		"%.1f MB of minutes for each gateway, with all minutes active; the ten of 10,000 tenants that used most in 2 days: %v, day by day",
		hours, minutes, took.Round(time.Millisecond))
}

//go:build e2e

package keystore_test

import (
	"testing"
	"time"

	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/keystore/usage"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// Two days of 10,000 tenants that are active in every hour: how large it is, and how long the query
// for those that used most takes.
func TestSizeOfUsage(t *testing.T) {
	const tenants, days = 10_000, 2
	db := open(
		t, testkit.Postgres(t)+"&statement_timeout=300000",
	) // a busy machine may be slow; the figure says how long it takes
	until := instant.Of(time.Now()).Truncate(time.Hour)
	since, last := until.Add(-days*24*time.Hour), until.Add(-time.Hour)
	const hours, tenant = `generate_series($3::bigint, $1, 3600000) h, generate_series(1, $2) i`, `'ten_' || substr(md5(i::text), 1, 16), h`
	run(t, db, `INSERT INTO usage_hours (tenant_id, hour, operation, correction, charged, key_id, outcome, requests)
		SELECT `+tenant+`, 'listPets', 0, true, 'key_' || substr(md5(i::text), 1, 16), 'ok', i FROM `+hours, last, tenants, since)
	run(t, db, `INSERT INTO usage_minutes (tenant_id, hour, gateway, attempts)
		SELECT `+tenant+`, 'gateway-1', repeat('@1234', 60) FROM `+hours, last, tenants, last.Add(-23*time.Hour))
	run(t, db, `ANALYZE usage_hours`)
	size := func(table string) (bytes float64) {
		t.Helper()
		must.Do(t, db.Get(&bytes, `SELECT pg_total_relation_size($1::text::regclass)`, table))
		return bytes
	}
	const megabyte = 1 << 20
	ofHours, ofMinutes := size("usage_hours")/days/10/megabyte, size("usage_minutes")/10/megabyte
	store := keystore.New(db, nil, nil, "test")
	began := time.Now()
	top, err := usage.Of(store).TopUsage(t.Context(), since, until, 10)
	took := time.Since(began)
	if err != nil || len(top) != 10 || top[0].Charged != tenants*days*24 {
		t.Fatalf("%v, %v", top, err)
	}
	t.Logf(
		"figure: usage of 1,000 tenants that are active in every hour of a day: %.1f MB of hours for each key, operation and outcome, "+
			"%.1f MB of minutes for each gateway, with all minutes active; the ten of 10,000 tenants that used most in 2 days: %v, day by day",
		ofHours,
		ofMinutes,
		took.Round(time.Millisecond),
	)
}

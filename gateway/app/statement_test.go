package app_test

import (
	"database/sql"
	"net/http"
	"strings"
	"testing"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// newAccountant makes a tenant with high limits and a key that may do everything.
func newAccountant(t *testing.T, db *database.DB) (tenant id.Tenant, key keystore.Key, token string) {
	t.Helper()
	tenant, _ = newKey(t, db)
	store := keystore.New(db, nil, nil, "test")
	_, _, err := store.SetQuota(t.Context(), tenant, plan.Limits{Minute: 1_000_000, Day: 1_000_000}, 0)
	must.Do(t, err)
	key, token, _, err = store.CreateKey(t.Context(), keystore.KeySpec{Tenant: tenant, Scopes: "pets:read pets:write usage:read"})
	must.Do(t, err)
	return tenant, key, token
}

// awaitUsage reads the usage. On a busy machine, the database may take longer than the gateway waits for it.
func (r *running) awaitUsage(t *testing.T, query, token string) (body string) {
	t.Helper()
	testkit.Eventually(t, readyWithin, "usage can be read", func() bool {
		var response *http.Response
		response, body = get(t, r.url+"/v1/usage"+query, token)
		return response.StatusCode == http.StatusOK
	})
	return body
}

// A customer reads what another gateway has stored. The response is complete through the instant that all gateways have stored. A database that
// fails is no business of the customer's.
func TestStatement(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		db := testkit.Open(t, url, keystore.Migrations)
		tenant, key, token := newAccountant(t, db)
		today := instant.Of(time.Now()).Truncate(24 * time.Hour)
		store, other := keystore.New(db, nil, nil, "gw-other"), keystore.Registration{ID: "gw-other", Incarnation: "a", UsageThrough: today}
		other.Generation = must.Get[int64](t)(store.Register(t.Context(), other, nil))
		row := keystore.UsageRow{Tenant: tenant, Key: key.ID, Operation: "listPets", Outcome: "ok", Charged: true, Hour: today.Add(-48 * time.Hour), Requests: 42}
		must.Do(t, store.AddUsage(t.Context(), other, 1, []keystore.UsageRow{row}, nil))
		r := start(t, url, nil)
		r.awaitReady(t)
		body := r.awaitUsage(t, "?by=hour&since=3d", token)
		if want := []string{
			`{"start":"` + row.Hour.String() + `","key":"` + key.ID.String() + `","operation":"listPets","outcome":"ok","requests":42,"charged":42,"units":42}`,
			`"completeThrough":"` + today.String() + `"`,
		}; !hasAll(body, want) {
			t.Errorf("%s\nwant %q", body, want)
		}
		must.Get[sql.Result](t)(db.Exec(`ALTER TABLE usage_hours RENAME TO elsewhere`))
		if body := expect(t, r.url+"/v1/usage", token, http.StatusServiceUnavailable, `"usage_unavailable"`); strings.Contains(body, "usage_hours") {
			t.Errorf("the client is told of a table: %s", body)
		}
		expect(t, r.url+"/v1/pets", token, http.StatusOK)
		must.Get[sql.Result](t)(db.Exec(`ALTER TABLE elsewhere RENAME TO usage_hours`))
		r.end(t)
	})
}

// While the database is away, usage cannot be read. Other requests are served.
func TestStatementWithoutDatabase(t *testing.T) {
	db, databaseURL, proxy := behindProxy(t)
	_, _, token := newAccountant(t, db)
	r := start(t, databaseURL, nil)
	r.awaitReady(t)
	r.awaitUsage(t, "", token)
	proxy.Kill()
	expect(t, r.url+"/v1/usage", token, http.StatusServiceUnavailable)
	expect(t, r.url+"/v1/pets", token, http.StatusOK)
	proxy.Restore(t)
	r.awaitUsage(t, "", token)
	r.end(t)
}

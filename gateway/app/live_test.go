package app_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"petgate/shared/keystore"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// A watcher sees each request at once, with the tenant's limits and what is used of them.
func TestLive(t *testing.T) {
	url := testkit.SQLite(t)
	tenant, token := newKey(t, testkit.Open(t, url, keystore.Migrations))
	r := start(t, url, nil)
	r.awaitReady(t)
	type answer struct {
		Gateway, Environment, Mode string
		Since, ElapsedMillis       int64
		Requests, Refused, Bans    int64
		Version                    string
		CertificateEndsAt          int64
		Active                     int
		Tenants                    []struct {
			ID, Plan                                          string
			SinceMillis                                       int64
			Limits                                            struct{ Minute, Day int64 }
			Requests, Refused, MinuteUsed, DayUsed, MonthUsed int64
		}
	}
	live := func(query string) (a answer) {
		t.Helper()
		_, body := get(t, r.admin+"/live"+query, "")
		decoder := json.NewDecoder(strings.NewReader(body))
		decoder.DisallowUnknownFields()
		must.Do(t, decoder.Decode(&a))
		return a
	}
	expect(t, r.url+"/docs", "", http.StatusUnauthorized) // the documentation is off
	before := live("")
	for range 61 {
		get(t, r.url+"/v1/pets", token)
	}
	get(t, r.url+"/v1/pets", "") // of no tenant
	now := live("?n=10")
	if now.Gateway != "gw-test" || now.Environment != "live" || now.Mode != "memory" || now.Since != before.Since ||
		now.ElapsedMillis < before.ElapsedMillis || now.Requests-before.Requests != 61 || now.Refused != 1 || now.Bans != 0 || now.Active != 1 {
		t.Errorf("GET /live before: %+v, now: %+v", before, now)
	}
	if len(now.Tenants) != 1 || now.Tenants[0].ID != tenant.String() || now.Tenants[0].Plan != "free" || now.Tenants[0].Limits.Minute != 60 ||
		now.Tenants[0].Requests != 61 || now.Tenants[0].Refused != 1 || now.Tenants[0].MinuteUsed != 60 || now.Tenants[0].DayUsed != 60 || now.Tenants[0].MonthUsed != 60 {
		t.Errorf("GET /live: %+v", now.Tenants)
	}
	if none := live("?n=0"); none.Requests != 61 || none.Active != 1 || none.Tenants == nil || len(none.Tenants) != 0 {
		t.Errorf("GET /live?n=0: %+v", none)
	}
	for _, query := range []string{"?n=-1", "?n=x", "?n=5001"} {
		expect(t, r.admin+"/live"+query, "", http.StatusBadRequest)
	}
	r.end(t)
}

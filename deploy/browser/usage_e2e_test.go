//go:build e2e

package browser_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"petgate/shared/core/instant"
	"petgate/shared/database"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// The page draws the usage of the account whose key it has, with the figures in a table. Without
// the scope it says what to do.
func testPortalDrawsUsage(t *testing.T, s site) {
	without := s.NewTenant("meter", fleet.Unlimited...)
	key := s.NewKey("meter", "--scope", "pets:read", "--scope", "usage:read")
	db := must.Get[*database.DB](t)(database.Open(s.Database))
	defer db.Close()
	day := instant.Of(time.Now()).Truncate(24 * time.Hour).Add(-3 * 24 * time.Hour)
	_, err := db.Exec(`WITH counted (outcome, charged, requests) AS (VALUES ('ok', true, 2400), ('report', false, 9),
			('minute_quota_exceeded', false, 1200), ('upstream_timeout', true, 500))
		INSERT INTO usage_hours (tenant_id, hour, operation, correction, charged, key_id, outcome, requests)
		SELECT id, $1, 'listPets', 0, charged, $2, outcome, requests FROM tenants, counted WHERE name = 'meter'`,
		day, key.ID)
	must.Do(t, err)
	gateway := s.Gateways[0]
	b := newTab(t, s.browser, gateway.URL)
	b.do(chromedp.Navigate(gateway.URL + "/docs"))
	const byHour, byDay, state chromedp.CSS = `#usage [value^="by=hour"]`, `#usage [value^="by=day"]`, "#usage .state"

	b.click(byDay)
	b.awaitText(patience, state, "Paste your API key first.")
	b.enter(keyField, without.Token)
	const cure = "it does not have the scope usage:read. Ask who gave you the key"
	b.awaitText(patience, state, cure) // before a request is spent
	b.click(byDay)
	b.awaitText(patience, state, cure)
	b.click("#key-forget")

	b.enter(keyField, key.Token)
	b.awaitText(patience, "#key-hint", key.Token[43:])
	b.asked("")
	b.click(byDay)
	b.awaitText(patience, state, "Requests by day, in UTC: ")
	b.sent("for a week of usage", "GET "+gateway.URL+"/v1/usage?by=day&since=7d")
	drawn := func(selector string) int {
		t.Helper()
		return evaluate[int](b, `document.querySelectorAll("#usage-drawing `+selector+`").length`)
	}
	b.click("#usage-drawing summary")
	want := regexp.MustCompile(`(?m)^` + strconv.Itoa(day.Time().Day()) + ` \w+\t2,400\t1,200\t500\t2,900$`)
	if table := b.text("#usage-drawing table"); !want.MatchString(table) || drawn("tbody tr") < 7 {
		t.Errorf("the table has\n%s\nwant %s", table, want)
	}
	for _, part := range []string{".served", ".refused path", ".failed"} {
		if drawn(".picture "+part) == 0 {
			t.Errorf("nothing is drawn as %s", part)
		}
	}
	said := evaluate[string](b, `document.querySelector(".picture svg").getAttribute("aria-label")`)
	if !strings.HasSuffix(said, " refused, 500 failed; at most 4,100 in a day.") {
		t.Errorf("the drawing says %q", said)
	}
	b.check("7-usage")

	b.click(byHour)
	b.awaitText(patience, state, "Requests by hour, in UTC: ")
	if n := drawn("tbody tr"); n < 24 || n > 26 {
		t.Errorf("the table of 24 hours has %d rows", n)
	}
	b.click("#key-forget")
	must.Equal(t, drawn("svg, #usage-drawing tbody tr"), 0,
		"parts of the key's usage that are left after it was forgotten")
}

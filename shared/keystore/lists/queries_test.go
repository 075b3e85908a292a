package lists

import (
	"regexp"
	"strings"
	"testing"

	"petgate/shared/keystore/schema"
	"petgate/shared/testkit"
)

// A page with one filter is read through an index: its cost does not grow with the table.
func TestPagesUseIndexes(t *testing.T) {
	t.Parallel()
	db := testkit.Open(t, testkit.SQLite(t), schema.Migrations)
	wholeTable := regexp.MustCompile(`SCAN (b|bans|k|events)\b`)
	for query, index := range map[string]string{
		bansFound:               "bans_by_end",
		countBans:               "bans_by_end",
		bansOfTenant:            "tenant_keys_of_tenant",
		bansOfKeys:              "autoindex_bans",
		eventsFound:             "events_by_time",
		eventsOfTenant:          "events_of_tenant",
		eventsOfKey:             "events_of_key",
		eventsOfAny("kind", 3):  "events_of_kind",
		eventsOfAny("actor", 2): "events_of_actor",
	} {
		plan := testkit.Plan(t, db, schema.Of(db.Dialect()).Statement(query))
		if !strings.Contains(plan, index) || wholeTable.MatchString(plan) {
			t.Errorf("%s\nis not read by %s: %s", query, index, plan)
		}
	}
}

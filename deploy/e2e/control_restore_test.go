package e2e_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"petgate/shared/database"
	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// The tables that gateways and keyadmin write, parents before children.
var restoredTables = []string{
	"plans", "tenants", "tenant_keys", "bans", "events", "gateway_registry", "gateways", "lost_refusals",
}

// backUp copies the tables. restore replaces the tables by the copies, like a restore of a backup.
func backUp(t *testing.T, db *database.DB) (restore func()) {
	t.Helper()
	for _, table := range restoredTables {
		if _, err := db.Exec(fmt.Sprintf("CREATE TABLE backup_%s AS SELECT * FROM %[1]s", table)); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		t.Helper()
		statements := []string{
			"SET LOCAL statement_timeout = 0", // a gateway that is paused in a transaction holds a lock for up to ten seconds
			"TRUNCATE " + strings.Join(restoredTables, ", "),
		}
		for _, table := range restoredTables {
			statements = append(statements, fmt.Sprintf("INSERT INTO %s SELECT * FROM backup_%[1]s", table))
		}
		tx, err := db.Begin()
		must.Do(t, err)
		for _, statement := range statements {
			if _, err := tx.Exec(statement); err != nil {
				t.Fatal(err)
			}
		}
		must.Do(t, tx.Commit())
	}
}

// The database is restored from a backup while three gateways serve. After the backup, one gateway was restarted, one was killed
// and restarted, and keys were revoked and created.
func TestRestoreFromBackup(t *testing.T) {
	t.Parallel()
	redis, prefix := testkit.Redis(t)
	f := fleet.Start(t, fleet.Spec{
		Redis: redis, RedisPrefix: prefix, Gateways: 3, Upstreams: fleet.FixedUpstream(t),
		GatewayEnv: []string{"GATEWAY_DRAIN_DELAY=0s"},
	})
	kept := f.NewTenant("acme", fleet.Unlimited...)
	revoked := f.NewKey("acme")
	restore := backUp(t, openDatabase(t, f))

	f.Gateways[1].Stop()
	f.Gateways[1].Start(t)
	f.Gateways[2].Kill()
	f.Gateways[2].Start(t)
	created := f.NewKey("acme")
	f.MustKeyadmin("key", "revoke", revoked.ID, "--yes", "--wait", "20s")

	served := startLoad(t, kept.Token, 1, 5*time.Millisecond, f.Gateways...)
	refused := startLoad(t, revoked.Token, 1, 5*time.Millisecond, f.Gateways...)
	begun := time.Now()
	restore()
	var lost []struct{ Kind, KeyID string }
	testkit.Eventually(t, fleet.ReplyWithin, "the lost revocation is listed", func() bool {
		done := f.Keyadmin("gateway", "lost", "-o", "json")
		return done.Code == 0 && json.Unmarshal([]byte(done.Stdout), &lost) == nil && len(lost) == 1
	})
	if lost[0].Kind != "revoked" || lost[0].KeyID != revoked.ID {
		t.Errorf("lost: %+v", lost)
	}
	var gateways []struct {
		ID, State string
		Lag       int
	}
	testkit.Eventually(t, fleet.ReplyWithin, "all three have registered again", func() bool {
		done := f.Keyadmin("gateway", "list", "-o", "json")
		if done.Code != 0 || json.Unmarshal([]byte(done.Stdout), &gateways) != nil || len(gateways) != 3 {
			return false
		}
		for _, g := range gateways {
			if g.State != "live" || g.Lag != 0 {
				return false
			}
		}
		return true
	})
	took := time.Since(begun)
	for _, g := range f.Gateways {
		g.Want(t, created.Token, 401, "invalid_api_key") // the restored database does not know it
	}
	f.MustKeyadmin("key", "revoke", revoked.ID, "--yes", "--wait", "20s") // repeated by the operator
	if done := f.Keyadmin("gateway", "lost", "-o", "json"); done.Code != 0 || strings.TrimSpace(done.Stdout) != "[]" {
		t.Errorf("after the revocation was repeated: %s%s", done.Stdout, done.Stderr)
	}
	for _, s := range served.end() {
		if s.Status != 200 {
			t.Errorf("%d to a request with a valid key, begun %v after the restore", s.Status, s.started.Sub(begun))
		}
	}
	for _, s := range refused.end() {
		if s.Status != 401 {
			t.Errorf("%d to a request with the revoked key, begun %v after the restore", s.Status, s.started.Sub(begun))
		}
	}
	t.Logf("figure: three gateways followed a restored database after %v; none ended, and no request with a revoked key passed",
		took.Round(10*time.Millisecond))
}

package directory

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"petgate/shared/database"
	"petgate/shared/keystore"
)

// unchecked lets a test write rows that no program writes.
func unchecked(t *testing.T, db *database.DB) {
	t.Helper()
	if db.Dialect() == database.SQLite {
		execute(t, db, `DROP TRIGGER events_form; DROP TRIGGER tenant_keys_environment`)
		return
	}
	execute(t, db, `ALTER TABLE events DROP CONSTRAINT events_form; ALTER TABLE tenant_keys DROP CONSTRAINT tenant_keys_environment`)
}

// An event that cannot be read does not stop the gateway from following: the changes after it are applied and confirmed.
func TestUnreadableEventIsPassed(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, db *database.DB, store *keystore.Store) {
		_, key, hash := fixture(t, store)
		d := start(t, store, Config{})
		unchecked(t, db)
		for _, id := range []string{"not-an-id", "ten_", "ten_uuuuuuuuuuuuuuuu"} {
			execute(t, db, `INSERT INTO events SELECT MAX(id) + 1, 'poison', 0, 'x', 'x', $1, 'neither', '', '', '' FROM events`, id)
		}
		confirmed(t, store)(store.RevokeKey(t.Context(), key.ID))
		if e, _ := d.Lookup(hash); e.RevokedAt == 0 || d.Ready() != nil {
			t.Errorf("after the revocation: %+v, ready: %v", e, d.Ready())
		}
		if log := d.log.String(); !strings.Contains(log, "level=ERROR") || !strings.Contains(log, "an event cannot be read") {
			t.Errorf("the log does not name it:\n%s", log)
		}
	})
}

// A gateway that cannot follow a database that is there is soon not ready: it may accept keys that were revoked.
func TestFailingToFollowEndsReadiness(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, db *database.DB, store *keystore.Store) {
		tenant, key, _ := fixture(t, store)
		var passed atomic.Int64
		d := opened(t, store, Config{Clock: func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }})
		sync := func(later time.Duration) error {
			passed.Add(int64(later))
			d.report(d.sync(t.Context()))
			return d.Ready()
		}
		unchecked(t, db)
		execute(t, db, `UPDATE tenant_keys SET environment = 'evil'`)
		made(t)(store.Suspend(t.Context(), tenant.ID))
		execute(t, db, `INSERT INTO events SELECT MAX(id) + 1, 'late', 0, 'x', 'key.updated', $1, $2, '', '', '' FROM events`,
			tenant.ID.String(), key.ID.String())
		if err := sync(0); err != nil || d.Behind() == nil {
			t.Errorf("at once: ready %v, behind %v", err, d.Behind())
		}
		if err := sync(failingMax + time.Second); err == nil || !strings.Contains(err.Error(), "evil") {
			t.Errorf("after %s: ready %v", failingMax, err)
		}
		execute(t, db, `UPDATE tenant_keys SET environment = 'live'`)
		if err := sync(time.Second); err != nil || d.Behind() != nil {
			t.Errorf("when the row is mended: ready %v, behind %v", err, d.Behind())
		}
	})
}

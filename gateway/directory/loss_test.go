package directory

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/keystore/lists"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// The sign-off is carried out and its answer is lost. The gateway no longer counts, so its snapshot
// must not come back.
func TestLostSignOffRevivesNoKey(t *testing.T) {
	t.Parallel()
	db, proxied, proxy := proxiedDB(t)
	store := keystore.New(db, nil, nil, "test")
	_, key, hash := fixture(t, store)
	path := snapshotPath(t)
	d := start(t, proxied, Config{Snapshot: path})
	for _, statement := range []string{
		"CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END $$",
		"CREATE CONSTRAINT TRIGGER late AFTER DELETE ON gateways DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION late()",
	} {
		execute(t, db, statement)
	}
	holds, err := db.Begin() // until the connection of the gateway is cut
	must.Do(t, err)
	defer holds.Rollback()
	must.Get[any](t)(holds.Exec("SET LOCAL idle_in_transaction_session_timeout = 0; SELECT pg_advisory_xact_lock(1)"))
	stopped := make(chan error, 1)
	go func() { stopped <- d.stop() }()
	eventually(t, "the sign-off commits", func() bool {
		var n int
		err := db.Get(&n, `SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
		return err == nil && n == 1
	})
	proxy.Kill()
	must.Do(t, holds.Rollback())
	<-stopped
	eventually(t, "it is committed", func() bool { return len(registered(t, store)) == 0 })
	made(t)(store.RevokeKey(t.Context(), key.ID)) // confirmed: no gateway is registered
	again := start(t, proxied, Config{Snapshot: path})
	if e, ok := again.Lookup(hash); ok && e.RevokedAt == 0 && again.Fresh(instant.Of(time.Now())) {
		t.Error("a key whose revocation was confirmed is accepted")
	}
	proxy.Restore(t)
	eventually(t, "it loads", func() bool { e, ok := again.Lookup(hash); return ok && e.RevokedAt != 0 })
}

// An old snapshot that cannot be removed would let a revoked key through after a restart. So
// nothing is confirmed while it is there.
func TestSnapshotThatCannotBeRemoved(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, _ *database.DB, store *keystore.Store) {
		_, key, hash := fixture(t, store)
		path := snapshotPath(t)
		log := &testkit.Output{}
		idle := opened(t, store, Config{Snapshot: path, Log: slog.New(slog.NewTextHandler(log, nil))})
		// A directory that is not empty cannot be removed or replaced, not even by root.
		obstacle := filepath.Join(path, "file")
		must.Do(t, os.Remove(path))
		must.Do(t, os.MkdirAll(obstacle, 0o700))
		if idle.snapshot.Remove() == nil {
			t.Fatal("the snapshot is removed")
		}
		d := run(t, idle, log)
		c := made(t)(store.RevokeKey(t.Context(), key.ID))
		eventually(t, "it is logged",
			func() bool { return strings.Contains(d.log.String(), "no change is confirmed until") })
		eventually(t, "the revocation is in force", func() bool { e, _ := d.Lookup(hash); return e.RevokedAt != 0 })
		if applied(t, store, c) {
			t.Error("the revocation is confirmed")
		}
		must.Do(t, os.RemoveAll(path))
		confirm(t, store)(c, nil)

		must.Do(t, os.RemoveAll(path))
		must.Do(t, os.MkdirAll(obstacle, 0o700))
		d.stop()
		must.Equal(t, len(registered(t, store)), 1, "gateways after a sign-off that could not remove the snapshot")
	})
}

// A snapshot that cannot be written is reported until one is written.
func TestSnapshotThatCannotBeWritten(t *testing.T) {
	path := snapshotPath(t)
	d := opened(t, openStore(t, testkit.SQLite(t)), Config{Snapshot: path})
	defer d.snapshot.Close()
	must.Do(t, os.Remove(path))
	must.Do(t, os.MkdirAll(filepath.Join(path, "file"), 0o700))
	for _, isBlocked := range []bool{true, false} {
		if err := d.writeSnapshot(); (err != nil) != isBlocked || (d.Unkept() != nil) != isBlocked {
			t.Errorf("blocked: %t; taken: %v; reported: %v", isBlocked, err, d.Unkept())
		}
		must.Do(t, os.RemoveAll(path))
	}
}

// A process that cannot use its snapshot, here because another one has locked it, confirms changes
// that are not in the file. It therefore removes the file, so that no later process starts from it.
// It never removes the file of another gateway.
func TestSnapshotThatIsNotKeptIsRemoved(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		id    string
		stays bool
	}{{"gw-1", false}, {"gw-2", true}} {
		store := openStore(t, testkit.SQLite(t))
		path := snapshotPath(t)
		_, key, _ := fixture(t, store)
		d := opened(t, store, Config{Snapshot: path})
		// Then it hangs: Run does not begin.
		without := start(t, store, Config{GatewayID: c.id, Snapshot: path})
		must.Do(t, store.SignOff(t.Context(), *d.self.Load())) // as if an operator forgot it
		confirmed(t, store)(store.RevokeKey(t.Context(), key.ID))
		if _, err := os.Stat(path); (err == nil) != c.stays {
			t.Errorf("the snapshot of gw-1 after %s has confirmed a revocation: %v", c.id, err)
		}
		without.stop()
		d.snapshot.Close()
	}
}

// A sign-off whose time is over changes nothing: the gateway stays registered and keeps its
// snapshot.
func TestLateSignOff(t *testing.T) {
	t.Parallel()
	store := openStore(t, testkit.SQLite(t))
	fixture(t, store)
	path := snapshotPath(t)
	d := start(t, store, Config{Snapshot: path})
	late, cancel := context.WithCancel(t.Context())
	cancel()
	d.signOff(late, "")
	must.Equal(t, len(registered(t, store)), 1, "gateways after a late sign-off")
	must.Get[os.FileInfo](t)(os.Stat(path))
	must.Do(t, d.stop())
	must.Equal(t, len(registered(t, store)), 0, "gateways after the sign-off")
}

// What a load or a tail has read is in the snapshot when it ends. A heartbeat confirms it only
// afterwards, because the process may be killed at any moment.
func TestChangesAreInTheSnapshotFirst(t *testing.T) {
	t.Parallel()
	store := openStore(t, testkit.SQLite(t))
	_, key, hash := fixture(t, store)
	path := snapshotPath(t)
	d := must.Get[*Directory](t)(Open(t.Context(), store, Config{GatewayID: "gw-1", Snapshot: path}))
	defer d.snapshot.Close()
	read := func() Entry {
		t.Helper()
		s := newState(&d.versions, d.cfg.Environment)
		must.Get[any](t)(d.snapshot.Read(s.rows(s.setBan)))
		ref, ok := s.findHash(&hash)
		if !ok {
			t.Fatal("the snapshot lacks the key")
		}
		return s.entry(ref)
	}
	read()
	made(t)(store.RevokeKey(t.Context(), key.ID))
	if n, err := d.tail(t.Context()); n != 1 || err != nil {
		t.Fatalf("%d events, %v", n, err)
	}
	if read().RevokedAt == 0 {
		t.Error("the snapshot lacks the revocation")
	}
}

// A ban is imposed by a request. It does not wait for the follower, which may be applying many
// changes. While it is not in the database, it outlasts a load, and a shorter ban from the
// database. If it gets longer while it is written, it is written again. The sign-off writes it,
// too.
func TestUnwrittenBanHolds(t *testing.T) {
	t.Parallel()
	store := openStore(t, testkit.SQLite(t))
	_, key, hash := fixture(t, store)
	d := opened(t, store, Config{})
	until := instant.Of(time.Now().Add(time.Hour))
	check := func(when string) {
		t.Helper()
		if e, _ := d.Lookup(hash); e.BannedUntil != until {
			t.Errorf("%s: %+v", when, e)
		}
	}
	d.mu.Lock() // as the follower
	d.Ban(key.ID, until, "30 strikes")
	check("at once")
	d.mu.Unlock()
	must.Do(t, d.load(t.Context()))
	check("after a load")
	made(t)(store.AddBan(t.Context(), keystore.Ban{Key: key.ID, Until: until - 60_000}))
	if n, err := d.tail(t.Context()); n != 1 || err != nil {
		t.Fatalf("%d events, %v", n, err)
	}
	check("after a shorter ban")
	d.drainBans(t.Context(), func() bool {
		time.Sleep(2 * time.Millisecond) // bans are told apart by their instants
		d.Ban(key.ID, until+60_000, "31 strikes")
		return true
	})
	if bans, err := lists.Of(store).FindBans(t.Context(), id.Tenant{}, "", 99); err != nil || len(bans) != 1 ||
		bans[0].Until != until+60_000 {
		t.Errorf("a ban that got longer while it was written: %+v, %v", bans, err)
	}
	d.Ban(key.ID, until+120_000, "32 strikes")
	d.SignOff("")
	bans := must.Get[[]lists.NamedBan](t)(lists.Of(store).FindBans(t.Context(), id.Tenant{}, "", 99))
	must.Equal(t, bans[0].Until, until+120_000, "the end of the ban after the sign-off")
}

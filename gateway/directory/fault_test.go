package directory

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"petgate/gateway/usage"
	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/keystore/lists"
	stored "petgate/shared/keystore/usage"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// behindProxy returns a store that writes directly, and one whose connections a test can cut.
func behindProxy(t *testing.T) (direct, proxied *keystore.Store, proxy *testkit.Proxy) {
	t.Helper()
	db, proxied, proxy := proxiedDB(t)
	return keystore.New(db, nil, nil, "test"), proxied, proxy
}

// proxiedDB is behindProxy for tests that write statements of their own.
func proxiedDB(t *testing.T) (direct *database.DB, proxied *keystore.Store, proxy *testkit.Proxy) {
	t.Helper()
	at := testkit.Postgres(t)
	direct = openDB(t, at)
	u := must.Get[*url.URL](t)(url.Parse(at))
	proxy = testkit.NewProxy(t, u.Host)
	u.Host = proxy.Addr
	through := must.Get[*database.DB](t)(database.Open(u.String()))
	t.Cleanup(func() { through.Close() })
	return direct, keystore.New(through, nil, nil, "gw-1"), proxy
}

func TestOutageChangesNothingForWhatIsLoaded(t *testing.T) {
	t.Parallel()
	store, proxied, proxy := behindProxy(t)
	tenant, key, hash := fixture(t, store)
	const maxAge = 3 * time.Second // by the test's clock; heartbeats come in real time
	var passed atomic.Int64
	begun := time.Now()
	clock := func() time.Time { return begun.Add(time.Duration(passed.Load())) }
	path := snapshotPath(t)
	d := start(t, proxied, Config{MaxAge: maxAge, Clock: clock, Snapshot: path})
	now := func() instant.Millis { return instant.Of(clock()) }
	if err := d.Ready(); err != nil || !d.Fresh(now()) {
		t.Fatal(err)
	}
	proxy.Kill()
	until := instant.Of(time.Now().Add(time.Minute))
	d.Ban(key.ID, until, "30 strikes")
	d.Usage().Count(usage.Request{Tenant: tenant.ID, Key: key.ID, Outcome: "ok", At: instant.Of(time.Now())})
	if e, ok := d.Lookup(hash); !ok || e.BannedUntil != until {
		t.Errorf("during the outage: %t %+v", ok, e)
	}
	_, late := addKey(t, store, tenant.ID)
	passed.Store(int64(maxAge / 2))
	if !d.Fresh(now()) || d.Ready() != nil || d.Gateways() != 1 {
		t.Errorf("a short outage: fresh %t, ready %v", d.Fresh(now()), d.Ready())
	}
	eventually(t, "it says that it is behind", func() bool { return d.Behind() != nil })
	passed.Store(int64(maxAge + time.Millisecond))
	if err := d.Ready(); d.Fresh(now()) || err == nil || !strings.Contains(err.Error(), "stale") {
		t.Errorf("ready: %v", err)
	}
	if d.Fresh(instant.Of(begun)) { // operators may have seen that it refuses everything
		t.Error("by a clock that was set back, it is fresh")
	}
	eventually(t, "a file keeps the usage", func() bool { _, err := os.Stat(path + ".usage"); return err == nil })
	proxy.Restore(t)
	eventually(t, "it follows again",
		func() bool { _, ok := d.Lookup(late); return ok && d.Fresh(now()) && d.Ready() == nil })
	eventually(t, "the ban is written", func() bool {
		bans, err := lists.Of(store).FindBans(t.Context(), id.Tenant{}, "", 99)
		return err == nil && len(bans) == 1
	})
	eventually(t, "the usage is written", func() bool {
		rows, err := stored.Of(store).Usage(t.Context(), tenant.ID, 0)
		return err == nil && len(rows) == 1 && rows[0].Requests == 1
	})
	must.Equal(t, strings.Count(d.log.String(), "cannot follow"), 1, "how often the outage was logged, in\n%s", d.log)
}

func TestLostNotificationIsMadeUpForByThePoll(t *testing.T) {
	t.Parallel()
	direct := openDB(t, testkit.Postgres(t))
	store := keystore.New(direct, nil, nil, "test")
	d := start(t, store, Config{})
	tenant, _, _ := fixture(t, store)
	eventually(t, "the fixture arrives", func() bool { return applied(t, store, 2) })

	// An event as another writer would make it, but without a notification.
	execute(t, direct, `UPDATE tenants SET suspended = true`)
	execute(t, direct, `INSERT INTO events VALUES (3, 'quiet', 1, 'test', 'tenant.suspended', $1, '', '', '', '')`,
		tenant.ID.String())
	begun := time.Now()
	testkit.Eventually(t, time.Minute, "the poll finds it", func() bool { return applied(t, store, 3) })
	t.Logf("figure: without its notification a change was confirmed after %v",
		time.Since(begun).Round(time.Millisecond))
	wantSame(t, d.Directory, store)
}

// A gateway is killed, the database is gone too, and the gateway starts again.
func TestSnapshotServesWhileTheDatabaseIsGone(t *testing.T) {
	t.Parallel()
	store, proxied, proxy := behindProxy(t)
	tenant, revoked, revokedHash := fixture(t, store)
	path := snapshotPath(t)
	d := start(t, proxied, Config{Snapshot: path})
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}

	// Changes that are confirmed after the snapshot was taken are in it too.
	late, lateHash := addKey(t, store, tenant.ID)
	made(t)(store.RevokeKey(t.Context(), revoked.ID))
	until := instant.Of(time.Now().Add(time.Hour))
	made(t)(store.AddBan(t.Context(), keystore.Ban{Key: late.ID, Until: until, Notice: "unpaid"}))
	lifted, liftedHash := addKey(t, store, tenant.ID)
	confirmed(t, store)(store.AddBan(t.Context(), keystore.Ban{Key: lifted.ID, Until: until}))
	must.Get[keystore.Change](t)(store.LiftBan(t.Context(), lifted.ID))
	confirmed(t, store)(store.SetTerms(t.Context(), tenant.ID, "pro", plan.Limits{}))
	proxy.Kill()
	d.awaitOutage(t)
	d.stop()

	again := start(t, proxied, Config{Snapshot: path})
	if err := again.Ready(); err != nil {
		t.Errorf("ready: %v", err)
	}
	if e, ok := again.Lookup(revokedHash); !ok || e.RevokedAt == 0 {
		t.Errorf("a revocation that was confirmed is forgotten: %t %+v", ok, e)
	}
	if e, ok := again.Lookup(lateHash); !ok || e.BannedUntil != until || e.BanNotice != "unpaid" || e.Plan != "pro" ||
		e.Limits.Minute != 300 {
		t.Errorf("from the snapshot: %t %+v", ok, e)
	}
	if e, ok := again.Lookup(liftedHash); !ok || e.BannedUntil != 0 {
		t.Errorf("a ban that was lifted is back: %t %+v", ok, e)
	}
	second := start(t, proxied, Config{Snapshot: path})
	const inUse = "another process uses this snapshot"
	if second.Ready() == nil || second.Unkept() == nil || again.Unkept() != nil ||
		!strings.Contains(second.log.String(), inUse) {
		t.Errorf("two processes use one snapshot; log %s", second.log)
	} else if err := second.Unkept(); !strings.Contains(err.Error(), inUse) {
		t.Errorf("the problem does not say why there is no snapshot: %v", err)
	}
	second.stop()
	copied, text := snapshotPath(t), must.Get[[]byte](t)(os.ReadFile(path))
	if must.Do(t, os.WriteFile(copied, text, 0o600)); strings.Contains(string(text), "ptg_") {
		t.Error("the snapshot holds a token")
	}
	stranger := start(t, proxied, Config{Snapshot: copied, GatewayID: "gw-2"})
	if _, ok := stranger.Lookup(lateHash); ok || stranger.Ready() == nil ||
		!strings.Contains(stranger.log.String(), "gw-1") {
		t.Errorf("another gateway uses the snapshot: %t; log %s", ok, stranger.log)
	}
	stranger.stop()

	_, lastHash := addKey(t, store, tenant.ID)
	proxy.Restore(t)
	eventually(t, "it follows again", func() bool { _, ok := again.Lookup(lastHash); return ok })
	wantSame(t, again.Directory, store)

	// After the sign-off changes do not wait for this gateway. With a snapshot, it would accept
	// keys that all others refuse.
	must.Do(t, again.stop())
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 ||
		left[0].Name() != filepath.Base(path)+".lock" {
		t.Errorf("left after signing off: %v, %v", left, err)
	}
}

// Operators see the maximum age with which a gateway last registered. A restarted gateway keeps to
// it until it has registered again, even if its new maximum age is longer, and from then on to the
// new one, also if it has to serve from its snapshot.
func TestMaxAgeOutlivesARestart(t *testing.T) {
	t.Parallel()
	store, proxied, proxy := behindProxy(t)
	path := snapshotPath(t)
	const maxAge = 3 * time.Second
	start(t, store, Config{GatewayID: "gw-2"})
	d := start(t, proxied, Config{Snapshot: path, MaxAge: maxAge})
	proxy.Kill()
	d.awaitOutage(t)
	d.stop()
	for configured, want := range map[time.Duration]time.Duration{
		0: maxAge, time.Hour: maxAge, time.Second: time.Second,
	} {
		again := start(t, proxied, Config{Snapshot: path, MaxAge: configured})
		if is := again.maxAge.Load(); is != want.Milliseconds() || again.Fresh(instant.Of(time.Now().Add(want))) {
			t.Errorf("restarted with a maximal age of %v, it relies for %d ms on what it read before, want %v",
				configured, is, want)
		}
		if again.Gateways() != 2 || again.seen.Load().UnixMilli() != d.seen.Load().UnixMilli() {
			t.Errorf("%d gateways as of %v, want 2 as of %v", again.Gateways(), again.seen.Load(), d.seen.Load())
		}
		again.stop()
	}
	again := opened(t, proxied, Config{Snapshot: path, MaxAge: time.Hour})
	proxy.Restore(t)
	must.Do(t, again.register(t.Context()))
	proxy.Kill()
	passed := 0
	again.cfg.PlansChanged = func(plans []keystore.Plan) { passed = len(plans) }
	again.restore()
	if passed == 0 || again.follower.loaded || !again.Fresh(instant.Of(time.Now().Add(30*time.Minute))) {
		t.Errorf("it has registered anew; loaded %t, maximum age %d ms, %d plans", again.follower.loaded,
			again.maxAge.Load(), passed)
	}
	later := time.Now().Add(time.Minute)
	again.seen.Store(&later)
	again.maxAge.Store(0)
	must.Do(t, again.writeSnapshot())
	later = later.Add(time.Minute)
	again.renewSnapshot()
	again.follower.registered = false
	again.maxAge.Store(1000)
	if again.restore(); again.maxAge.Load() != 1000 || again.seen.Load().UnixMilli() != later.UnixMilli() {
		t.Errorf("from a snapshot without a maximum age: %d ms, as of %v", again.maxAge.Load(), again.seen.Load())
	}
	again.SignOff("")
}

// The database fails right after the first load. The gateway serves what it has loaded: the old
// snapshot is gone.
func TestOutageAfterTheFirstLoad(t *testing.T) {
	t.Parallel()
	store, proxied, proxy := behindProxy(t)
	_, _, hash := fixture(t, store)
	must.Get[int64](t)(store.Register(t.Context(), keystore.Registration{ID: "gw-2", Incarnation: "a"}, nil))
	d := opened(t, proxied, Config{Snapshot: snapshotPath(t), Loaded: func(_, _ int) { proxy.Kill() }})
	defer d.SignOff("")
	if _, known := d.Lookup(hash); !known || !d.Fresh(instant.Of(time.Now())) || d.Ready() != nil || d.Gateways() != 2 {
		t.Errorf("known %t, %v, %d gateways", known, d.Ready(), d.Gateways())
	}
}

func TestDamagedSnapshotIsRefused(t *testing.T) {
	t.Parallel()
	store := openStore(t, testkit.SQLite(t))
	_, _, hash := fixture(t, store)
	path := snapshotPath(t)
	d := opened(t, store, Config{Snapshot: path})
	whole := must.Get[[]byte](t)(os.ReadFile(path))
	read := func(content []byte) (found bool, err error) {
		must.Do(t, os.WriteFile(path, content, 0o600))
		next := newState(&d.versions, d.cfg.Environment)
		_, err = d.snapshot.Read(next.rows(next.setBan))
		_, found = next.findHash((*apikey.Hash)(&hash))
		return found, err
	}
	if found, err := read(whole); err != nil || !found {
		t.Fatalf("the whole file: found %t, %v", found, err)
	}
	for at := range whole {
		damaged := append([]byte(nil), whole...)
		damaged[at] ^= 0x10
		if _, err := read(damaged); err == nil {
			t.Errorf("byte %d of %d is wrong, and nobody sees it", at, len(whole))
		}
		if _, err := read(whole[:at]); err == nil {
			t.Errorf("cut off after byte %d of %d, and nobody sees it", at, len(whole))
		}
	}
	// A change that was being written when the process died had not been confirmed.
	d.record(nil)
	longer := must.Get[[]byte](t)(os.ReadFile(path))
	if found, err := read(append(whole, longer[len(whole):][:3]...)); err != nil || !found {
		t.Errorf("cut off in a change: found %t, %v", found, err)
	}
}

// The file of a SQLite database is removed, and then replaced by a backup from before the gateway
// started. The gateway notices both: it does not go on with the old file, in which operators change
// nothing.
func TestSQLiteFileIsReplaced(t *testing.T) {
	t.Parallel()
	url := testkit.SQLite(t)
	path := strings.TrimPrefix(url, "sqlite:")
	db := openDB(t, url)
	store := keystore.New(db, nil, nil, "test")
	tenant, key, hash := fixture(t, store)
	execute(t, db, "VACUUM INTO '"+path+".backup'")
	d := start(t, openStore(t, url), Config{})
	for range 3 { // it now has connections for all that it does
		_, late := addKey(t, store, tenant.ID)
		eventually(t, "a change arrives", func() bool { _, ok := d.Lookup(late); return ok })
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		must.Do(t, os.Rename(path+suffix, path+".away"+suffix))
	}
	eventually(t, "it reports that the file is gone", func() bool { return d.Behind() != nil })
	if _, ok := d.Lookup(hash); !ok || d.Ready() != nil {
		t.Errorf("without the file: known %t, ready %v", ok, d.Ready())
	}
	must.Do(t, os.Rename(path+".backup", path))
	operator := openStore(t, url)
	eventually(t, "it registers in the backup", func() bool {
		gateways, err := operator.Gateways(t.Context())
		return err == nil && len(gateways) == 1
	})
	confirmed(t, operator)(operator.RevokeKey(t.Context(), key.ID))
	if e, ok := d.Lookup(hash); !ok || e.RevokedAt == 0 {
		t.Errorf("after a revocation in the backup: %t %+v", ok, e)
	}
	eventually(t, "it reports that it follows", func() bool { return d.Behind() == nil })
}

// The database accepts no writes, for example because its file system is read-only. This is an
// outage, which ends by itself.
func TestReadOnlyDatabaseIsAnOutage(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, db *database.DB, store *keystore.Store) {
		tenant, key, hash := fixture(t, store)
		killed := opened(t, store, Config{GatewayID: "gw-2", Snapshot: snapshotPath(t)})
		killed.Usage().Count(usage.Request{Tenant: tenant.ID, Key: key.ID, Outcome: "ok", At: 1})
		killed.Usage().Leave(errors.New("away"))
		killed.snapshot.Close()
		db.SetMaxOpenConns(1) // so that the statements below concern all that the gateway does
		d := opened(t, keystore.New(db, nil, nil, "gw-1"), Config{})
		sync := func() error {
			d.follower.beatAt = time.Time{} // a heartbeat is due
			err := d.sync(t.Context())
			d.report(err)
			return err
		}
		begin, end := `PRAGMA query_only = 1`, `PRAGMA query_only = 0`
		if db.Dialect() == database.Postgres {
			begin, end = `SET default_transaction_read_only = on`, `SET default_transaction_read_only = off`
		}
		execute(t, db, begin)
		if err := sync(); !errors.Is(err, keystore.ErrUnavailable) {
			t.Errorf("a heartbeat that cannot be written: %v", err)
		}
		next := opened(t, store, killed.cfg)
		if kept := next.Usage().Earlier(); len(kept) != 1 || next.Behind() == nil {
			t.Errorf("the file has the usage of %v, behind: %v", kept, next.Behind())
		}
		next.snapshot.Close()
		if _, ok := d.Lookup(hash); !ok || d.Ready() != nil || d.Behind() == nil {
			t.Errorf("known %t, ready: %v, behind: %v", ok, d.Ready(), d.Behind())
		}
		execute(t, db, end)
		if err := sync(); err != nil || d.Behind() != nil {
			t.Errorf("afterwards: %v, behind: %v", err, d.Behind())
		}
	})
}

// unchecked lets a test write rows that no program writes.
func unchecked(t *testing.T, db *database.DB) {
	t.Helper()
	if db.Dialect() == database.SQLite {
		execute(t, db, `DROP TRIGGER events_form; DROP TRIGGER tenant_keys_environment`)
		return
	}
	execute(
		t,
		db,
		`ALTER TABLE events DROP CONSTRAINT events_form; ALTER TABLE tenant_keys DROP CONSTRAINT tenant_keys_environment`,
	)
}

// An event that cannot be read does not stop the gateway from following: the changes after it are
// applied and confirmed.
func TestUnreadableEventIsPassed(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, db *database.DB, store *keystore.Store) {
		_, key, hash := fixture(t, store)
		d := start(t, store, Config{})
		unchecked(t, db)
		for _, id := range []string{"not-an-id", "ten_", "ten_uuuuuuuuuuuuuuuu"} {
			execute(t, db,
				`INSERT INTO events SELECT MAX(id) + 1, 'poison', 0, 'x', 'x', $1, 'neither', '', '', '' FROM events`,
				id)
		}
		confirmed(t, store)(store.RevokeKey(t.Context(), key.ID))
		if e, _ := d.Lookup(hash); e.RevokedAt == 0 || d.Ready() != nil {
			t.Errorf("after the revocation: %+v, ready: %v", e, d.Ready())
		}
		if log := d.log.String(); !strings.Contains(log, "level=ERROR") ||
			!strings.Contains(log, "an event cannot be read") {
			t.Errorf("the log does not name it:\n%s", log)
		}
	})
}

// A gateway that cannot follow a database that is there is soon not ready: it may accept keys that
// were revoked.
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
		execute(t, db,
			`INSERT INTO events SELECT MAX(id) + 1, 'late', 0, 'x', 'key.updated', $1, $2, '', '', '' FROM events`,
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

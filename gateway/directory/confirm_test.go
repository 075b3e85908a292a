package directory

import (
	"testing"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// What a load or a tail has read is in the snapshot when it ends. A heartbeat confirms it only afterwards, because the process may be
// killed at any moment.
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

// A ban is imposed by a request. It does not wait for the follower, which may be applying many changes. While it is not in the database, it
// outlasts a load, and a shorter ban from the database. If it gets longer while it is written, it is written again.
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
	if bans, err := store.FindBans(t.Context(), id.Tenant{}, "", 99); err != nil || len(bans) != 1 || bans[0].Until != until+60_000 {
		t.Errorf("a ban that got longer while it was written: %+v, %v", bans, err)
	}
}

package directory

import (
	"os"
	"testing"

	"petgate/shared/core/apikey"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
)

// openWithSnapshot returns a directory with one key, and the key's row. The directory writes a snapshot only when the test calls
// takeSnapshot.
func openWithSnapshot(t *testing.T) (*Directory, keystore.KeyRow) {
	t.Helper()
	store := openStore(t, testkit.SQLite(t))
	tenant, key, hash := fixture(t, store)
	d, err := Open(t.Context(), store, Config{GatewayID: "gw-1", Snapshot: snapshotPath(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.snapshot.close()
		d.processes.close()
	})
	return d, keystore.KeyRow{Hash: hash, ID: key.ID, Tenant: tenant.ID, Environment: key.Environment, Scopes: key.Scopes}
}

// duringSnapshot runs f while a snapshot is being written, or just after, and returns when the snapshot is written.
func duringSnapshot(t *testing.T, d *Directory, f func()) {
	t.Helper()
	written := make(chan error, 1)
	go func() { written <- d.takeSnapshot() }()
	for taking := false; !taking && len(written) == 0; {
		d.snapshot.mu.Lock()
		taking = d.snapshot.taking
		d.snapshot.mu.Unlock()
	}
	f()
	if err := <-written; err != nil {
		t.Fatal(err)
	}
}

// A change that is applied while a snapshot is being written is in the snapshot: it may be confirmed before the file is there.
func TestChangeDuringASnapshotIsInIt(t *testing.T) {
	t.Parallel()
	d, key := openWithSnapshot(t)
	for at := range instant.Millis(30) {
		key.RevokedAt = at + 1
		duringSnapshot(t, d, func() {
			c := changes{keys: []keystore.KeyRow{key}}
			d.mu.Lock()
			c.apply(d.state.Load(), d.setBan)
			d.mu.Unlock()
			d.record(&c)
		})
		next := newState(&d.versions)
		if _, err := readSnapshot(d.snapshot.path, "gw-1", next.rows(next.setBan)); err != nil {
			t.Fatal(err)
		}
		if ref, known := next.findHash((*apikey.Hash)(&key.Hash)); !known || next.entry(ref).RevokedAt != key.RevokedAt {
			t.Fatalf("the revocation at %d is not in the snapshot", key.RevokedAt)
		}
	}
}

// A snapshot of the state before a load never becomes the file, because it lacks the load's changes.
func TestSnapshotFromBeforeALoadIsDropped(t *testing.T) {
	t.Parallel()
	d, _ := openWithSnapshot(t)
	for range 30 {
		duringSnapshot(t, d, d.snapshot.invalidate)
		if _, err := os.Stat(d.snapshot.path); !os.IsNotExist(err) {
			t.Fatalf("a snapshot from before the load is there: %v", err)
		}
	}
}

// A snapshot that lacks a change, because the change cannot be appended, is removed before the change is confirmed.
func TestSnapshotThatLacksAChangeIsRemoved(t *testing.T) {
	t.Parallel()
	d, key := openWithSnapshot(t)
	if err := d.takeSnapshot(); err != nil {
		t.Fatal(err)
	}
	if err := d.snapshot.file.File.Close(); err != nil { // writes fail from now on
		t.Fatal(err)
	}
	key.RevokedAt = 1
	d.record(&changes{keys: []keystore.KeyRow{key}})
	if _, err := os.Stat(d.snapshot.path); !os.IsNotExist(err) {
		t.Errorf("the file without the revocation is there: %v", err)
	}
}

package directory

import (
	"testing"

	"petgate/shared/core/apikey"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// Of many keys, each is found by its hash and no other is, also from a snapshot with many frames. A test in deploy/e2e loads a million keys.
func TestManyKeys(t *testing.T) {
	t.Parallel()
	const tenants, keys = 500, 5_000
	d := opened(t, openStore(t, testkit.SQLite(t)), Config{Snapshot: snapshotPath(t)})
	defer d.snapshot.Close()
	known := d.state.Load()
	for i := range tenants {
		known.setTenant(&keystore.TenantRow{ID: massTenant(i), Plan: "pro"})
	}
	for i := range keys {
		known.setKey(&keystore.KeyRow{ID: massKey(i), Hash: mass("hash", i), Tenant: massTenant(i % tenants), Scopes: "pets:read pets:write", Name: "default"})
	}
	must.Do(t, d.takeSnapshot())
	read := newState(&d.versions, d.cfg.Environment)
	if _, err := d.snapshot.Read(read.rows(read.setBan)); err != nil || read.err != nil {
		t.Fatal(err, read.err)
	}
	for what, s := range map[string]*state{"in memory": known, "from the snapshot": read} {
		if s.keys.len != keys || s.tenants.len != tenants {
			t.Errorf("%s: %d keys of %d tenants, want %d of %d", what, s.keys.len, s.tenants.len, keys, tenants)
		}
		for i := range keys {
			hash := apikey.Hash(mass("hash", i))
			ref, found := s.findHash(&hash)
			if !found || s.entry(ref).Key != massKey(i) || s.entry(ref).Tenant != massTenant(i%tenants) || !s.entry(ref).Limits.IsSet() {
				t.Fatalf("%s: key %d is not found, or is another one", what, i)
			}
			unknown := bogus(uint64(i))
			if _, found := s.findHash(&unknown); found {
				t.Fatalf("%s: a key that does not exist is found", what)
			}
		}
	}
}

//go:build e2e && linux

package main

import (
	"os"
	"path/filepath"
	"testing"

	"petgate/shared/core/id"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
)

// Keyadmin is killed at every write of restore, and for PostgreSQL during COMMIT too. Either the database is as it was, or it is
// restored. The backup stays good, and the key that was revoked after the backup is never accepted.
func TestRestoreIsKilledAnywhere(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		s := newMigrated(t, url)
		s.ok("tenant", "create", "acme")
		s.ok("key", "create", "acme", "--name", "kept")
		s.ok("key", "create", "acme", "--name", "leaked")
		leaked := keyID(s, "acme")
		path := filepath.Join(t.TempDir(), "backup")
		s.ok("backup", path)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		s.ok("key", "revoke", leaked, "-y")
		s.ok("tenant", "set-plan", "acme", "pro")
		look := func() string {
			return s.keyadmin("tenant", "list", "-o", "csv").stdout + s.keyadmin("key", "list", "-o", "csv").stdout
		}
		before, events := look(), s.events()
		plantHolds(t, url, s.open()).killAnywhere(func(n int) bool {
			k, err := keystore.Collect(s.store().Keys(t.Context(), id.Tenant{}))
			if err != nil || len(k) != 2 || k[0].RevokedAt+k[1].RevokedAt == 0 {
				t.Fatalf("killed at write %d: %+v, %v", n, k, err)
			}
			return look() != before || s.events() != events
		}, "restore", path, "--yes")
		s.want(exitDone, "Restored 1 tenant and 2 keys", "restore", path, "--yes")
		if tenant, err := s.store().Tenant(t.Context(), "acme"); err != nil || tenant.Plan != "free" {
			t.Errorf("the tenant: %+v, %v", tenant, err)
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != string(whole) {
			t.Errorf("the backup has changed, or %v", err)
		}
	})
}

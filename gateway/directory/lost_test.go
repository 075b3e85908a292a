package directory

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/keystore/backup"
	"petgate/shared/keystore/lists"
	"petgate/shared/testkit/must"
)

// rewind removes the events after last from the database, as if a fail-over had lost the latest
// commits.
func rewind(t *testing.T, db *database.DB, last keystore.Change, statements ...string) {
	t.Helper()
	tx, err := db.Begin()
	must.Do(t, err)
	defer tx.Rollback() // after Commit it does nothing
	for _, statement := range statements {
		must.Get[any](t)(tx.Exec(statement))
	}
	must.Get[any](t)(tx.Exec("DELETE FROM events WHERE id > $1", int64(last)))
	must.Do(t, tx.Commit())
}

// Refusals that the database has lost stay in force, also at a gateway that starts later, until an
// operator decides.
func TestRefusalsSurviveARewind(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, db *database.DB, store *keystore.Store) {
		d := start(t, store, Config{})
		tenant, revoked, revokedHash := fixture(t, store)
		rotated, rotatedHash := addKey(t, store, tenant.ID)
		banned, bannedHash := addKey(t, store, tenant.ID)
		struck, _ := addKey(t, store, tenant.ID)
		other := must.First[keystore.Tenant](t)(
			store.CreateTenant(t.Context(), keystore.TenantSpec{Name: "other", Plan: "free"}))
		_, suspendedHash := addKey(t, store, other.ID)
		last, err := store.LastEvent(t.Context())
		confirm(t, store)(last, err)
		ends, until := instant.Of(time.Now().Add(time.Minute)), instant.Of(time.Now().Add(time.Hour))
		_, _, _, err = store.RotateKey(t.Context(), rotated.ID, ends)
		must.Do(t, err)
		made(t)(store.AddBan(t.Context(), keystore.Ban{Key: banned.ID, Until: until, Notice: "unpaid"}))
		made(t)(store.AddBan(t.Context(), keystore.Ban{Key: struck.ID, Until: until + 1, Automatic: true}))
		made(t)(store.Suspend(t.Context(), other.ID))
		confirmed(t, store)(store.RevokeKey(t.Context(), revoked.ID))

		rewind(t, db, last, "DELETE FROM bans", "UPDATE tenants SET suspended = false",
			"DELETE FROM tenant_keys WHERE id IN (SELECT replaced_by FROM tenant_keys)",
			"UPDATE tenant_keys SET revoked_at = 0, grace_ends_at = 0, replaced_by = ''")
		refusedBy := func(d *running) bool {
			a, _ := d.Lookup(revokedHash)
			b, _ := d.Lookup(rotatedHash)
			c, _ := d.Lookup(bannedHash)
			s, _ := d.Lookup(suspendedHash)
			return a.RevokedAt != 0 && b.GraceEndsAt == ends && c.BannedUntil == until && c.BanNotice == "unpaid" &&
				s.Suspended
		}
		for lost := 0; lost < 3; {
			if !refusedBy(d) {
				t.Fatal("what the database has lost is let through")
			}
			lost = len(must.Get[[]keystore.LostRefusal](t)(store.LostRefusals(t.Context())))
		}
		eventually(t, "the ban is in the database again", func() bool {
			bans, err := lists.Of(store).FindBans(t.Context(), id.Tenant{}, "", 99)
			again := map[id.Key]keystore.Ban{}
			for _, b := range bans {
				b.Tenant, b.ImposedAt = id.Tenant{}, 0
				again[b.Key] = b.Ban
			}
			const why = "imposed again: the database had lost it"
			return err == nil && maps.Equal(again, map[id.Key]keystore.Ban{
				banned.ID: {Key: banned.ID, Until: until, Notice: "unpaid", Reason: why, By: "gw-1"},
				struck.ID: {Key: struck.ID, Until: until + 1, Automatic: true, Reason: why, By: "gw-1"},
			})
		})
		confirm(t, store)(store.LastEvent(t.Context()))
		log := d.log.String()
		must.Equal(t, strings.Count(log, "level=ERROR"), 5, "errors that were logged, in\n%s", log)
		for _, lost := range []fmt.Stringer{revoked.ID, rotated.ID, banned.ID, other.ID} {
			must.Equal(t, strings.Contains(log, lost.String()), true, "whether the log names %s", lost)
		}
		late := start(t, store, Config{GatewayID: "gw-2"})
		if !refusedBy(late) {
			t.Error("a gateway that starts later lets it through")
		}

		confirm(t, store)(store.DropLost(t.Context(), tenant.ID, revoked.ID))
		made(t)(store.Suspend(t.Context(), other.ID))
		confirmed(t, store)(store.Resume(t.Context(), other.ID))
		for _, d := range []*running{d, late} {
			if e, _ := d.Lookup(revokedHash); e.RevokedAt != 0 {
				t.Error("a revocation that was dropped is in force")
			}
			if e, _ := d.Lookup(suspendedHash); e.Suspended {
				t.Error("a suspension that was repeated and ended is in force")
			}
			if e, _ := d.Lookup(rotatedHash); e.GraceEndsAt != ends {
				t.Error("the rotation is forgotten")
			}
		}
	})
}

// A gateway that was restarted from its snapshot also remembers refusals that the database has
// lost.
func TestRefusalsOfASnapshotSurviveARewind(t *testing.T) {
	t.Parallel()
	db, proxied, proxy := proxiedDB(t)
	store := keystore.New(db, nil, nil, "test")
	tenant, key, hash := fixture(t, store)
	path := snapshotPath(t)
	d := start(t, proxied, Config{Snapshot: path})
	last, err := store.LastEvent(t.Context())
	confirm(t, store)(last, err)
	made(t)(store.Suspend(t.Context(), tenant.ID))
	confirmed(t, store)(store.RevokeKey(t.Context(), key.ID))
	proxy.Kill()
	d.awaitOutage(t)
	d.stop()
	again := start(t, proxied, Config{Snapshot: path})
	rewind(t, db, last, "UPDATE tenant_keys SET revoked_at = 0", "UPDATE tenants SET suspended = false")
	proxy.Restore(t)
	eventually(t, "it has listed what was lost", func() bool {
		refusals, err := store.LostRefusals(t.Context())
		return err == nil && len(refusals) == 2
	})
	if e, ok := again.Lookup(hash); !ok || e.RevokedAt == 0 {
		t.Errorf("let through: %t %+v", ok, e)
	}

	// A later change of the same key and tenant writes their rows to the snapshot. In the database,
	// these rows lack the refusals.
	confirm(t, store)(store.LastEvent(t.Context()))
	eventually(t, "the next snapshot is there", func() bool { _, err := os.Stat(path); return err == nil })
	confirmed(t, store)(
		store.AddBan(t.Context(), keystore.Ban{Key: key.ID, Until: instant.Of(time.Now().Add(time.Hour))}))
	proxy.Kill()
	again.awaitOutage(t)
	again.stop()
	third := start(t, proxied, Config{Snapshot: path})
	if e, ok := third.Lookup(hash); !ok || e.RevokedAt == 0 || !e.Suspended || e.BannedUntil == 0 {
		t.Errorf("let through after a change of the key: %t %+v", ok, e)
	}
}

// Rows can be newer than the event that a gateway has applied. After a restore to a later event,
// they are read again.
func TestRestoreAheadOfTheGateway(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, db *database.DB, store *keystore.Store) {
		ctx := t.Context()
		tenant, _, hash := fixture(t, store)
		d, err := Open(ctx, store, Config{GatewayID: "gw-1"})
		if err == nil {
			err = d.sync(ctx)
		}
		must.Do(t, err)
		made(t)(store.Suspend(ctx, tenant.ID))
		synced(t, d)
		made(t)(store.Resume(ctx, tenant.ID))
		file := must.Get[*os.File](t)(os.Create(filepath.Join(t.TempDir(), "backup")))
		defer file.Close()
		must.Get[backup.Header](t)(backup.Write(ctx, store, file, nil))
		from := must.Get[backup.File](t)(backup.Read(file, nil))
		// The event of this change is one that the gateway has not reached.
		execute(t, db, "UPDATE tenants SET plan = 'pro'")
		synced(t, d)
		if e, _ := d.Lookup(hash); e.Plan != "pro" {
			t.Fatalf("the plan before the restore is %q", e.Plan)
		}
		restore := must.Get[*backup.Restore](t)(backup.Prepare(ctx, store, from))
		defer restore.Close()
		change := must.Get[keystore.Change](t)(restore.Commit(ctx, false, false))
		synced(t, d)
		if e, _ := d.Lookup(hash); e.Plan != "free" || e.Suspended || !applied(t, store, change) {
			t.Errorf("after the restore: plan %q, suspended %t, confirmed %t", e.Plan, e.Suspended,
				applied(t, store, change))
		}
		if lost, err := store.LostRefusals(ctx); err != nil || len(lost) != 0 {
			t.Errorf("refusals that an operator had ended are forced: %v, %v", lost, err)
		}
	})
}

// What the database has lost is in force from the first request that sees the older copy, also
// where the copy's rows contradict it.
func TestLostRefusalsAreInForceAtOnce(t *testing.T) {
	t.Parallel()
	var versions uint64
	read := func(row keystore.KeyRow, isSuspended bool, lost ...keystore.LostRefusal) *state {
		s := newState(&versions, 0)
		s.setLost(lost)
		s.setPlan(keystore.Plan{Name: "free"})
		s.setTenant(&keystore.TenantRow{Plan: "free", Suspended: isSuspended})
		s.setKey(&row)
		return s
	}
	for _, c := range []struct {
		now, older instant.Millis
		lost       int
	}{{4, 0, 1}, {5, 0, 0}, {4, 3, 1}, {4, 5, 0}} {
		known, older := read(keystore.KeyRow{DisabledAt: 5, GraceEndsAt: 9}, false), read(
			keystore.KeyRow{DisabledAt: 3, GraceEndsAt: 5}, false)
		known.setBan(keystore.BanRow{Until: 5})
		older.setBan(keystore.BanRow{Until: c.older})
		if refusals, bans := known.compare(older, c.now); len(bans) != c.lost ||
			len(refusals) > 0 { // the older copy refuses as much
			t.Errorf("at %d, of a ban until 5 where the older copy has one until %d: lost %v, %v", c.now, c.older, bans,
				refusals)
		}
	}
	for n, c := range []struct{ known, older keystore.KeyRow }{
		{keystore.KeyRow{RevokedAt: 5}, keystore.KeyRow{}},
		{keystore.KeyRow{RevokedAt: 5}, keystore.KeyRow{DisabledAt: 3}},
		{keystore.KeyRow{DisabledAt: 5}, keystore.KeyRow{}},
		{keystore.KeyRow{GraceEndsAt: 5}, keystore.KeyRow{}},
		{keystore.KeyRow{GraceEndsAt: 5}, keystore.KeyRow{GraceEndsAt: 9}},
		{keystore.KeyRow{RevokedAt: 7, GraceEndsAt: 5}, keystore.KeyRow{GraceEndsAt: 9}},
	} {
		before, next := read(c.known, n > 0), read(c.older, false)
		refusals, _ := before.compare(next, 0)
		next.force(refusals)
		want := before.entry(0)
		later := read(c.older, false, refusals...)
		for who, s := range map[string]*state{"this gateway": next, "one that loads later": later} {
			got := s.entry(0)
			isDisabled := got.RevokedAt == 0 && got.DisabledAt != 0
			if got.Suspended != want.Suspended || got.RevokedAt != want.RevokedAt ||
				got.GraceEndsAt != want.GraceEndsAt || isDisabled != (want.DisabledAt != 0) {
				t.Errorf("case %d, %s: suspended: %t, disabled: %t, revoked at %d, want %d; the grace period ends at %d, want %d",
					n, who, got.Suspended, isDisabled, got.RevokedAt, want.RevokedAt, got.GraceEndsAt, want.GraceEndsAt)
			}
		}
		if one := newLost(refusals[:1]); !one.touched(nil) || next.lost.graceEndsAt(id.Key{}, 1) != 1 ||
			n == 0 && one.revokedAt(id.Key{}, 9) != 9 {
			t.Errorf("case %d: no event touches %v, or a later revocation or a shorter grace period does not count", n,
				refusals[0])
		}
	}
	none := newLost(nil)
	if none.touched([]keystore.EventRow{{Kind: keystore.KeyRevoked}}) ||
		!none.touched([]keystore.EventRow{{Kind: keystore.RefusalLost}}) {
		t.Error("the list of lost refusals is read again after other events than its own")
	}
}

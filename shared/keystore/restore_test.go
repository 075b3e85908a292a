package keystore_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// A new table is copied, or it is left out with a reason.
func TestEveryTableIsCopied(t *testing.T) {
	left := []string{"gateways", "console_sessions", "operators", "operator_requests", "unreported_requests", "keystore_schema"}
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		db := open(t, url)
		query := `SELECT tablename FROM pg_tables WHERE schemaname = ANY (current_schemas(false))`
		if db.Dialect() == database.SQLite {
			query = `SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'`
		}
		var tables []string
		must.Do(t, db.Select(&tables, query))
		want := slices.Concat(keystore.Migrations.Tables, left)
		slices.Sort(tables)
		slices.Sort(want)
		wantEqual(t, "tables", tables, want)
	})
}

// backup writes a backup of the store and reads it.
func backup(t *testing.T, s *keystore.Store) (keystore.Backup, *os.File) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "backup"))
	must.Do(t, err)
	t.Cleanup(func() { file.Close() })
	written, err := s.WriteBackup(t.Context(), file, nil)
	must.Do(t, err)
	b, err := keystore.ReadBackup(file, nil)
	must.Do(t, err)
	if !reflect.DeepEqual(b.BackupHeader, written) {
		t.Errorf("the header is read as %+v, it was written as %+v", b.BackupHeader, written)
	}
	return b, file
}

func keyOf(t *testing.T, s *keystore.Store, tenant id.Tenant, name string) keystore.Key {
	t.Helper()
	k, _ := newKey(t, s, keystore.KeySpec{Tenant: tenant, Name: name})
	return k
}

func prepare(t *testing.T, s *keystore.Store, b keystore.Backup) *keystore.Restore {
	t.Helper()
	r, err := s.PrepareRestore(t.Context(), b)
	must.Do(t, err)
	t.Cleanup(r.Close)
	return r
}

// A live database is restored: what it refuses since the backup stays refused.
func TestRestoreKeepsNewerRefusals(t *testing.T) {
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		ctx := t.Context()
		acme, globex := newTenant(t, s, "acme"), newTenant(t, s, "globex")
		revoked, rotated, replaced := keyOf(t, s, acme.ID, "revoked"), keyOf(t, s, acme.ID, "rotated"), keyOf(t, s, acme.ID, "replaced")
		banned, untouched := keyOf(t, s, acme.ID, "banned"), keyOf(t, s, globex.ID, "untouched")
		must.Get[keystore.Ban](t)(first(s.AddBan(ctx, keystore.Ban{Key: banned.ID, Until: c.millis().Add(48 * time.Hour), Reason: "a longer ban, which is lifted"})))
		must.Get[keystore.Change](t)(s.LiftBan(ctx, banned.ID))
		b, _ := backup(t, s)

		c.now = c.now.Add(time.Minute)
		grace := c.millis().Add(time.Hour)
		must.Get[keystore.Key](t)(first(s.RevokeKey(ctx, revoked.ID)))
		fresh := rotate(t, s, rotated.ID, grace)
		fresher := rotate(t, s, fresh.ID, grace)
		instead := rotate(t, s, replaced.ID, c.millis())
		must.Get[keystore.Tenant](t)(first(s.Suspend(ctx, globex.ID)))
		for _, key := range []id.Key{banned.ID, instead.ID} {
			must.Get[keystore.Ban](t)(first(s.AddBan(ctx, keystore.Ban{Key: key, Until: grace, Reason: "scraping", Notice: "wait"})))
		}
		created := keyOf(t, s, acme.ID, "created")
		code, _, err := s.InviteToConsole(ctx, keystore.ConsoleInvitation{Valid: time.Hour, Lasts: time.Hour})
		must.Do(t, err)
		token, _, err := s.OpenConsole(ctx, code, "")
		must.Do(t, err)
		g := registered(t, s, keystore.Registration{ID: "gw-1", Incarnation: "one"})
		events := must.Get[[]keystore.Event](t)(keystore.Collect(s.Events(ctx, keystore.EventFilter{}, 0)))
		last := events[len(events)-1]
		must.Get[keystore.Beat](t)(s.Heartbeat(ctx, g, last.ID, last.UUID))
		saved := []keystore.QuotaRecord{{QuotaName: keystore.QuotaName{Tenant: acme.ID}, Record: []byte{1, 2}}}
		must.Do(t, s.SaveQuotas(ctx, c.millis(), saved))

		used := []keystore.UsageRow{
			{Tenant: globex.ID, Key: untouched.ID, Operation: "listPets", Outcome: "ok", Charged: true, Hour: 3_600_000, Requests: 1, LastAt: c.millis()},
			{Tenant: globex.ID, Key: untouched.ID, Outcome: "key_banned", Hour: 3_600_000, Requests: 1, LastAt: c.millis()},
		}
		add(t, s, g, 1, used)

		r := prepare(t, s, b)
		var newer []string
		for _, n := range r.Newer {
			newer = append(newer, n.Kind+" "+n.TenantName+"/"+n.KeyName)
		}
		slices.Sort(newer)
		wantEqual(t, "newer refusals", newer, []string{
			"banned acme/banned", "banned acme/replaced", "revoked acme/replaced", "revoked acme/revoked", "rotated acme/rotated", "suspended globex/",
		})
		lost := map[string]int64{}
		for _, l := range r.Lost {
			lost[l.Kind] = l.Number
		}
		wantEqual(t, "lost changes", lost, map[string]int64{
			keystore.KeyRevoked: 1, keystore.KeyRotated: 3, keystore.KeyCreated: 4, keystore.TenantSuspended: 1, keystore.BanAdded: 2,
			keystore.ConsoleInvited: 1, keystore.ConsoleOpened: 1,
		})
		change, err := r.Commit(ctx, false, true)
		must.Do(t, err)
		key := func(key id.Key) keystore.Key { return must.Get[keystore.Key](t)(s.Key(ctx, key)) }
		if k := key(revoked.ID); k.RevokedAt != c.millis() {
			t.Errorf("the revoked key: %+v", k)
		}
		if k := key(rotated.ID); k.GraceEndsAt != grace || k.ReplacedBy != fresh.ID {
			t.Errorf("the rotated key: %+v", k)
		}
		if k := key(fresh.ID); k.GraceEndsAt != grace || k.ReplacedBy != fresher.ID {
			t.Errorf("the key that replaced it: %+v", k)
		}
		key(fresher.ID)
		if k := key(replaced.ID); k.RevokedAt == 0 || k.ReplacedBy != instead.ID {
			t.Errorf("the key that was replaced at once: %+v", k)
		}
		if k := key(untouched.ID); k.RevokedAt != 0 || k.GraceEndsAt != 0 || k.LastUsedAt != c.millis() || k.RefusedAt != c.millis() {
			t.Errorf("a key that nobody changed: %+v", k)
		}
		_, err = s.Key(ctx, created.ID)
		wantError(t, err, keystore.ErrNotFound)
		if tenant := must.Get[keystore.Tenant](t)(s.Tenant(ctx, "globex")); !tenant.Suspended {
			t.Error("the suspension is lost")
		}
		bans := must.Get[[]keystore.NamedBan](t)(s.FindBans(ctx, id.Tenant{}, "", 99))
		if len(bans) != 2 || bans[0].Until != grace || bans[0].Notice != "wait" {
			t.Errorf("bans: %+v", bans)
		}
		_, err = s.ConsoleSession(ctx, token)
		wantError(t, err, keystore.ErrNotFound)
		wantEqual(t, "quotas", must.Get[[]keystore.QuotaRecord](t)(s.LoadQuotas(ctx)), saved)

		// The gateway has confirmed nothing of this, and loads again.
		gateways := must.Get[[]keystore.Gateway](t)(s.Gateways(ctx))
		if len(gateways) != 1 || gateways[0].Applied >= change {
			t.Errorf("gateways: %+v; the change is %d", gateways, change)
		}
		_, err = s.Heartbeat(ctx, g, last.ID, last.UUID)
		wantError(t, err, keystore.ErrRewound)
		restored := must.Get[[]keystore.Event](t)(keystore.Collect(s.Events(ctx, keystore.EventFilter{}, 0)))
		at := slices.IndexFunc(restored, func(e keystore.Event) bool { return e.Kind == keystore.Restored })
		if restored[at].ID != last.ID+1 || restored[at-1].ID != b.LastEvent || restored[at].Actor != "ada" ||
			!strings.Contains(restored[at].After, `"reapplied":6`) {
			t.Errorf("the event of the restore: %+v after %d", restored[at], restored[at-1].ID)
		}
	})
}

func first[T any](value T, _ keystore.Change, err error) (T, error) { return value, err }

func rotate(t *testing.T, s *keystore.Store, key id.Key, grace instant.Millis) keystore.Key {
	t.Helper()
	k, _, _, err := s.RotateKey(t.Context(), key, grace)
	must.Do(t, err)
	return k
}

// What is lost on demand is lost, and what changes between question and answer stops the restore.
func TestRestoreLosesNewerRefusals(t *testing.T) {
	eachStore(t, func(t *testing.T, s *keystore.Store, _ *clock) {
		ctx := t.Context()
		acme := newTenant(t, s, "acme")
		one, two := keyOf(t, s, acme.ID, "one"), keyOf(t, s, acme.ID, "two")
		b, _ := backup(t, s)
		r := prepare(t, s, b)
		fresh := rotate(t, s, two.ID, instant.Millis(1_800_000_100_000))
		_, err := r.Commit(ctx, true, true)
		wantError(t, err, keystore.ErrChanged)
		must.Get[keystore.Key](t)(s.Key(ctx, fresh.ID))

		r = prepare(t, s, b)
		must.Get[keystore.Key](t)(first(s.RevokeKey(ctx, one.ID)))
		must.Get[keystore.Key](t)(first(s.RevokeKey(ctx, fresh.ID)))
		must.Get[keystore.Change](t)(prepare(t, s, b).Commit(ctx, false, false))
		if k := must.Get[keystore.Key](t)(s.Key(ctx, fresh.ID)); k.RevokedAt == 0 {
			t.Error("the key that replaced another is as it was when the restore was prepared")
		}
		must.Get[keystore.Change](t)(r.Commit(ctx, true, false))
		for _, key := range []id.Key{one.ID, two.ID} {
			if k := must.Get[keystore.Key](t)(s.Key(ctx, key)); k.RevokedAt != 0 || k.GraceEndsAt != 0 {
				t.Errorf("it is still refused: %+v", k)
			}
		}
		_, err = s.Key(ctx, fresh.ID)
		wantError(t, err, keystore.ErrNotFound)
	})
}

// A backup of one database fills an empty one of the other kind, and both have the same rows.
func TestRestoreIntoAnEmptyDatabase(t *testing.T) {
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		ctx := t.Context()
		acme := newTenant(t, s, "Zoë & <Söhne>")
		k := keyOf(t, s, acme.ID, "a \"quoted\" name ü <&>")
		must.Get[keystore.Key](t)(first(s.RevokeKey(ctx, k.ID)))
		must.Get[keystore.Ban](t)(first(s.AddBan(ctx, keystore.Ban{Key: k.ID, Until: c.millis().Add(time.Hour), Reason: "x"})))
		must.Do(t, s.SaveQuotas(ctx, c.millis(), []keystore.QuotaRecord{{QuotaName: keystore.QuotaName{Tenant: acme.ID}, Record: []byte{0, 255, 1}}}))
		g := registered(t, s, keystore.Registration{ID: "gw-1", Incarnation: "one"})
		add(t, s, g, 1, []keystore.UsageRow{
			{Tenant: acme.ID, Key: k.ID, Operation: "listPets", Outcome: "ok", Charged: true, Hour: 3_600_000, Requests: 7, LastAt: c.millis()},
		})
		seal := must.Get[keystore.UsageSeal](t)(s.SealUsage(ctx))
		b, _ := backup(t, s)
		testkit.EachDatabase(t, func(t *testing.T, url string) {
			other := keystore.New(open(t, url), c.read, nil, "ada")
			r := prepare(t, other, b)
			if r.Live || len(r.Newer)+len(r.Lost) > 0 {
				t.Errorf("the empty database: %+v", r)
			}
			must.Get[keystore.Change](t)(r.Commit(t.Context(), false, true))
			if n := len(must.Get[[]keystore.Gateway](t)(other.Gateways(t.Context()))); n != 0 {
				t.Errorf("%d gateways of the backup are registered", n)
			}
			again, _ := backup(t, other)
			for i, table := range again.Tables {
				want := b.Tables[i]
				switch table.Name {
				case "events":
					if table.Sum.Rows != want.Sum.Rows+1 {
						t.Errorf("%d events, there were %d", table.Sum.Rows, want.Sum.Rows)
					}
				case "usage_ledger":
					next := must.Get[keystore.UsageSeal](t)(other.SealUsage(t.Context()))
					if next.Installation != seal.Installation || next.Through < seal.Through || next.Number < int64(c.millis()) {
						t.Errorf("the next seal is %+v after %+v: the lost database, or another restore of this backup, may have used its number", next, seal)
					}
				case "gateway_registry":
					if next := must.Get[int64](t)(other.Register(t.Context(), g, nil)); next <= g.Generation {
						t.Errorf("the generation is %d, it was %d", next, g.Generation)
					}
				default:
					wantEqual(t, table.Name, table.Sum.Digest, want.Sum.Digest)
				}
			}
		})
	})
}

// A line is not read without a limit.
func TestBackupWithALongLine(t *testing.T) {
	s := keystore.New(open(t, testkit.SQLite(t)), nil, nil, "ada")
	newTenant(t, s, "acme")
	_, file := backup(t, s)
	whole, err := os.ReadFile(file.Name())
	must.Do(t, err)
	text := bytes.Replace(whole, []byte(`"acme"`), append(bytes.Repeat([]byte("a"), 2<<20), '"'), 1)
	_, err = keystore.ReadBackup(bytes.NewReader(text), nil)
	wantError(t, err, keystore.ErrNoBackup, "a row of tenants is longer than 1048576 bytes")
}

// With its key, a backup that somebody has changed is refused, even if all sums are right.
func TestSignedBackup(t *testing.T) {
	s := keystore.New(open(t, testkit.SQLite(t)), nil, nil, "ada")
	newTenant(t, s, "acme")
	file, err := os.Create(filepath.Join(t.TempDir(), "backup"))
	must.Do(t, err)
	defer file.Close()
	key := []byte("0123456789abcdef")
	must.Get[keystore.BackupHeader](t)(s.WriteBackup(t.Context(), file, key))
	_, unsigned := backup(t, s)
	for name, c := range map[string]struct {
		file *os.File
		key  string
		good bool
	}{
		"its key": {file, string(key), true}, "no key": {file, "", true}, "another key": {file, "0123456789abcdeg", false},
		"sums without a MAC": {unsigned, string(key), false}, // who changes a file can do no more
	} {
		if _, err := keystore.ReadBackup(c.file, []byte(c.key)); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDamagedBackup(t *testing.T) {
	s := keystore.New(open(t, testkit.SQLite(t)), nil, nil, "ada")
	newTenant(t, s, "acme")
	_, file := backup(t, s)
	whole, err := os.ReadFile(file.Name())
	must.Do(t, err)
	for name, text := range map[string][]byte{
		"empty":         nil,
		"another file":  bytes.Repeat([]byte("petgate "), 2000),
		"cut off":       whole[:len(whole)-10],
		"no rows":       whole[:8192],
		"longer":        append(bytes.Clone(whole), "[]\n"...),
		"another name":  bytes.Replace(whole, []byte(`"acme"`), []byte(`"acne"`), 1),
		"later form":    bytes.Replace(whole, []byte(`"version":1`), []byte(`"version":2`), 1),
		"another event": bytes.Replace(whole, []byte(`"lastEvent":1,`), []byte(`"lastEvent":7,`), 1),
		"another table": bytes.Replace(whole, []byte(`"rows":4,`), []byte(`"rows":3,`), 1),
	} {
		_, err := keystore.ReadBackup(bytes.NewReader(text), nil)
		if err == nil || name != "empty" && !strings.Contains(err.Error(), keystore.ErrNoBackup.Error()) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A backup of an earlier schema is restored as the migrations since would have changed its database. A later one is refused.
func TestRestoreOfAnotherSchema(t *testing.T) {
	file, err := os.Open("testdata/schema-8.backup")
	must.Do(t, err)
	defer file.Close()
	earlier, err := keystore.ReadBackup(file, nil)
	must.Do(t, err)
	t.Setenv("TMPDIR", t.TempDir())
	eachStore(t, func(t *testing.T, s *keystore.Store, _ *clock) {
		ctx := t.Context()
		wantRestored := func() {
			t.Helper()
			acme, globex := must.Get[keystore.Tenant](t)(s.Tenant(ctx, "acme")), must.Get[keystore.Tenant](t)(s.Tenant(ctx, "globex"))
			if acme.Override.Month != 0 || !globex.Suspended || globex.Plan != "gold" {
				t.Errorf("tenants: %+v, %+v", acme, globex)
			}
			var keys []string
			for _, k := range must.Get[[]keystore.Key](t)(keystore.Collect(s.Keys(ctx, id.Tenant{}))) {
				keys = append(keys, fmt.Sprintf("%s %s %t %v %v", k.Name, k.Environment, k.RevokedAt == 0, k.Allow, k.Limits))
			}
			slices.Sort(keys)
			wantEqual(t, "keys", keys, []string{
				"app test true [10.0.0.0/8] {0 0 0}", "ci live true [] {0 0 0}", "crawler live true [] {0 0 0}", "leaked live false [] {0 0 0}",
			})
			bans := must.Get[[]keystore.NamedBan](t)(s.FindBans(ctx, id.Tenant{}, "", 99))
			if len(bans) != 1 || bans[0].Notice != "call us" || bans[0].Automatic {
				t.Errorf("bans: %+v", bans)
			}
		}
		r := prepare(t, s, earlier)
		must.Get[keystore.Change](t)(r.Commit(ctx, false, true))
		r.Close()
		wantRestored()
		restored, _ := backup(t, s)
		for table, rows := range map[string]int64{"events": 10, "usage_hours": 2, "quota_records": 1, "plans": 5} {
			wantEqual(t, table, restored.Rows(table), rows)
		}

		newTenant(t, s, "initech")
		r = prepare(t, s, earlier)
		wantEqual(t, "lost changes", len(r.Lost), 2)
		must.Get[keystore.Change](t)(r.Commit(ctx, false, true))
		r.Close()
		wantRestored()
		if left, err := filepath.Glob(filepath.Join(os.TempDir(), "petgate-restore-*")); err != nil || len(left) > 0 {
			t.Errorf("files that are left: %v, %v", left, err)
		}

		later := restored
		later.Schema = 999
		_, err := s.PrepareRestore(ctx, later)
		wantError(t, err, keystore.ErrSchema, "schema 999", "use the version that wrote it, or a later one")
	})
}

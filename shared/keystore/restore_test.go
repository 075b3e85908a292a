package keystore_test

import (
	"bytes"
	"errors"
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
	"petgate/shared/core/plan"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/keystore/backup"
	"petgate/shared/keystore/lists"
	"petgate/shared/keystore/schema"
	"petgate/shared/keystore/sessions"
	"petgate/shared/keystore/usage"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// A new table is copied, or it is left out with a reason.
func TestEveryTableIsCopied(t *testing.T) {
	left := []string{
		"gateways", "console_sessions", "operators", "operator_requests", "unreported_requests", "keys_schema",
	}
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		db := open(t, url)
		query := `SELECT tablename FROM pg_tables WHERE schemaname = ANY (current_schemas(false))`
		if db.Dialect() == database.SQLite {
			query = `SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'`
		}
		var tables []string
		must.Do(t, db.Select(&tables, query))
		want := slices.Concat(schema.Migrations.Tables, left)
		slices.Sort(tables)
		slices.Sort(want)
		wantEqual(t, "tables", tables, want)
	})
}

// backedUp writes a backup of the store and reads it.
func backedUp(t *testing.T, s *keystore.Store) backup.File {
	t.Helper()
	return must.Get[backup.File](t)(backup.Read(signedBackup(t, s, nil), nil))
}

func signedBackup(t *testing.T, s *keystore.Store, key []byte) *os.File {
	t.Helper()
	file := must.Get[*os.File](t)(os.Create(filepath.Join(t.TempDir(), "backup")))
	t.Cleanup(func() { file.Close() })
	written := must.Get[backup.Header](t)(backup.Write(t.Context(), s, file, key))
	if b, err := backup.Read(file, key); err != nil || !reflect.DeepEqual(b.Header, written) {
		t.Errorf("the header is read as %+v, %v; it was written as %+v", b.Header, err, written)
	}
	return file
}

func keyOf(t *testing.T, s *keystore.Store, tenant id.Tenant, name string) keystore.Key {
	t.Helper()
	k, _ := newKey(t, s, keystore.KeySpec{Tenant: tenant, Name: name})
	return k
}

func prepare(t *testing.T, s *keystore.Store, b backup.File) *backup.Restore {
	t.Helper()
	r := must.Get[*backup.Restore](t)(backup.Prepare(t.Context(), s, b))
	t.Cleanup(r.Close)
	return r
}

// A live database is restored: what it refuses since the backup stays refused.
func TestRestoreKeepsNewerRefusals(t *testing.T) {
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		ctx := t.Context()
		acme, globex := newTenant(t, s, "acme"), newTenant(t, s, "globex")
		revoked, rotated, replaced := keyOf(t, s, acme.ID, "revoked"), keyOf(t, s, acme.ID, "rotated"), keyOf(t, s,
			acme.ID, "replaced")
		banned, untouched := keyOf(t, s, acme.ID, "banned"), keyOf(t, s, globex.ID, "untouched")
		must.First[keystore.Ban](t)(
			s.AddBan(
				ctx,
				keystore.Ban{
					Key:    banned.ID,
					Until:  c.millis().Add(48 * time.Hour),
					Reason: "a longer ban, which is lifted",
				},
			),
		)
		must.Get[keystore.Change](t)(s.LiftBan(ctx, banned.ID))
		must.First[keystore.Tenant](t)(s.Suspend(ctx, newTenant(t, s, "suspended before").ID))
		disabled, paused := keyOf(t, s, acme.ID, "disabled"), must.First[keystore.Key](t)(
			s.DisableKey(ctx, keyOf(t, s, acme.ID, "paused").ID),
		)
		ending := keyOf(t, s, acme.ID, "ending")
		rotate(t, s, ending.ID, c.millis().Add(3*time.Hour))
		for _, key := range []id.Key{disabled.ID, paused.ID} {
			must.First[keystore.Ban](t)(
				s.AddBan(ctx, keystore.Ban{Key: key, Until: c.millis().Add(2 * time.Hour), Reason: "before"}),
			)
		}
		b := backedUp(t, s)

		c.now = c.now.Add(time.Minute)
		grace := c.millis().Add(time.Hour)
		must.First[keystore.Key](t)(s.RevokeKey(ctx, revoked.ID))
		must.First[keystore.Key](t)(s.RevokeKey(ctx, paused.ID))
		must.First[keystore.Key](t)(s.DisableKey(ctx, disabled.ID))
		must.First[keystore.Key](t)(s.ShortenGrace(ctx, ending.ID, grace))
		must.First[keystore.Ban](t)(
			s.AddBan(ctx, keystore.Ban{Key: paused.ID, Until: grace.Add(2 * time.Hour), Reason: "longer"}),
		)
		must.First[keystore.Ban](t)(
			s.AddBan(ctx, keystore.Ban{Key: untouched.ID, Until: grace, Reason: "lifted since"}),
		)
		must.Get[keystore.Change](t)(s.LiftBan(ctx, untouched.ID))
		must.First[keystore.Ban](t)(
			s.AddBan(ctx, keystore.Ban{Key: ending.ID, Until: c.millis(), ImposedAt: 1, Reason: "it has ended"}),
		)
		fresh := rotate(t, s, rotated.ID, grace)
		fresher := rotate(t, s, fresh.ID, grace)
		instead := rotate(t, s, replaced.ID, c.millis())
		must.First[keystore.Tenant](t)(s.Suspend(ctx, globex.ID))
		for _, key := range []id.Key{banned.ID, instead.ID} {
			must.First[keystore.Ban](t)(
				s.AddBan(ctx, keystore.Ban{Key: key, Until: grace, Reason: "scraping", Notice: "wait"}),
			)
		}
		created := keyOf(t, s, acme.ID, "created")
		code := must.First[string](t)(
			sessions.Of(s).InviteToConsole(ctx, sessions.ConsoleInvitation{Valid: time.Hour, Lasts: time.Hour}),
		)
		token := must.First[string](t)(sessions.Of(s).OpenConsole(ctx, code, ""))
		g := registered(t, s, keystore.Registration{ID: "gw-1", Incarnation: "one"})
		before := events(t, s)
		last := before[len(before)-1]
		must.Get[keystore.Beat](t)(s.Heartbeat(ctx, g, last.ID, last.UUID))
		saved := []usage.QuotaRecord{{QuotaName: usage.QuotaName{Tenant: acme.ID}, Record: []byte{1, 2}}}
		must.Do(t, usage.Of(s).SaveQuotas(ctx, c.millis(), saved))

		used := []usage.Row{
			{
				Tenant:    globex.ID,
				Key:       untouched.ID,
				Operation: "listPets",
				Outcome:   "ok",
				Charged:   true,
				Hour:      3_600_000,
				Requests:  1,
				LastAt:    c.millis(),
			},
			{Tenant: globex.ID, Key: untouched.ID, Outcome: "key_banned", Hour: 3_600_000, Requests: 1, LastAt: c.millis() + 1},
			{
				Tenant:    acme.ID,
				Key:       rotated.ID,
				Operation: "listPets",
				Outcome:   "ok",
				Charged:   true,
				Hour:      3_600_000,
				Requests:  1,
				LastAt:    c.millis(),
			},
			{Tenant: acme.ID, Key: revoked.ID, Outcome: "invalid_key", Hour: 3_600_000, Requests: 1, LastAt: c.millis()},
		}
		add(t, s, g, 1, used)

		r := prepare(t, s, b)
		var newer []string
		for _, n := range r.Newer {
			newer = append(newer,
				fmt.Sprint(n.Kind, " ", n.TenantName, "/", n.KeyName, " ", int64(max(0, n.At-c.millis()))))
		}
		slices.Sort(newer)
		wantEqual(t, "newer refusals", newer, []string{
			"banned acme/banned 3600000", "banned acme/paused 10800000", "banned acme/replaced 3600000", "disabled acme/disabled 0", "revoked acme/paused 0",
			"revoked acme/replaced 0", "revoked acme/revoked 0", "rotated acme/ending 3600000", "rotated acme/rotated 3600000", "suspended globex/ 0",
		})
		lost := map[string]int64{}
		for _, l := range r.Lost {
			lost[l.Kind] = l.Number
		}
		wantEqual(t, "lost changes", lost, map[string]int64{
			keystore.KeyRevoked: 2, keystore.KeyDisabled: 1, keystore.BanLifted: 1, keystore.KeyRotated: 4, keystore.KeyCreated: 4, keystore.TenantSuspended: 1, keystore.BanAdded: 5,
			keystore.ConsoleInvited: 1, keystore.ConsoleOpened: 1,
		})
		kept := map[id.Key]keystore.Key{} // with what was refused, and the last use
		for _, k := range []keystore.Key{revoked, rotated, fresh, fresher, replaced, untouched, disabled, paused, ending} {
			kept[k.ID] = must.Get[keystore.Key](t)(s.Key(ctx, k.ID))
		}
		change := must.Get[keystore.Change](t)(r.Commit(ctx, false, true))
		for key, want := range kept {
			wantEqual(t, want.Name, must.Get[keystore.Key](t)(s.Key(ctx, key)), want)
		}
		refused(t, keystore.ErrNotFound)(s.Key(ctx, created.ID))
		if tenant := must.Get[keystore.Tenant](t)(s.Tenant(ctx, "globex")); !tenant.Suspended {
			t.Error("the suspension is lost")
		}
		bans := must.Get[[]lists.NamedBan](t)(lists.Of(s).FindBans(ctx, id.Tenant{}, "", 99))
		if len(bans) != 4 || bans[0].Until != grace || bans[0].Notice != "wait" ||
			bans[3].Until != grace.Add(2*time.Hour) {
			t.Errorf("bans: %+v", bans)
		}
		refused(t, keystore.ErrNotFound)(sessions.Of(s).ConsoleSession(ctx, token))
		wantEqual(t, "quotas", must.Get[[]usage.QuotaRecord](t)(usage.Of(s).LoadQuotas(ctx)), saved)

		// The gateway has confirmed nothing of this, and loads again.
		if all := gateways(t, s); len(all) != 1 || all[0].Applied >= change {
			t.Errorf("gateways: %+v; the change is %d", all, change)
		}
		refused(t, keystore.ErrRewound)(s.Heartbeat(ctx, g, last.ID, last.UUID))
		restored := events(t, s)
		at := slices.IndexFunc(restored, func(e keystore.Event) bool { return e.Kind == keystore.Restored })
		if restored[at].ID != last.ID+1 || restored[at-1].ID != b.LastEvent || restored[at].Actor != "ada" ||
			restored[at].After != fmt.Sprintf(`{"takenAt":%d,"reapplied":10}`, int64(b.TakenAt)) {
			t.Errorf("the event of the restore: %+v after %d", restored[at], restored[at-1].ID)
		}
		for _, e := range restored[at+1:] {
			if e.Kind == keystore.KeyCreated &&
				!strings.HasPrefix(e.After, fmt.Sprintf(`{"id":"%s","tenantId":"%s"`, e.Key, e.Tenant)) {
				t.Errorf("the event of a key that is kept: %+v", e)
			}
		}
	})
}

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
		b := backedUp(t, s)
		r := prepare(t, s, b)
		fresh := rotate(t, s, two.ID, instant.Millis(1_800_000_100_000))
		refused(t, backup.ErrChanged)(r.Commit(ctx, true, true))
		must.Get[keystore.Key](t)(s.Key(ctx, fresh.ID))

		r = prepare(t, s, b)
		must.First[keystore.Key](t)(s.RevokeKey(ctx, one.ID))
		must.First[keystore.Key](t)(s.RevokeKey(ctx, fresh.ID))
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
		refused(t, keystore.ErrNotFound)(s.Key(ctx, fresh.ID))

		three := keyOf(t, s, acme.ID, "three")
		later := backedUp(t, s)
		must.Get[keystore.Change](t)(prepare(t, s, b).Commit(ctx, true, false)) // by mistake
		must.Get[keystore.Change](t)(prepare(t, s, later).Commit(ctx, false, false))
		wantEqual(t, "a key that only the backup has", must.Get[keystore.Key](t)(s.Key(ctx, three.ID)), three)
	})
}

// A record may be older than its check. Changes of its other members are made, and a restore keeps
// its refusal.
func TestRecordsOlderThanTheirChecks(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		db := open(t, url)
		s := keystore.New(db, nil, nil, "ada")
		acme := newTenant(t, s, "acme")
		key := keyOf(t, s, acme.ID, "ci")
		run(t, db, "UPDATE tenants SET name = ' acme', minute_limit = 9, day_limit = 1")
		run(t, db, "UPDATE tenant_keys SET name = ' ci'")
		run(t, db, "UPDATE plans SET minute_limit = 9, day_limit = 1")
		b := backedUp(t, s)
		did(t, 2)(s.UpdatePlan(t.Context(), "free", plan.Limits{}, plan.Limits{})) // it changes nothing
		did(t, 3)(s.SetTerms(t.Context(), acme.ID, "pro", plan.Limits{}))
		did(t, 4)(s.UpdateKey(t.Context(), key.ID, func(k *keystore.Key) { k.Scopes = "pets:read" }))
		did(t, 5)(s.Suspend(t.Context(), acme.ID))
		did(t, 7)(prepare(t, s, b).Commit(t.Context(), false, false))
	})
}

// A backup of one database fills an empty one of the other kind, and both have the same rows.
func TestRestoreIntoAnEmptyDatabase(t *testing.T) {
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		ctx := t.Context()
		acme := newTenant(t, s, "Zoë & <Söhne>")
		k := keyOf(t, s, acme.ID, "a \"quoted\" name ü <&>")
		must.First[keystore.Key](t)(s.RevokeKey(ctx, k.ID))
		must.First[keystore.Ban](t)(
			s.AddBan(ctx, keystore.Ban{Key: k.ID, Until: c.millis().Add(time.Hour), Reason: "x"}),
		)
		must.Do(
			t,
			usage.Of(s).SaveQuotas(ctx, c.millis(),
				[]usage.QuotaRecord{{QuotaName: usage.QuotaName{Tenant: acme.ID}, Record: []byte{0, 255, 1}}}),
		)
		g := registered(t, s, keystore.Registration{ID: "gw-1", Incarnation: "one"})
		add(t, s, g, 1, []usage.Row{
			{
				Tenant:    acme.ID,
				Key:       k.ID,
				Operation: "listPets",
				Outcome:   "ok",
				Charged:   true,
				Hour:      3_600_000,
				Requests:  7,
				LastAt:    c.millis(),
			},
		})
		seal := must.Get[usage.Seal](t)(usage.Of(s).SealUsage(ctx))
		b := backedUp(t, s)
		testkit.EachDatabase(t, func(t *testing.T, url string) {
			other := keystore.New(open(t, url), c.read, nil, "ada")
			r := prepare(t, other, b)
			if r.Live || len(r.Newer)+len(r.Lost) > 0 {
				t.Errorf("the empty database: %+v", r)
			}
			second := prepare(t, other, b)
			must.Get[keystore.Change](t)(r.Commit(t.Context(), false, true))
			refused(t, backup.ErrChanged)(second.Commit(t.Context(), false, false)) // it is no longer empty
			wantEqual(t, "gateways of the backup", gateways(t, other), []keystore.Gateway{})
			again := backedUp(t, other)
			for i, table := range again.Tables {
				want := b.Tables[i]
				switch table.Name {
				case "events":
					must.Equal(t, table.Sum.Rows, want.Sum.Rows+1, "events")
				case "usage_ledger":
					next := must.Get[usage.Seal](t)(usage.Of(other).SealUsage(t.Context()))
					if next.Installation != seal.Installation || next.Through < seal.Through ||
						next.Number < int64(c.millis()) {
						t.Errorf(
							"the next seal is %+v after %+v: the lost database, or another restore of this backup, may have used its number",
							next,
							seal,
						)
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

// A backup that is damaged is refused, and with its key also one that somebody has changed, even if
// all sums are right.
func TestDamagedBackup(t *testing.T) {
	s := keystore.New(open(t, testkit.SQLite(t)), nil, nil, "ada")
	newTenant(t, s, "acme")
	const key = "0123456789abcdef"
	whole := must.Get[[]byte](t)(os.ReadFile(signedBackup(t, s, []byte(key)).Name()))
	unsigned := must.Get[[]byte](t)(os.ReadFile(signedBackup(t, s, nil).Name()))
	if bytes.Contains(unsigned, []byte(`"mac"`)) {
		t.Error("a backup without a key has a MAC")
	}
	with := func(before, after string) []byte { return bytes.Replace(whole, []byte(before), []byte(after), 1) }
	for _, c := range []struct {
		name, key, want string
		text            []byte
	}{
		{"as it was written", key, "", whole},
		{"no key", "", "", whole},
		{"another key", "0123456789abcdeg", "not written with this key", whole},
		{"sums without a MAC", key, "not written with this key", unsigned}, // who changes a file can do no more
		{"empty", "", "first line", nil},
		{"another file", "", "first line", bytes.Repeat([]byte("petgate "), 2000)},
		{"cut off", "", "it ends in the rows", whole[:len(whole)-10]},
		{"no rows", "", "it ends in the rows", whole[:8192]},
		{"longer", "", "after its last row", append(bytes.Clone(whole), "[]\n"...)},
		{"another name", "", "the rows of tenants do not match", with(`"acme"`, `"acne"`)},
		{"a line without a limit", "", "a row of tenants is longer than 1048576 bytes", with(`"acme"`, `"`+strings.Repeat("a", 2<<20)+`"`)},
		{"a later form", "", "it has the form 2", with(`"version":1`, `"version":2`)},
		{"another event", "", "first line does not match", with(`"lastEvent":1,`, `"lastEvent":7,`)},
		{"another table", "", "first line does not match", with(`"rows":4,`, `"rows":3,`)},
	} {
		_, err := backup.Read(bytes.NewReader(c.text), []byte(c.key))
		if (err == nil) != (c.want == "") ||
			err != nil && !(errors.Is(err, backup.ErrNoBackup) && strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// A backup of another schema is refused.
func TestRestoreOfAnotherSchema(t *testing.T) {
	eachStore(t, func(t *testing.T, s *keystore.Store, _ *clock) {
		b := backedUp(t, s)
		for more, cure := range map[int64]string{-1: "with the version that wrote it, and then migrate", 1: "a later one"} {
			other := b
			other.Schema += more
			refused(t, keystore.ErrSchema, fmt.Sprint("schema ", other.Schema), cure)(backup.Prepare(t.Context(), s, other))
		}
	})
}

// A load returns the lost refusals as they are in the snapshot that it reads. So the events after
// the snapshot show every later change of the list.
func TestLoadHasTheLostRefusalsOfItsSnapshot(t *testing.T) {
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		acme := newTenant(t, s, "acme")
		var lost []keystore.LostRefusal
		rows := keystore.Rows{
			Lost: func(l []keystore.LostRefusal) { lost = l },
			Plan: func(keystore.Plan) {}, Tenant: func(*keystore.TenantRow) {},
		}
		var reported keystore.Change
		rows.Expect = func(int, int) { // the snapshot is from before the report
			reported = must.Get[keystore.Change](t)(
				s.ReportLost(t.Context(), []keystore.LostRefusal{{Kind: keystore.LostSuspension, Tenant: acme.ID}}),
			)
		}
		for _, want := range []int{0, 1} {
			if last, _, err := s.Load(t.Context(), rows); err != nil || len(lost) != want ||
				(last >= reported) != (want == 1) {
				t.Errorf("load up to %d: %+v, %v; want %d; reported in %d", last, lost, err, want, reported)
			}
			rows.Expect = func(int, int) {}
		}
	})
}

// Each lost refusal ends separately: when an operator repeats it or drops it, all others stay in
// force.
func TestLostRefusals(t *testing.T) {
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		acme, other := newTenant(t, s, "acme"), newTenant(t, s, "other")
		key := func(tenant id.Tenant) id.Key { return keyOf(t, s, tenant, "one").ID }
		revoked, rotated, others := key(acme.ID), key(acme.ID), key(other.ID)
		names := strings.NewReplacer(acme.ID.String(), "acme", other.ID.String(), "other",
			revoked.String(), "/revoked", rotated.String(), "/rotated", others.String(), "/others")
		want := func(what string, err error, left ...string) {
			t.Helper()
			must.Do(t, err)
			var listed []string
			for _, l := range must.Get[[]keystore.LostRefusal](t)(s.LostRefusals(t.Context())) {
				if at := map[id.Key]instant.Millis{revoked: 1, rotated: c.millis() + 2, others: 3}[l.Key]; l.At != at ||
					l.ReportedBy != "ada" ||
					l.ReportedAt != c.millis() {
					t.Errorf("%+v, want one at %d", l, at)
				}
				key, _ := l.Key.Value()
				listed = append(listed, names.Replace(fmt.Sprint(l.Kind, " ", l.Tenant, key)))
			}
			slices.Sort(listed)
			slices.Sort(left)
			wantEqual(t, what, listed, left)
		}
		_, err := s.ReportLost(t.Context(), []keystore.LostRefusal{
			{Kind: keystore.LostRevocation, Tenant: acme.ID, Key: revoked, At: 1},
			{Kind: keystore.LostRotation, Tenant: acme.ID, Key: rotated, At: c.millis() + 2},
			{Kind: keystore.LostSuspension, Tenant: acme.ID},
			{Kind: keystore.LostRevocation, Tenant: other.ID, Key: others, At: 3},
			{Kind: keystore.LostSuspension, Tenant: other.ID},
		})
		want("reported", err, "revoked acme/revoked", "rotated acme/rotated", "suspended acme", "revoked other/others",
			"suspended other")
		all := []string{
			"revoked acme/revoked", "rotated acme/rotated", "suspended acme", "revoked other/others", "suspended other",
		}
		_, _, err = s.DisableKey(t.Context(), others)
		want("a revoked key is only disabled", err, all...)
		must.First[keystore.Key](t)(s.DisableKey(t.Context(), rotated))
		_, _, err = s.EnableKey(t.Context(), rotated)
		want("a key is enabled whose rotation was lost", err, all...)
		rotate(t, s, rotated, c.millis()+3)
		want("a grace period is longer", err, all...)
		_, _, err = s.ShortenGrace(t.Context(), rotated, c.millis()+2)
		want("a rotation is repeated", err, "revoked acme/revoked", "suspended acme", "revoked other/others",
			"suspended other")
		_, err = s.DropLost(t.Context(), acme.ID, rotated)
		want("a key's is dropped", err, "revoked acme/revoked", "suspended acme", "revoked other/others",
			"suspended other")
		_, _, err = s.Suspend(t.Context(), acme.ID)
		want("the suspension is repeated", err, "revoked acme/revoked", "revoked other/others", "suspended other")
		_, _, err = s.Resume(t.Context(), acme.ID)
		want("and ended", err, "revoked acme/revoked", "revoked other/others", "suspended other")
		_, _, err = s.Resume(t.Context(), other.ID)
		want("one that was not repeated is not ended", err, "revoked acme/revoked", "revoked other/others",
			"suspended other")
		_, err = s.DropLost(t.Context(), other.ID, id.Key{})
		want("a tenant's is dropped", err, "revoked acme/revoked", "revoked other/others")
		_, _, err = s.RevokeKey(t.Context(), revoked)
		want("a revocation is repeated", err, "revoked other/others")
		refused(t, keystore.ErrNotFound)(s.DropLost(t.Context(), acme.ID, others))
	})
}

package directory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

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

// eachDatabase runs f on each database, with a store that writes and a directory that follows.
func eachDatabase(t *testing.T, f func(t *testing.T, store *keystore.Store, d *running)) {
	eachStore(t, func(t *testing.T, _ *database.DB, store *keystore.Store) {
		f(t, store, start(t, store, Config{}))
	})
}

// applied reports whether the directory has confirmed a change.
func applied(t testing.TB, store *keystore.Store, c keystore.Change) bool {
	t.Helper()
	gateways := registered(t, store)
	for _, g := range gateways {
		if g.Applied < c {
			return false
		}
	}
	return len(gateways) > 0
}

// confirm waits until a change, which must succeed, is confirmed. confirmed is for calls that also
// return what they changed.
func confirm(t testing.TB, store *keystore.Store) func(c keystore.Change, err error) {
	return func(c keystore.Change, err error) {
		t.Helper()
		must.Do(t, err)
		eventually(t, "confirmed", func() bool { return applied(t, store, c) })
	}
}

func confirmed(t testing.TB, store *keystore.Store) func(changed any, c keystore.Change, err error) {
	return func(_ any, c keystore.Change, err error) {
		t.Helper()
		confirm(t, store)(c, err)
	}
}

func TestFollowsEveryKindOfChange(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, store *keystore.Store, d *running) {
		ctx := t.Context()
		tenant, key, hash := fixture(t, store)
		d.await(t, hash)
		e, _ := d.Lookup(hash)
		version := e.Version
		want := Entry{
			Key: key.ID, Tenant: tenant.ID, Name: "default", Environment: apikey.Live, Scopes: "pets:read pets:write",
			Terms: Terms{Plan: "free", Limits: plan.Limits{Minute: 60, Day: 1000}, Version: version},
		}
		check := func(what string, wantChanged bool) {
			t.Helper()
			got, ok := d.Lookup(hash)
			must.Equal(t, got.Version != version, wantChanged, "%s: the version changed", what)
			version, want.Version = got.Version, got.Version
			if !ok || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: got %+v, want %+v", what, got, want)
			}
			if byID, ok := d.Key(key.ID); !ok || !reflect.DeepEqual(byID, want) {
				t.Errorf("%s: by ID %+v, want %+v", what, byID, want)
			}
		}
		check("created", false)
		type confirming func(changed any, c keystore.Change, err error)
		changed := func(what string, versionChanged bool, edit func(*Entry)) confirming {
			return func(_ any, c keystore.Change, err error) {
				t.Helper()
				confirm(t, store)(c, err)
				edit(&want)
				check(what, versionChanged)
			}
		}
		changed("plan set", true, func(e *Entry) { e.Plan, e.Limits = "pro", plan.Limits{Minute: 300, Day: 10_000} })(
			store.SetTerms(ctx, tenant.ID, "pro", plan.Limits{}))
		changed("quota set", true, func(e *Entry) { e.Limits.Minute = 7 })(
			store.SetQuota(ctx, tenant.ID, plan.Limits{Minute: 7}, 0))
		changed("plan updated", true, func(e *Entry) { e.Limits.Day = 80 })(
			store.UpdatePlan(ctx, "pro", plan.Limits{Minute: 8, Day: 80}, plan.Limits{}))
		changed("quota cleared", true, func(e *Entry) { e.Limits.Minute = 8 })(
			store.SetQuota(ctx, tenant.ID, plan.NoLimits, 0))
		changed("suspended", false, func(e *Entry) { e.Suspended = true })(store.Suspend(ctx, tenant.ID))
		changed("resumed", false, func(e *Entry) { e.Suspended = false })(store.Resume(ctx, tenant.ID))

		until := instant.Of(time.Now().Add(time.Hour))
		changed("banned", false, func(e *Entry) { e.BannedUntil, e.BanNotice = until, "unpaid" })(
			store.AddBan(ctx, keystore.Ban{Key: key.ID, Until: until, Notice: "unpaid"}))
		confirm(t, store)(store.LiftBan(ctx, key.ID))
		want.BannedUntil, want.BanNotice = 0, ""
		check("ban lifted", false)
		allow := keystore.Prefixes{netip.MustParsePrefix("10.0.0.0/8")}
		changed("key updated", false, func(e *Entry) { e.Scopes, e.Allow, e.ExpiresAt = "pets:read", allow, until })(
			store.UpdateKey(ctx, key.ID,
				func(k *keystore.Key) { k.Scopes, k.Allow, k.ExpiresAt = "pets:read", allow, until }),
		)

		fresh, token, c, err := store.RotateKey(ctx, key.ID, until)
		changed("rotated", false, func(e *Entry) { e.GraceEndsAt, e.ReplacedBy = until, fresh.ID })(fresh, c, err)
		if e, ok := d.Lookup(apikey.Sum([]byte(token))); !ok || e.Key != fresh.ID || e.Tenant != tenant.ID {
			t.Errorf("the new key: %t %+v", ok, e)
		}
		changed("grace shortened", false, func(e *Entry) { e.GraceEndsAt = until - 60_000 })(
			store.ShortenGrace(ctx, key.ID, until-60_000))
		now := func(e *Entry) {
			k := must.Get[keystore.Key](t)(store.Key(ctx, key.ID))
			e.RevokedAt, e.DisabledAt = k.RevokedAt, k.DisabledAt
		}
		changed("disabled", false, now)(store.DisableKey(ctx, key.ID))
		changed("enabled", false, func(e *Entry) { e.DisabledAt = 0 })(store.EnableKey(ctx, key.ID))
		changed("renamed", false, func(*Entry) {})(store.RenameTenant(ctx, tenant.ID, "acme inc"))
		changed("revoked", false, now)(store.RevokeKey(ctx, key.ID))

		confirm(t, store)(store.ResetUsage(ctx, tenant.ID))
		terms, _ := d.Terms(tenant.ID)
		want.UsedSince = terms.UsedSince
		if time.Since(want.UsedSince.Time()).Abs() > time.Minute {
			t.Errorf("the usage counts since %v, want now", want.UsedSince.Time())
		}
		check("reset", false)
		confirm(t, store)(store.ResetUsage(ctx, tenant.ID))
		if again, _ := d.Terms(tenant.ID); again.UsedSince <= want.UsedSince {
			t.Errorf("after another reset, the usage counts since %v, before %v", again.UsedSince, want.UsedSince)
		}
		if _, ok := d.Terms(id.Tenant{1}); ok {
			t.Error("found a tenant that does not exist")
		}
		wantSame(t, d.Directory, store)
	})
}

func TestSignsOff(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, store *keystore.Store, d *running) {
		tenant, key, _ := fixture(t, store)
		hour := instant.Of(time.Now()).Truncate(time.Hour)
		for _, at := range []instant.Millis{hour - 1, hour, hour} {
			d.Usage().Count(usage.Request{
				Tenant: tenant.ID, Key: key.ID, Operation: "listPets", Outcome: "ok",
				Charged: true, Metered: true, At: at,
			})
		}
		must.Do(t, d.stop())
		must.Equal(t, len(registered(t, store)), 0, "gateways after a clean exit")
		rows, err := stored.Of(store).Usage(t.Context(), tenant.ID, 0)
		if want := []stored.Row{
			{Tenant: tenant.ID, Key: key.ID, Operation: "listPets", Outcome: "ok", Charged: true, Hour: hour.Add(-time.Hour), Requests: 1},
			{Tenant: tenant.ID, Key: key.ID, Operation: "listPets", Outcome: "ok", Charged: true, Hour: hour, Requests: 2},
		}; err != nil || !slices.Equal(rows, want) {
			t.Errorf("usage: %+v, %v, want %+v", rows, err, want)
		}
		minutes, err := stored.Of(store).Minutes(t.Context(), tenant.ID, 0)
		if err != nil || len(minutes) != 2 || minutes[0].Attempts[59] != 1 || minutes[1].Attempts[0] != 2 {
			t.Errorf("minutes: %+v, %v", minutes, err)
		}
		if k, err := store.Key(t.Context(), key.ID); err != nil || time.Since(k.LastUsedAt.Time()) > time.Minute {
			t.Errorf("last used at %d, %v", k.LastUsedAt, err)
		}
	})
}

func TestTwoProcessesWithOneID(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, store *keystore.Store, first *running) {
		_, _, hash := fixture(t, store)
		first.await(t, hash)
		living := fmt.Sprintf("process %d on host", os.Getpid())
		if _, err := Open(t.Context(), store, Config{GatewayID: "gw-1"}); !errors.Is(err, keystore.ErrDisplaced) ||
			!strings.Contains(err.Error(), living) {
			t.Errorf("the second one: %v, want the words %q", err, living)
		}
		if err := first.Ready(); err != nil {
			t.Errorf("ready: %v", err)
		}
		if err := first.stop(); err != nil {
			t.Errorf("run: %v", err)
		}
		if err := start(t, store, Config{}).Ready(); err != nil {
			t.Errorf("after the first one has signed off: %v", err)
		}
		must.Equal(t, len(registered(t, store)), 1, "gateways")
	})
}

// A gateway that the database has not seen for a long time still gets its share of the limits: it
// may be serving.
func TestSilentGatewaysAreCounted(t *testing.T) {
	t.Parallel()
	store, proxied, proxy := behindProxy(t)
	one := start(t, store, Config{})
	two := start(t, proxied, Config{GatewayID: "gw-2"})
	eventually(t, "both know of both", func() bool { return one.Gateways() == 2 && two.Gateways() == 2 })
	proxy.Kill()
	eventually(t, "one is silent", func() bool {
		gateways := registered(t, store)
		return len(gateways) == 2 && gateways[1].Age > 4000
	})
	if one.Gateways() != 2 || two.Gateways() != 2 {
		t.Errorf("%d and %d gateways, want 2 and 2", one.Gateways(), two.Gateways())
	}
}

func TestBanHoldsAtOnceAndIsWritten(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, store *keystore.Store, d *running) {
		other := start(t, store, Config{GatewayID: "gw-2"})
		_, key, hash := fixture(t, store)
		d.await(t, hash)
		until := instant.Of(time.Now().Add(time.Minute))
		d.Ban(key.ID, until, "30 strikes")
		d.Ban(key.ID, until-1000, "a shorter one")
		e, _ := d.Lookup(hash)
		must.Equal(t, e.BannedUntil, until, "the end of the ban here")
		eventually(t, "the ban arrives elsewhere",
			func() bool { e, _ := other.Lookup(hash); return e.BannedUntil == until && e.BanIsAutomatic })
		bans, err := lists.Of(store).FindBans(t.Context(), id.Tenant{}, "", 99)
		if err != nil || len(bans) != 1 || bans[0].By != "gw-1" || bans[0].Reason != "30 strikes" {
			t.Errorf("bans: %+v, %v", bans, err)
		}
		confirm(t, store)(store.LiftBan(t.Context(), key.ID))
		if e, _ := d.Lookup(hash); e.BannedUntil != 0 {
			t.Error("the lifted ban holds where it was imposed")
		}
		if events, err := keystore.Collect(lists.Of(store).Events(t.Context(), lists.EventFilter{}, 0)); err != nil ||
			len(events) != 4 {
			t.Errorf("%d events, want 4: the ban is one change; %v", len(events), err)
		}
	})
}

// Many bans at once hold at once, and are written slowly. None is lost but those for which there is
// no room: they are counted.
func TestManyBansAreWrittenSlowly(t *testing.T) {
	t.Parallel()
	const keys = 4 * banRowsPerSecond
	store := openStore(t, testkit.SQLite(t))
	tenant, last, lastHash := fixture(t, store)
	hashes := map[id.Key]apikey.Hash{}
	for range keys {
		key, hash := addKey(t, store, tenant.ID)
		hashes[key.ID] = hash
	}
	d := opened(t, store, Config{})
	until := instant.Of(time.Now().Add(time.Hour))
	for key, hash := range hashes {
		d.Ban(key, until, "30 strikes")
		if e, _ := d.Lookup(hash); e.BannedUntil != until || !e.BanIsAutomatic {
			t.Errorf("banned until %d, by a gateway: %t", e.BannedUntil, e.BanIsAutomatic)
		}
	}
	for i := len(d.pending); i < pendingBansMax; i++ {
		d.pending[massKey(i)] = keystore.Ban{Key: massKey(i)} // no row is written of an unknown key
	}
	d.Ban(last.ID, until, "30 strikes")
	if e, _ := d.Lookup(lastHash); e.BannedUntil != until || len(d.pending) != pendingBansMax {
		t.Errorf("the one too many: banned until %d, %d are pending", e.BannedUntil, len(d.pending))
	}
	must.Equal(t, testutil.ToFloat64(d.metrics.unwrittenBans), 1, "bans that are counted as unwritten")
	maps.DeleteFunc(d.pending,
		func(k id.Key, _ keystore.Ban) bool { _, ours := hashes[k]; return !ours && k != massKey(keys) })
	ended := keystore.Ban{Key: last.ID, Until: 1, Automatic: true}
	d.pending[last.ID] = ended // no row is written of it either

	began := time.Now()
	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writing.Go(func() { d.writeBans(ctx) })
	written := func() int {
		return len(must.Get[[]lists.NamedBan](t)(lists.Of(store).FindBans(t.Context(), id.Tenant{}, "", 99)))
	}
	eventually(t, "all are written", func() bool { _, left := d.nextBan(); return written() == keys && !left })
	if took := time.Since(began); took < 2500*time.Millisecond {
		t.Errorf("%d rows were written in %v: %d a second, and as many at once, take 3 s", keys, took, banRowsPerSecond)
	}
	stop()
	writing.Wait()
}

func TestLookupAllocatesNothing(t *testing.T) {
	store := openStore(t, testkit.SQLite(t))
	tenant, key, hash := fixture(t, store)
	d := opened(t, store, Config{})
	unknown := bogus(1)
	for what, f := range map[string]func(){
		"Lookup":          func() { d.Lookup(hash) },
		"bogus Lookup":    func() { d.Lookup(unknown) },
		"byID":            func() { d.Key(key.ID) },
		"Terms":           func() { d.Terms(tenant.ID) },
		"Fresh, Gateways": func() { d.Fresh(1); d.Gateways() },
	} {
		must.Equal(t, testing.AllocsPerRun(1000, f), 0, "allocations of %s", what)
	}
}

// A gateway needs an ID, but no snapshot.
func TestNoSnapshotIsWrittenWithoutAPath(t *testing.T) {
	t.Chdir(t.TempDir())
	store := openStore(t, testkit.SQLite(t))
	if _, err := Open(t.Context(), store, Config{}); err == nil || !strings.Contains(err.Error(), "GATEWAY_ID") {
		t.Error(err)
	}
	d := start(t, store, Config{})
	d.stop()
	if left, err := os.ReadDir("."); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// All plans are passed on when they are loaded, and before a change of one is confirmed.
func TestPassesPlansOn(t *testing.T) {
	t.Parallel()
	store := openStore(t, testkit.SQLite(t))
	var passed atomic.Pointer[[]keystore.Plan]
	start(t, store, Config{PlansChanged: func(plans []keystore.Plan) { passed.Store(&plans) }})
	must.Equal(t, len(*passed.Load()), 4, "plans that are loaded")
	gold := keystore.Plan{Name: "gold", Limits: plan.Limits{Minute: 7, Day: 70}}
	confirmed(t, store)(store.CreatePlan(t.Context(), gold))
	if plans := *passed.Load(); len(plans) != 5 || !slices.Contains(plans, gold) {
		t.Errorf("the plans are %v, want %v among five", plans, gold)
	}
}

// A look-up has the limits of the tenant in this gateway's environment, the start of its month, and
// the key's own limits: after a load, after changes that are followed, and from the snapshot.
func TestLimitsOfAKey(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, _ *database.DB, store *keystore.Store) {
		ctx, ok := t.Context(), made(t)
		gold := keystore.Plan{
			Name:   "gold",
			Limits: plan.Limits{Minute: 600, Month: 3_000_000},
			Test:   plan.Limits{Minute: 60},
		}
		ok(store.CreatePlan(ctx, gold))
		acme, _, err := store.CreateTenant(ctx,
			keystore.TenantSpec{Name: "acme", Plan: "free", Override: plan.Limits{Day: 9_000}, MonthStarts: 3})
		must.Do(t, err)
		key, token, _, err := store.CreateKey(ctx, keystore.KeySpec{Tenant: acme.ID, Limits: plan.Limits{Minute: 10}})
		must.Do(t, err)
		live := opened(t, store, Config{Snapshot: snapshotPath(t)})
		test := opened(t, store, Config{GatewayID: "gw-2", Environment: apikey.Test})
		check := func(when string, d *Directory, limits plan.Limits, monthStarts uint8, own plan.Limits) {
			t.Helper()
			got, _ := d.Lookup(apikey.Sum([]byte(token)))
			if got.Limits != limits || got.MonthStarts != monthStarts || got.KeyLimits != own {
				t.Errorf("%s: %+v, start %d, own %+v; want %+v, %d, %+v", when, got.Limits, got.MonthStarts,
					got.KeyLimits, limits, monthStarts, own)
			}
			if terms, _ := d.Terms(acme.ID); terms.Limits != got.Limits || terms.MonthStarts != got.MonthStarts ||
				terms.Version != got.Version {
				t.Errorf("%s: the terms are %+v, the entry is %+v", when, terms, got)
			}
		}
		check("loaded", live, plan.Limits{Minute: 60, Day: 9_000}, 3, plan.Limits{Minute: 10})
		before, _ := live.Lookup(apikey.Sum([]byte(token)))
		ok(store.SetTerms(ctx, acme.ID, "gold", plan.Limits{}))
		ok(store.SetQuota(ctx, acme.ID, plan.Limits{Minute: 700}, 15))
		ok(store.UpdateKey(ctx, key.ID, func(k *keystore.Key) { k.Limits = plan.Limits{Minute: 20, Day: 200} }))
		synced(t, live)
		synced(t, test)
		check("followed", live, plan.Limits{Minute: 700, Day: 9_000, Month: 3_000_000}, 15,
			plan.Limits{Minute: 20, Day: 200})
		check("for tests", test, plan.Limits{Minute: 60, Day: 9_000, Month: 3_000_000}, 15,
			plan.Limits{Minute: 20, Day: 200})
		if after, _ := live.Lookup(apikey.Sum([]byte(token))); after.Version == before.Version {
			t.Error("the version has not changed with the limits")
		}
		read := newState(&live.versions, apikey.Test)
		if _, err := live.snapshot.Read(read.rows(read.setBan)); err != nil || read.err != nil {
			t.Fatal(err, read.err)
		}
		test.state.Store(read)
		check("from the snapshot", test, plan.Limits{Minute: 60, Day: 9_000, Month: 3_000_000}, 15,
			plan.Limits{Minute: 20, Day: 200})
		before, _ = live.Lookup(apikey.Sum([]byte(token)))
		ok(store.SetQuota(ctx, acme.ID, plan.Limits{}, 16))
		synced(t, live)
		if after, _ := live.Lookup(apikey.Sum([]byte(token))); after.MonthStarts != 16 ||
			after.Version == before.Version {
			t.Errorf("the start of the month is %d, and the version is %d as before", after.MonthStarts, after.Version)
		}
	})
}

// Of many keys, each is found by its hash and no other is, also from a snapshot with many frames. A
// test in deploy/e2e loads a million keys.
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
		known.setKey(&keystore.KeyRow{
			ID: massKey(i), Hash: mass("hash", i), Tenant: massTenant(i % tenants),
			Scopes: "pets:read pets:write", Limits: plan.Limits{Minute: 9},
		})
	}
	must.Do(t, d.writeSnapshot())
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
			if e := s.entry(ref); !found || e.Key != massKey(i) || e.Tenant != massTenant(i%tenants) ||
				!e.Limits.IsSet() ||
				e.KeyLimits.Minute != 9 {
				t.Fatalf("%s: key %d is not found, or is another one", what, i)
			}
			unknown := bogus(uint64(i))
			if _, found := s.findHash(&unknown); found {
				t.Fatalf("%s: a key that does not exist is found", what)
			}
		}
	}
}

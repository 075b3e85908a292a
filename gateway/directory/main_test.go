package directory

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/plan"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/keystore/lists"
	"petgate/shared/keystore/schema"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

func openDB(t testing.TB, url string) *database.DB {
	t.Helper()
	return testkit.Open(t, url, schema.Migrations)
}

func openStore(t testing.TB, url string) *keystore.Store {
	t.Helper()
	return keystore.New(openDB(t, url), nil, nil, "test")
}

// eachStore runs f with an empty database of each kind.
func eachStore(t *testing.T, f func(t *testing.T, db *database.DB, store *keystore.Store)) {
	t.Helper()
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		db := openDB(t, url)
		f(t, db, keystore.New(db, nil, nil, "test"))
	})
}

// running is a directory whose Run is under way.
type running struct {
	*Directory
	stop func() error // ends Run and returns its error
	log  *testkit.Output
}

func start(t testing.TB, store *keystore.Store, cfg Config) *running {
	t.Helper()
	log := &testkit.Output{}
	cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	return run(t, opened(t, store, cfg), log)
}

// run runs an opened directory, whose log is this one.
func run(t testing.TB, d *Directory, log *testkit.Output) *running {
	t.Helper()
	r := &running{Directory: d, log: log}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	r.stop = sync.OnceValue(func() error {
		cancel()
		err := <-done
		d.SignOff("")
		return err
	})
	t.Cleanup(func() { r.stop() })
	return r
}

// opened returns a directory that does nothing by itself.
func opened(t testing.TB, store *keystore.Store, cfg Config) *Directory {
	t.Helper()
	if cfg.GatewayID == "" {
		cfg.GatewayID = "gw-1"
	}
	return must.Get[*Directory](t)(Open(t.Context(), store, cfg))
}

// synced brings a directory up to date.
func synced(t testing.TB, d *Directory) {
	t.Helper()
	must.Do(t, d.sync(t.Context()))
}

// await waits until a key is known.
func (r *running) await(t testing.TB, hash apikey.Hash) {
	t.Helper()
	eventually(t, "the key arrives", func() bool { _, ok := r.Lookup(hash); return ok })
}

// awaitOutage waits until the directory says that it cannot follow.
func (r *running) awaitOutage(t testing.TB) {
	t.Helper()
	eventually(t, "the outage is noticed", func() bool { return r.fault.Load() != nil })
}

// made returns a change that must succeed.
func made(t testing.TB) func(changed any, c keystore.Change, err error) keystore.Change {
	return func(_ any, c keystore.Change, err error) keystore.Change {
		t.Helper()
		must.Do(t, err)
		return c
	}
}

// execute executes a statement on the database itself.
func execute(t testing.TB, db *database.DB, statement string, args ...any) {
	t.Helper()
	must.Get[any](t)(db.Exec(statement, args...))
}

// registered returns the gateways that are registered.
func registered(t testing.TB, store *keystore.Store) []keystore.Gateway {
	t.Helper()
	return must.Get[[]keystore.Gateway](t)(store.Gateways(context.Background()))
}

// fixture makes one tenant with one key.
func fixture(t testing.TB, store *keystore.Store) (keystore.Tenant, keystore.Key, apikey.Hash) {
	t.Helper()
	tenant := must.First[keystore.Tenant](t)(
		store.CreateTenant(t.Context(), keystore.TenantSpec{Name: "acme", Plan: "free"}))
	key, hash := addKey(t, store, tenant.ID)
	return tenant, key, hash
}

func addKey(t testing.TB, store *keystore.Store, tenant id.Tenant) (keystore.Key, apikey.Hash) {
	t.Helper()
	key, token, _, err := store.CreateKey(t.Context(), keystore.KeySpec{Tenant: tenant})
	must.Do(t, err)
	return key, apikey.Sum([]byte(token))
}

// mass is the i-th of many tenants or keys.
func mass(kind string, i int) [32]byte { return sha256.Sum256(fmt.Appendf(nil, "%s %d", kind, i)) }

func massKey(i int) id.Key { h := mass("key", i); return id.Key(h[:10]) }

func massTenant(i int) id.Tenant { h := mass("tenant", i); return id.Tenant(h[:10]) }

// wantSame compares the directory with the database, row by row.
func wantSame(t testing.TB, d *Directory, store *keystore.Store) {
	t.Helper()
	for _, difference := range differences(d, store) {
		t.Error(difference)
	}
}

// differences names every row in which the directory and the database differ.
func differences(d *Directory, store *keystore.Store) (found []string) {
	note := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	ctx := context.Background()
	listed, err1 := lists.Of(store).FindBans(ctx, id.Tenant{}, "", 1<<20)
	tenants, err2 := lists.Of(store).FindTenants(ctx, lists.TenantFilter{}, "", 1<<20)
	plans, err3 := store.Plans(ctx)
	keys, err4 := keystore.Collect(lists.Of(store).Keys(ctx, id.Tenant{}))
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return []string{err.Error()}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.state.Load()
	if s.keys.len != len(keys) || s.tenants.len != len(tenants) || len(s.plans) != len(plans) {
		note("the directory has %d keys, %d tenants, %d plans; the database %d, %d, %d", s.keys.len, s.tenants.len,
			len(s.plans), len(keys), len(tenants), len(plans))
	}
	limits := map[string]plan.Limits{}
	for _, p := range plans {
		limits[p.Name] = p.Limits
		if known := s.plans[p.Name]; known == nil || known.now.Load().Limits != p.Limits {
			note("plan %s: directory and database differ, the database has %+v", p.Name, p.Limits)
		}
	}
	bans := map[id.Key]keystore.Ban{}
	for _, b := range listed {
		bans[b.Key] = b.Ban
	}
	suspended := map[id.Tenant]bool{}
	for _, row := range tenants {
		suspended[row.ID] = row.Suspended
		if has, ok := d.Terms(row.ID); !ok || has.Plan != row.Plan ||
			has.Limits != plan.Effective(limits[row.Plan], row.Override) {
			note("tenant %s: directory %t %s %+v, database %+v", row.ID, ok, has.Plan, has.Limits, row)
		}
	}
	for _, k := range keys {
		e, _ := d.Key(k.ID)
		ban := bans[k.ID]
		want := Entry{
			Key: k.ID, Tenant: k.Tenant, Name: k.Name, Environment: k.Environment, Scopes: k.Scopes,
			Terms: e.Terms, KeyLimits: k.Limits, Suspended: suspended[k.Tenant],
			ExpiresAt: k.ExpiresAt, RevokedAt: k.RevokedAt, DisabledAt: k.DisabledAt, GraceEndsAt: k.GraceEndsAt,
			ReplacedBy:  k.ReplacedBy,
			BannedUntil: ban.Until, BanNotice: ban.Notice, BanIsAutomatic: ban.Automatic,
		}
		isSameAllow := slices.Equal(e.Allow, k.Allow)
		e.Allow = nil
		if !isSameAllow || !reflect.DeepEqual(e, want) {
			note("key %s: directory %+v, allowed as in the database %t; database %+v", k.ID, e, isSameAllow, want)
		}
	}
	return found
}

// eventually is testkit's, with the usual patience.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	testkit.Eventually(t, time.Minute, what, cond)
}

func snapshotPath(t testing.TB) string { return filepath.Join(t.TempDir(), "gateway.snapshot") }

func bogus(i uint64) (h apikey.Hash) {
	binary.LittleEndian.PutUint64(h[:], i*0x9e3779b97f4a7c15)
	return h
}

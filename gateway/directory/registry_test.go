package directory

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"petgate/gateway/usage"
	"petgate/shared/core/instant"
	"petgate/shared/database"
	"petgate/shared/keystore"
	stored "petgate/shared/keystore/usage"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// A database that was restored from a backup knows an earlier process of each gateway, or none. No
// gateway ends.
func TestRestoredDatabaseEndsNoGateway(t *testing.T) {
	t.Parallel()
	for _, lost := range []struct{ what, statement string }{
		{"an earlier process is registered", "UPDATE gateways SET incarnation = 'before', generation = 1"},
		{"its earlier registration is there", "UPDATE gateways SET generation = 1"},
		{"it is not registered", "DELETE FROM gateways"},
	} {
		t.Run(lost.what, func(t *testing.T) {
			eachStore(t, func(t *testing.T, db *database.DB, store *keystore.Store) {
				d := start(t, store, Config{Document: keystore.Document{Title: "Pets"}})
				eventually(t, "it is described",
					func() bool { return registered(t, store)[0].Document.Title == "Pets" })
				execute(t, db, lost.statement)
				execute(t, db, "UPDATE gateway_registry SET generation = 1")
				eventually(t, "it has registered again", func() bool {
					return slices.ContainsFunc(registered(t, store), func(g keystore.Gateway) bool {
						return g.Incarnation == d.self.Load().Incarnation && g.Generation > 1 &&
							g.Document.Title == "Pets"
					})
				})
				tenant, _, _ := fixture(t, store)
				_, hash := addKey(t, store, tenant.ID)
				eventually(t, "it follows", func() bool { _, ok := d.Lookup(hash); return ok })
				if err := d.Ready(); err != nil || !d.Fresh(instant.Of(time.Now())) {
					t.Errorf("ready: %v", err)
				}
			})
		})
	}
}

// A process is cut off from the database, and a second process takes its ID. Changes wait for the
// first process until it refuses everything.
func TestReplacedProcessIsWaitedFor(t *testing.T) {
	t.Parallel()
	const maxAge = 2 * time.Second
	store, proxied, proxy := behindProxy(t)
	_, key, hash := fixture(t, store)
	first := start(t, proxied, Config{MaxAge: maxAge})
	confirm(t, store)(2, nil)
	proxy.BlackHole()
	second := start(t, store, Config{MaxAge: maxAge})
	revoked := made(t)(store.RevokeKey(t.Context(), key.ID))
	eventually(t, "the second one refuses it", func() bool { e, _ := second.Lookup(hash); return e.RevokedAt != 0 })
	for accepts := true; accepts; {
		done := applied(t, store, revoked)
		e, known := first.Lookup(hash)
		accepts = known && e.RevokedAt == 0 && first.Fresh(instant.Of(time.Now()))
		if done && accepts {
			t.Fatal("the revocation is confirmed while the first process accepts the key")
		}
	}
	// The second one watches the first and removes it from the list, at its third search: that
	// alone takes about 10 s.
	testkit.Eventually(t, 2*silentEvery+30*time.Second, "confirmed", func() bool { return applied(t, store, revoked) })
	removals := func() int { return strings.Count(second.log.String(), "removed a silent gateway") }
	eventually(t, "the removal is logged", func() bool { return removals() > 0 })
	eventually(t, "both are counted, then one", func() bool { return second.Gateways() == 1 })
	proxy.Restore(t)
	eventually(t, "the first one learns that it was replaced",
		func() bool { return errors.Is(first.Ready(), keystore.ErrDisplaced) })
	if err := first.stop(); !errors.Is(err, keystore.ErrDisplaced) {
		t.Errorf("run: %v", err)
	}
	eventually(t, "the second one is ready",
		func() bool { return second.Ready() == nil && second.Fresh(instant.Of(time.Now())) })
	must.Equal(t, removals(), 1, "how often the removal was logged, in\n%s", second.log)
}

// After an outage of the database, the silence of other gateways counts from its end: they may need
// longer to come back.
func TestSilenceInAnOutageDoesNotCount(t *testing.T) {
	t.Parallel()
	store, now := openStore(t, testkit.SQLite(t)), time.Now()
	d := opened(t, store, Config{Clock: func() time.Time { return now }})
	must.Get[int64](t)(
		store.Register(t.Context(), keystore.Registration{ID: "gw-2", Incarnation: "a", MaxAge: silentEvery}, nil))
	for beat := range 20 {
		now = now.Add(time.Second)
		if beat == 6 {
			now = now.Add(time.Hour)
		}
		synced(t, d)
		if n := len(registered(t, store)); (n == 1) != (beat >= 6+10) { // at the third search
			t.Errorf("beat %d: %d gateways are registered", beat, n)
		}
	}
}

// The lock shows that a process killed on this host has ended, so changes do not wait for it.
func TestKilledProcessIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, _ *database.DB, store *keystore.Store) {
		path := snapshotPath(t)
		opened(t, store, Config{Snapshot: path}).snapshot.Close() // as if killed
		start(t, store, Config{Snapshot: path})
		if gateways := registered(t, store); len(gateways) != 1 || gateways[0].Replaced {
			t.Errorf("%+v", gateways)
		}
	})
}

// What a gateway leaves is known as soon as it is not counted any more, and until another one has
// taken it. Without a database, it is not left.
func TestRequestsAreLeft(t *testing.T) {
	t.Parallel()
	store, proxied, proxy := behindProxy(t)
	leaving, cutOff := opened(t, store, Config{GatewayID: "gw-2"}), opened(t, proxied, Config{GatewayID: "gw-3"})
	staying := start(t, store, Config{})
	eventually(t, "all are counted", func() bool { return staying.Gateways() == 3 })
	if left := staying.Unreported(); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
	if !leaving.SignOff("requests") {
		t.Error("it has not signed off")
	}
	eventually(t, "two are counted", func() bool { return staying.Gateways() == 2 })
	if left := staying.Unreported(); !slices.Equal(left, []string{"requests"}) {
		t.Errorf("left: %q", left)
	}
	proxy.Kill()
	if cutOff.SignOff("others") {
		t.Error("it has signed off without a database")
	}
	must.Do(t, staying.TakeUnreported(t.Context(), func([]string) error { return nil }))
	eventually(t, "it is taken", func() bool { return len(staying.Unreported()) == 0 })
}

func TestClockSkewIsReported(t *testing.T) {
	t.Parallel()
	now, slow := time.Now(), &Directory{cfg: Config{Log: slog.New(slog.DiscardHandler)}}
	slow.measureSkew(
		now, now.Add(4*time.Second), instant.Of(now)) // the database read its clock at some time in between
	must.Do(t, slow.Skewed())
	eachStore(t, func(t *testing.T, _ *database.DB, store *keystore.Store) {
		well := start(t, store, Config{})
		ahead := start(t, store,
			Config{GatewayID: "gw-2", Clock: func() time.Time { return time.Now().Add(5 * time.Second) }})
		behind := start(t, store,
			Config{GatewayID: "gw-3", Clock: func() time.Time { return time.Now().Add(-5 * time.Second) }})
		must.Do(t, well.Skewed())
		for d, want := range map[*running]string{ahead: "5s ahead of", behind: "5s behind"} {
			// If this machine stops during a heartbeat, the measured skew is smaller. Each
			// heartbeat measures anew.
			eventually(t, "the report says "+want, func() bool {
				err := d.Skewed()
				return err != nil && strings.Contains(err.Error(), want) && strings.Contains(err.Error(), "NTP")
			})
			if d.Ready() != nil || strings.Count(d.log.String(), "NTP") != 1 {
				t.Errorf("ready: %v; log %s", d.Ready(), d.log)
			}
		}
	})
}

// A process that has usage of an earlier one to store does not displace the process that has its ID
// now, on another host. When that has ended, it stores the usage and signs off with what it counted
// itself. Heartbeats publish up to when all is stored.
func TestUsageOfAnEarlierProcess(t *testing.T) {
	t.Parallel()
	store := openStore(t, testkit.SQLite(t))
	tenant, key, _ := fixture(t, store)
	path := snapshotPath(t)
	request := usage.Request{Tenant: tenant.ID, Key: key.ID, Outcome: "ok", At: instant.Of(time.Now())}
	first := opened(t, store, Config{Snapshot: path})
	first.Usage().Count(request)
	away := errors.New("away")
	first.fault.Store(&away)
	if first.SignOff("") {
		t.Error("it has signed off without a database")
	}
	second := start(t, store, Config{Snapshot: snapshotPath(t)})
	before := second.Usage().Through()
	displaced, err := Open(t.Context(), store, Config{GatewayID: "gw-1", Snapshot: path})
	if !errors.Is(err, keystore.ErrDisplaced) || second.Ready() != nil {
		t.Errorf("open: %v, %v, want %v; the second one: %v", displaced, err, keystore.ErrDisplaced, second.Ready())
	}
	eventually(t, "a later end of the stored usage is published", func() bool {
		return slices.ContainsFunc(registered(t, store), func(g keystore.Gateway) bool {
			return g.Incarnation == second.self.Load().Incarnation && g.UsageThrough > before
		})
	})
	must.Do(t, second.stop())
	third := opened(t, store, Config{Snapshot: path})
	third.Usage().Count(request)
	if !third.SignOff("") {
		t.Error("it has not signed off")
	}
	rows := must.Get[[]stored.Row](t)(stored.Of(store).Usage(t.Context(), tenant.ID, 0))
	if len(rows) != 1 || rows[0].Requests != 2 {
		t.Errorf("usage: %+v, want 2 requests", rows)
	}
}

package directory

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"petgate/shared/core/instant"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// What a gateway publishes as stored lags behind by the longest request, a minute and one interval.
// It never passes usage that is not stored, and after a pause of the process it waits for one more
// interval.
func TestUsageThrough(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, store *keystore.Store, other *running) {
		must.Do(t, other.stop())
		tenant, key, _ := fixture(t, store)
		begun := instant.Of(time.Now()).Truncate(time.Minute)
		now := begun
		d := opened(t, store, Config{
			GatewayID: "gw-1", LongestRequest: 10 * time.Second, Clock: func() time.Time { return now.Time() },
		})
		published := func() instant.Millis {
			t.Helper()
			d.follower.beatAt = time.Time{}
			synced(t, d)
			gateways := registered(t, store)
			if len(gateways) != 1 {
				t.Fatal(gateways)
			}
			return gateways[0].UsageThrough
		}
		flush := func(after time.Duration, want error) {
			t.Helper()
			now = now.Add(after)
			d.Count(Usage{Tenant: tenant.ID, Key: key.ID, Outcome: "ok", Charged: true, Metered: true, At: now})
			if err := d.drainUsage(t.Context(), false); (err != nil) != (want != nil) {
				t.Fatalf("%v, want %v", err, want)
			}
		}
		const lag = 70 * time.Second
		if through := registered(t, store)[0].UsageThrough; through != begun.Add(-lag) {
			t.Errorf("at the start: stored up to %v before it, want %v", begun.Sub(through), lag)
		}
		for i, step := range []struct{ after, want time.Duration }{
			{3 * time.Second, 0},
			{3 * time.Second, 3 * time.Second},
			{10 * time.Minute, 6 * time.Second},
			{3 * time.Second, 10*time.Minute + 6*time.Second},
		} {
			if flush(step.after, nil); published() != begun.Add(step.want-lag) {
				t.Errorf("step %d: stored up to %v before the start, want %v", i+1, begun.Sub(published()),
					lag-step.want)
			}
		}
		before := published()
		must.Get[keystore.Change](t)(store.ForgetGateway(t.Context(), "gw-1"))
		flush(3*time.Second, keystore.ErrNotFound)
		flush(3*time.Second, keystore.ErrNotFound)
		if err := d.sync(t.Context()); err == nil {
			t.Error("a forgotten gateway is not told to register again")
		}
		must.Equal(t, published(), before, "up to when usage is published, although nothing more was stored")
		flush(3*time.Second, nil)
		must.Equal(t, rowsOf(t, store, tenant), 7, "requests that are stored")
		if again := published(); again <= before {
			t.Errorf("stored up to %v, as before", again)
		}
	})
}

// Requests that were dropped because too many rows waited are a gap in the usage, before it is
// published that all is stored. The gap stays when the gateway registers again or ends.
func TestDroppedUsageIsAGap(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, store *keystore.Store, other *running) {
		must.Do(t, other.stop())
		tenant, key, _ := fixture(t, store)
		d := opened(t, store, Config{})
		synced(t, d)
		gaps := func(when string, want ...string) {
			t.Helper()
			found, err := store.UsageGaps(t.Context(), 0)
			if err != nil || len(found) != len(want) {
				t.Fatalf("%s: %+v, %v, want %v", when, found, err, want)
			}
			slices.SortFunc(found, func(a, b keystore.UsageGap) int { return strings.Compare(a.Cause, b.Cause) })
			for i, g := range found {
				if g.Gateway != "gw-1" || g.Cause != want[i] || g.Since != d.current().UsageThrough ||
					g.NotedAt < g.SeenAt {
					t.Errorf("%s: %+v, want %s from %s on", when, g, want[i], d.current().UsageThrough)
				}
			}
		}
		now := instant.Of(time.Now())
		request := Usage{Tenant: tenant.ID, Key: key.ID, Outcome: "ok", Charged: true, At: now}
		for i := range usageBacklogMax {
			d.usage.Rows[keystore.UsageRow{Hour: instant.Millis(i)}] = usageSum{}
		}
		d.Count(request)
		d.usage.collect(time.Now(), now)
		clear(d.usage.Rows)
		d.Count(request)
		through := d.usage.through.Load()
		must.Do(t, d.drainUsage(t.Context(), false))
		d.usage.through.Store(through) // as it was registered
		must.Equal(t, rowsOf(t, store, tenant), 1, "requests that are stored")
		gaps("after it could write again", keystore.GapDropped)
		d.Count(request)
		must.Do(t, d.drainUsage(t.Context(), false))
		d.usage.through.Store(through)
		must.Get[int64](t)(store.Register(t.Context(), d.current(), nil))
		gaps("after it has registered again", keystore.GapDropped)
		must.Do(t, store.SignOffWithGap(t.Context(), d.current()))
		gaps("after its end", keystore.GapDropped, keystore.GapUnwritten)
		if err := store.NoteDropped(t.Context(), d.current(), 9); !errors.Is(err, keystore.ErrNotFound) {
			t.Errorf("without a registration: %v", err)
		}
	})
}

func rowsOf(t *testing.T, store *keystore.Store, tenant keystore.Tenant) (requests int64) {
	t.Helper()
	for _, r := range must.Get[[]keystore.UsageRow](t)(store.Usage(t.Context(), tenant.ID, 0)) {
		requests += r.Requests
	}
	return requests
}

// Minutes are sent when a new minute has begun, and on the way out. A refused attempt counts; a
// request that never reached the quota does not.
func TestMinutesAreSentOnceAMinute(t *testing.T) {
	t.Parallel()
	store := openStore(t, testkit.SQLite(t))
	tenant, key, _ := fixture(t, store)
	hour := instant.Of(time.Now()).Truncate(time.Hour)
	now, calls := hour.Add(59*time.Minute), int64(0)
	d := opened(t, store, Config{Clock: func() time.Time { return now.Time() }})
	for i, step := range []struct {
		after      time.Duration
		last       bool
		rows       int
		old, young int64 // attempts in the last minute of the hour, and in the first one of the next
	}{
		{0, false, 0, 0, 0},
		{50 * time.Second, false, 0, 0, 0},
		{10 * time.Second, false, 2, 4, 2},
		{10 * time.Second, false, 2, 4, 2},
		{10 * time.Second, true, 2, 4, 4}, // no more requests are made
	} {
		now = now.Add(step.after)
		for _, u := range []Usage{
			{Outcome: "ok", Charged: true, Metered: true}, {Outcome: "minute_quota_exceeded", Metered: true}, {Outcome: "key_banned"},
		} {
			if u.Tenant, u.Key, u.At = tenant.ID, key.ID, now; !step.last {
				d.Count(u)
				calls++
			}
		}
		must.Do(t, d.drainUsage(t.Context(), step.last))
		minutes, err := store.Minutes(t.Context(), tenant.ID, 0)
		if err != nil || len(minutes) != step.rows {
			t.Fatalf("step %d: %+v, %v", i+1, minutes, err)
		}
		if step.rows > 0 && (minutes[0].Attempts[59] != step.old || minutes[1].Attempts[0] != step.young) {
			t.Errorf("step %d: %d and %d attempts, want %d and %d", i+1, minutes[0].Attempts[59],
				minutes[1].Attempts[0], step.old, step.young)
		}
		stored, k := rowsOf(t, store, tenant), must.Get[keystore.Key](t)(store.Key(t.Context(), key.ID))
		if used := now.Truncate(time.Minute); stored != calls || k.LastUsedAt != used || k.RefusedAt != used {
			t.Errorf("step %d: %d requests are stored, want %d; the key is %+v, want both uses at %d", i+1, stored,
				calls, k, used)
		}
	}
}

// What a process has counted and not stored is stored by the next one, once, however the first one
// ended and whatever has happened to its registration. Only a process that was killed leaves a gap.
func TestUsageOutlivesItsProcess(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, _ *database.DB, store *keystore.Store) {
		tenant, key, _ := fixture(t, store)
		want, through := int64(0), instant.Millis(0) // the usage is known through that
		f := func(name string, end func(first *Directory), gap string) {
			t.Helper()
			path := snapshotPath(t)
			first := opened(t, store, Config{Snapshot: path})
			count := func(n int64) {
				want += n
				for range n {
					first.usage.collect(time.Now(), instant.Of(time.Now()))
					call := Usage{
						Tenant:  tenant.ID,
						Key:     key.ID,
						Outcome: "ok",
						Charged: true,
						Metered: true,
						Cost:    5,
						IsTest:  true,
						At:      instant.Of(time.Now()),
					}
					first.Count(call)
					call.Outcome, call.Charged = "minute_quota_exceeded", false // it costs nothing
					first.Count(call)
				}
			}
			count(5)
			must.Do(t, first.drainUsage(t.Context(), true))
			count(7) // stored, but the answer is lost
			first.usage.collect(time.Now(), instant.Of(time.Now()))
			batch := first.usage.next(true)
			must.Do(t, store.AddUsage(t.Context(), *first.self.Load(), first.usage.Batch, batch.Rows, batch.Minutes))
			count(3)
			end(first)
			through = first.usage.collectedAt.Add(-first.usage.settles)
			first.snapshot.Close()
			kept := must.Get[[]byte](t)(os.ReadFile(path + ".usage"))
			for try := range 2 { // the second: the process that has stored it was killed before the file was gone
				next := opened(t, store, Config{Snapshot: path})
				minutes, err := store.Minutes(t.Context(), tenant.ID, 0)
				attempts, units := int64(0), int64(0)
				for _, m := range minutes {
					if !m.IsTest {
						t.Errorf("%s, start %d: attempts of live keys: %+v", name, try+1, m)
					}
					for _, n := range m.Attempts {
						attempts += n
					}
				}
				for _, row := range must.Get[[]keystore.UsageRow](t)(store.Usage(t.Context(), tenant.ID, 0)) {
					_, cost := row.Taken()
					if units += cost; !row.IsTest || !row.Charged && row.MoreUnits != 0 {
						t.Errorf("%s, start %d: of a live key, or with units that were not taken: %+v", name, try+1,
							row)
					}
				}
				if stored := rowsOf(t, store, tenant); err != nil || stored != 2*want || units != 5*want ||
					attempts != 2*want {
					t.Errorf("%s, start %d: %d requests, %d units and %d attempts stored, want %d, %v", name, try+1,
						stored, units, attempts, want, err)
				}
				if _, err := os.Stat(path + ".usage"); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s: the file is still there: %v", name, err)
				}
				gaps, err := store.UsageGaps(t.Context(), 0)
				causes := ""
				for _, g := range gaps {
					if causes += g.Cause; g.Since != through || g.Gateway != "gw-1" {
						t.Errorf("%s: the gap is %+v, want it from %d on", name, g, through)
					}
				}
				if err != nil || causes != gap {
					t.Errorf("%s: gaps %q, want %q, %v", name, causes, gap, err)
				}
				if g := registered(t, store); len(g) != 1 || g[0].Incarnation != next.self.Load().Incarnation {
					t.Errorf("%s: registered are %+v", name, g)
				}
				if gap == "" {
					next.SignOff("")
					return // its registration ends only when the file is gone
				}
				next.snapshot.Close()
				must.Do(t, os.WriteFile(path+".usage", kept, 0o600))
				must.Do(t, store.SignOff(t.Context(), *next.self.Load()))
			}
		}
		gone := errors.New("away")
		f("stopped", func(d *Directory) { d.fault.Store(&gone); d.SignOff("") }, "")
		f("stopped when only minutes waited", func(d *Directory) {
			must.Do(t, d.drainUsage(t.Context(), false))
			d.fault.Store(&gone)
			d.SignOff("")
		}, "")
		f("stopped and forgotten", func(d *Directory) {
			d.fault.Store(&gone)
			d.SignOff("")
			must.Get[keystore.Change](t)(store.ForgetGateway(t.Context(), "gw-1"))
		}, "")
		f("killed", func(d *Directory) {
			must.Do(t, d.keepUsage(false))
		}, keystore.GapKilled)
	})
}

// While the database takes batches again, the file and the database never have different requests
// under one number: the process may be killed between two batches.
func TestUsageFileFollowsTheBatches(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, db *database.DB, store *keystore.Store) {
		tenant, _, _ := fixture(t, store)
		path := snapshotPath(t)
		first := opened(t, store, Config{Snapshot: path})
		const keys = 2*usageRowsMax + 10
		for i := range keys {
			first.Count(
				Usage{
					Tenant:  tenant.ID,
					Key:     massKey(i),
					Outcome: "ok",
					Charged: true,
					Metered: true,
					At:      instant.Of(time.Now()),
				},
			)
		}
		must.Do(t, first.keepUsage(false))
		refuse, allow := []string{
			"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused'; END $$",
			"CREATE TRIGGER refuse BEFORE UPDATE ON gateways FOR EACH ROW WHEN (NEW.usage_batch = 2) EXECUTE FUNCTION refuse()",
		}, "DROP TRIGGER refuse ON gateways"
		if db.Dialect() == database.SQLite {
			refuse = []string{
				"CREATE TRIGGER refuse BEFORE UPDATE ON gateways WHEN NEW.usage_batch = 2 BEGIN SELECT RAISE(ABORT, 'refused'); END",
			}
			allow = "DROP TRIGGER refuse"
		}
		for _, statement := range refuse {
			execute(t, db, statement)
		}
		err := first.storeUsage(t.Context(), *first.self.Load(), &first.usage.unstored, false)
		if err == nil || rowsOf(t, store, tenant) != usageRowsMax {
			t.Fatalf("%v; stored %d", err, rowsOf(t, store, tenant))
		}
		file := usageFile{path: path + ".usage"}
		if must.Do(t, file.read()); file.left[0].Unstored.Batch != 2 {
			t.Errorf("the file has the usage as it was before batch %d", file.left[0].Unstored.Batch+1)
		}
		must.Do(t, first.keepUsage(true))
		kept := must.Get[[]byte](t)(os.ReadFile(path + ".usage"))
		first.snapshot.Close()
		losing := opened(t, store, Config{Snapshot: path}) // it cannot store the rest, for no outage
		if gaps, err := store.UsageGaps(t.Context(), 0); err != nil || len(gaps) != 1 ||
			len(losing.usage.file.left) != 0 {
			t.Errorf("the lost usage is no gap: %+v, %v", gaps, err)
		}
		losing.snapshot.Close()
		must.Do(t, os.WriteFile(path+".usage", kept, 0o600))
		execute(t, db, allow)
		next := opened(t, store, Config{Snapshot: path})
		rows, err := store.Usage(t.Context(), tenant.ID, 0)
		if err != nil || len(rows) != keys ||
			slices.ContainsFunc(rows, func(r keystore.UsageRow) bool { return r.Requests != 1 }) {
			t.Errorf("usage of %d keys is stored, want one request of each of %d, %v", len(rows), keys, err)
		}
		next.SignOff("")
	})
}

// A process that has usage of an earlier one to store does not displace the process that has its ID
// now, on another host.
func TestUsageOfAnEarlierProcessDisplacesNone(t *testing.T) {
	t.Parallel()
	store := openStore(t, testkit.SQLite(t))
	tenant, key, _ := fixture(t, store)
	path := snapshotPath(t)
	first := opened(t, store, Config{Snapshot: path})
	first.Count(
		Usage{Tenant: tenant.ID, Key: key.ID, Outcome: "ok", Charged: true, Metered: true, At: instant.Of(time.Now())},
	)
	first.usage.collect(time.Now(), instant.Of(time.Now()))
	first.usage.next(false) // the batch is under way, and nothing else waits
	must.Do(t, first.keepUsage(false))
	first.snapshot.Close()
	second := start(t, store, Config{Snapshot: snapshotPath(t)})
	if _, err := Open(t.Context(), store, Config{GatewayID: "gw-1", Snapshot: path}); !errors.Is(
		err, keystore.ErrDisplaced,
	) {
		t.Errorf("open: %v, want %v", err, keystore.ErrDisplaced)
	}
	if err := second.Ready(); err != nil {
		t.Errorf("the second one: %v", err)
	}
	// A gateway with another ID stores it too, and leaves the registration of that process as it
	// is.
	kept := must.Get[[]byte](t)(os.ReadFile(path + ".usage"))
	before := registered(t, store)[0].Generation
	opened(t, store, Config{GatewayID: "gw-2", Snapshot: path}).SignOff("")
	if now := registered(t, store); len(now) != 2 || now[0].Generation != before || rowsOf(t, store, tenant) != 1 {
		t.Errorf("%d requests are stored, want 1; registered are %+v", rowsOf(t, store, tenant), now)
	}
	must.Do(t, second.stop())
	must.Do(t, os.WriteFile(path+".usage", kept, 0o600))
	opened(t, store, Config{Snapshot: path}).SignOff("")
	must.Equal(t, rowsOf(t, store, tenant), 1, "requests that are stored")
	// One that is damaged is named, and does not stay.
	must.Do(t, os.WriteFile(path+".usage", kept[:len(kept)/2], 0o600))
	log := &testkit.Output{}
	damaged := opened(t, store, Config{Snapshot: path, Log: slog.New(slog.NewTextHandler(log, nil))})
	must.Do(t, damaged.drainUsage(t.Context(), false))
	must.Equal(t, strings.Count(log.String(), "usage of an earlier process is lost"), 1,
		"complaints about a damaged file, in %s", log)
	if _, err := os.Stat(path + ".usage"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the damaged file is still there: %v", err)
	}
	damaged.SignOff("")
}

package directory

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// What a gateway publishes as stored lags behind by the longest request, a minute and one interval. It never passes usage that is
// not stored, and after a pause of the process it waits for one more interval.
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
				t.Errorf("step %d: stored up to %v before the start, want %v", i+1, begun.Sub(published()), lag-step.want)
			}
		}
		before := published()
		must.Get[keystore.Change](t)(store.ForgetGateway(t.Context(), "gw-1"))
		flush(3*time.Second, keystore.ErrNotFound)
		flush(3*time.Second, keystore.ErrNotFound)
		if err := d.sync(t.Context()); err == nil {
			t.Error("a forgotten gateway is not told to register again")
		}
		if again := published(); again != before {
			t.Errorf("usage that is not stored is published: up to %v instead of %v", again, before)
		}
		flush(3*time.Second, nil)
		if stored := rowsOf(t, store, tenant); stored != 7 {
			t.Errorf("%d requests are stored, want 7", stored)
		}
		if again := published(); again <= before {
			t.Errorf("stored up to %v, as before", again)
		}
	})
}

// Requests that were dropped because too many rows waited are a gap in the usage, before it is published that all is stored. The gap
// stays when the gateway registers again or ends.
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
				if g.Gateway != "gw-1" || g.Cause != want[i] || g.Since != d.current().UsageThrough || g.NotedAt < g.SeenAt {
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
		if stored := rowsOf(t, store, tenant); stored != 1 {
			t.Errorf("%d requests are stored, want 1", stored)
		}
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

// Minutes are sent when a new minute has begun, and on the way out. A refused attempt counts; a request that never reached the quota
// does not.
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
			t.Errorf("step %d: %d and %d attempts, want %d and %d", i+1, minutes[0].Attempts[59], minutes[1].Attempts[0], step.old, step.young)
		}
		stored, k := rowsOf(t, store, tenant), must.Get[keystore.Key](t)(store.Key(t.Context(), key.ID))
		if used := now.Truncate(time.Minute); stored != calls || k.LastUsedAt != used || k.RefusedAt != used {
			t.Errorf("step %d: %d requests are stored, want %d; the key is %+v, want both uses at %d", i+1, stored, calls, k, used)
		}
	}
}

package keystore_test

import (
	"slices"
	"testing"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/testkit/must"
)

const hour = 3_600_000 // ms

// add adds a batch that is not refused.
func add(t *testing.T, s *keystore.Store, g keystore.Registration, batch int64, rows []keystore.UsageRow, minutes ...keystore.UsageMinutes) {
	t.Helper()
	must.Do(t, s.AddUsage(t.Context(), g, batch, rows, minutes))
}

func TestUsage(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		c.now = c.now.AddDate(-3, 0, 0) // the database deletes nothing that is new by its own clock
		ctx := t.Context()
		tenant := newTenant(t, s, "acme").ID
		key, _ := newKey(t, s, keystore.KeySpec{Tenant: tenant})
		last := instant.Of(c.now).Truncate(time.Hour)
		gateway := keystore.Registration{ID: "gw-1", Incarnation: "a"}
		rows := []keystore.UsageRow{
			{Tenant: tenant, Key: key.ID, Operation: "listPets", Outcome: "ok", Charged: true, Hour: last - hour, Requests: 5, LastAt: last - 200_000},
			{Tenant: tenant, Key: key.ID, Operation: "listPets", Outcome: "internal", Charged: true, Hour: last - hour, Requests: 3},
			{Tenant: tenant, Key: key.ID, Operation: "listPets", Outcome: "internal", Hour: last - hour, Requests: 4},
			{Tenant: tenant, Key: key.ID, Outcome: "no_such_route", Charged: true, Hour: last - hour, Requests: 1, LastAt: last - 100_000},
			{Tenant: tenant, Operation: "getPet", Outcome: "ok", Charged: true, Hour: last, Requests: 2, LastAt: last},
		}
		wantError(t, s.AddUsage(ctx, gateway, 1, rows, nil), keystore.ErrNotFound)
		gateway = registered(t, s, gateway)
		for _, batch := range []int64{1, 1, 2} { // the first one is sent twice
			add(t, s, gateway, batch, rows)
		}
		want := []keystore.UsageRow{
			{Tenant: tenant, Key: key.ID, Outcome: "no_such_route", Charged: true, Hour: last - hour, Requests: 2},
			{Tenant: tenant, Key: key.ID, Operation: "listPets", Outcome: "internal", Hour: last - hour, Requests: 8},
			{Tenant: tenant, Key: key.ID, Operation: "listPets", Outcome: "internal", Charged: true, Hour: last - hour, Requests: 6},
			{Tenant: tenant, Key: key.ID, Operation: "listPets", Outcome: "ok", Charged: true, Hour: last - hour, Requests: 10},
			{Tenant: tenant, Operation: "getPet", Outcome: "ok", Charged: true, Hour: last, Requests: 4},
		}
		wantEqual(t, "usage", must.Get[[]keystore.UsageRow](t)(s.Usage(ctx, tenant, last-hour+1)), want)
		wantEqual(t, "later usage", must.Get[[]keystore.UsageRow](t)(s.Usage(ctx, tenant, last)), want[4:])
		day := last.Truncate(24 * time.Hour)
		byDay := map[keystore.PeriodUsage]int64{}
		for _, r := range want {
			byDay[keystore.PeriodUsage{Start: r.Hour.Truncate(24 * time.Hour), Operation: r.Operation, Outcome: r.Outcome}] += r.Requests
		}
		for _, got := range must.Get[[]keystore.PeriodUsage](t)(s.UsageByPeriod(ctx, tenant, id.Key{}, day.Add(-24*time.Hour), 24*time.Hour)) {
			slot := got
			if slot.Requests = 0; byDay[slot] != got.Requests {
				t.Errorf("by day: %+v, want %d requests", got, byDay[slot])
			}
			delete(byDay, slot)
		}
		if len(byDay) > 0 {
			t.Errorf("by day: these are missing: %v", byDay)
		}
		wantEqual(t, "usage by hour", must.Get[[]keystore.PeriodUsage](t)(s.UsageByPeriod(ctx, tenant, id.Key{}, last, time.Hour)),
			[]keystore.PeriodUsage{{Start: last, Operation: "getPet", Outcome: "ok", Requests: 4}})
		if k := must.Get[keystore.Key](t)(s.Key(ctx, key.ID)); k.LastUsedAt != last-100_000 || k.RefusedAt != 0 {
			t.Errorf("last used at %d and refused at %d", k.LastUsedAt, k.RefusedAt)
		}
		old := []keystore.UsageRow{{Tenant: tenant, Outcome: "ok", Hour: last - 402*24*hour, Requests: 6}}
		kept := []keystore.UsageRow{{Tenant: tenant, Outcome: "ok", Hour: last - 400*24*hour, Requests: 7}} // in a day of which a part is older
		add(t, s, gateway, 5, slices.Concat(old, kept), keystore.UsageMinutes{Tenant: tenant, Hour: last})
		wantEqual(t, "all usage", must.Get[[]keystore.UsageRow](t)(s.Usage(ctx, tenant, 0)), slices.Concat(kept, want))
		gateway = registered(t, s, gateway)
		add(t, s, gateway, 5, rows) // as after a lost answer
		wantEqual(t, "usage after a batch was sent again", must.Get[[]keystore.UsageRow](t)(s.Usage(ctx, tenant, 0)), slices.Concat(kept, want))
		must.Get[int64](t)(s.Register(ctx, keystore.Registration{ID: "gw-1", Incarnation: "b"}, []string{"a"}))
		wantError(t, s.AddUsage(ctx, gateway, 6, rows, nil), keystore.ErrDisplaced)
	})
}

// A call used its key if it was charged or free. Each of the two times is kept to the minute.
func TestLastUse(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		tenant, now := newTenant(t, s, "acme").ID, c.millis()
		key, _ := newKey(t, s, keystore.KeySpec{Tenant: tenant})
		gateway := registered(t, s, keystore.Registration{ID: "gw-1", Incarnation: "a"})
		type times struct{ Used, Refused instant.Millis }
		for i, call := range []struct {
			outcome string
			charged bool
			at      instant.Millis
			want    times
		}{
			{"invalid_api_key", false, 100_000, times{0, 100_000}},
			{"insufficient_scope", true, 100_000, times{100_000, 100_000}},
			{"ok", true, 159_999, times{100_000, 100_000}},
			{"minute_quota_exceeded", false, 159_999, times{100_000, 100_000}},
			{"ok", false, 160_000, times{160_000, 100_000}},
			{"key_banned", false, 160_000, times{160_000, 160_000}},
			{"upstream_timeout", true, 150_000, times{160_000, 160_000}}, // another gateway's, which was late
		} {
			row := keystore.UsageRow{
				Tenant: tenant, Key: key.ID, Outcome: call.outcome, Charged: call.charged, Hour: now.Truncate(time.Hour), Requests: 1, LastAt: now + call.at,
			}
			add(t, s, gateway, int64(i+1), []keystore.UsageRow{row})
			k := must.Get[keystore.Key](t)(s.Key(t.Context(), key.ID))
			got := times{max(k.LastUsedAt-now, 0), max(k.RefusedAt-now, 0)}
			wantEqual(t, call.outcome, got, call.want)
		}
	})
}

// Usage is added up by hour or by UTC day, beginning with a whole one. It is complete through the instant up to which the last gateway
// has stored everything, or until now if no gateway is registered.
func TestStatement(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, _ *clock) {
		ctx := t.Context()
		tenant, other := newTenant(t, s, "acme").ID, newTenant(t, s, "globex").ID
		key, _ := newKey(t, s, keystore.KeySpec{Tenant: tenant})
		today := instant.Of(time.Now()).Truncate(24 * time.Hour)
		read := func(since instant.Millis, period time.Duration, n int) ([]keystore.StatementRow, instant.Millis) {
			t.Helper()
			found, err := s.Statement(ctx, tenant, since, period, n)
			must.Do(t, err)
			return found.Rows, found.CompleteThrough
		}
		if rows, through := read(0, time.Hour, 9); len(rows) != 0 || through < today {
			t.Errorf("without gateways: %v, complete through %d", rows, through)
		}
		g := registered(t, s, keystore.Registration{ID: "gw-1", Incarnation: "a", UsageThrough: today})
		row := func(at instant.Millis, operation, outcome string, charged bool, n int64) keystore.UsageRow {
			return keystore.UsageRow{Tenant: tenant, Key: key.ID, Operation: operation, Outcome: outcome, Charged: charged, Hour: at, Requests: n}
		}
		add(t, s, g, 1, []keystore.UsageRow{
			row(today-hour, "listPets", "ok", true, 1), row(today-24*hour, "listPets", "ok", true, 2), row(today-25*hour, "listPets", "ok", true, 4),
			row(today, "listPets", "ok", true, 8), row(today, "listPets", "ok", false, 16), row(today, "", "key_banned", false, 32),
			{Tenant: other, Outcome: "ok", Hour: today, Requests: 64},
		})
		of := func(at instant.Millis, operation, outcome string, requests, charged int64) keystore.StatementRow {
			return keystore.StatementRow{Start: at, Key: key.ID, Operation: operation, Outcome: outcome, Requests: requests, Charged: charged}
		}
		now := []keystore.StatementRow{of(today, "", "key_banned", 32, 0), of(today, "listPets", "ok", 24, 8)}
		hours, through := read(today-hour+1, time.Hour, 9)
		wantEqual(t, "by hour", hours, append([]keystore.StatementRow{of(today-hour, "listPets", "ok", 1, 1)}, now...))
		wantEqual(t, "complete through", through, today)
		days, _ := read(today-hour, 24*time.Hour, 9)
		wantEqual(t, "by day", days, append([]keystore.StatementRow{of(today-24*hour, "listPets", "ok", 3, 3)}, now...))
		few, _ := read(0, 24*time.Hour, 2)
		wantEqual(t, "two rows", few, []keystore.StatementRow{of(today-48*hour, "listPets", "ok", 4, 4), of(today-24*hour, "listPets", "ok", 3, 3)})
	})
}

// Attempts of one minute that are sent in several batches add up, and gateways have rows of their own. Old rows are deleted.
func TestMinutes(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		c.now = c.now.AddDate(-3, 0, 0) // the database deletes nothing that is new by its own clock
		ctx := t.Context()
		tenant, other := newTenant(t, s, "acme").ID, newTenant(t, s, "globex").ID
		c.now = c.now.Truncate(time.Hour).Add(30 * time.Minute)
		last := instant.Of(c.now).Truncate(time.Hour)
		of := func(gateway string, hour instant.Millis, attempts map[int]int64) keystore.UsageMinutes {
			m := keystore.UsageMinutes{Tenant: tenant, Gateway: gateway, Hour: hour}
			for minute, n := range attempts {
				m.Attempts[minute] = n
			}
			return m
		}
		first := registered(t, s, keystore.Registration{ID: "gw-1", Incarnation: "a"})
		second := registered(t, s, keystore.Registration{ID: "gw-2", Incarnation: "b"})
		elsewhere := keystore.UsageMinutes{Tenant: other, Hour: last}
		elsewhere.Attempts[0] = 9
		batch := []keystore.UsageMinutes{
			of("", last, map[int]int64{0: 7, 28: 1_000_000, 59: 1}), of("", last-hour, map[int]int64{59: 2}),
			of("", last-36*24*hour, map[int]int64{5: 5}), of("", last-35*24*hour, map[int]int64{5: 5, 59: 4}), elsewhere,
		}
		add(t, s, first, 1, nil, batch...)
		add(t, s, first, 1, nil, batch...) // sent again
		add(t, s, first, 2, nil, of("", last, map[int]int64{28: 3, 29: 4}))
		add(t, s, second, 1, nil, of("", last, map[int]int64{28: 6}))
		wantEqual(t, "minutes", must.Get[[]keystore.UsageMinutes](t)(s.Minutes(ctx, tenant, 0)), []keystore.UsageMinutes{
			of("gw-1", last-35*24*hour, map[int]int64{5: 5, 59: 4}), // its hour is not over
			of("gw-1", last-hour, map[int]int64{59: 2}),
			of("gw-1", last, map[int]int64{0: 7, 28: 1_000_003, 29: 4, 59: 1}),
			of("gw-2", last, map[int]int64{28: 6}),
		})
		if later := must.Get[[]keystore.UsageMinutes](t)(s.Minutes(ctx, tenant, last+1)); len(later) != 2 {
			t.Errorf("the last hour: %+v", later)
		}
	})
}

// A process that ends without storing its usage is noted. If it comes back, the note goes, and a batch that was stored before is not
// added again.
func TestUsageGaps(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		ctx := t.Context()
		tenant := newTenant(t, s, "acme").ID
		last := instant.Of(c.now).Truncate(time.Hour)
		register := func(gateway, incarnation string, dead ...string) keystore.Registration {
			t.Helper()
			return registered(t, s, keystore.Registration{ID: gateway, Incarnation: incarnation, UsageThrough: last - 1, MaxAge: 1}, dead...)
		}
		gaps := func() []string {
			t.Helper()
			found := []string{}
			for _, g := range must.Get[[]keystore.UsageGap](t)(s.UsageGaps(ctx, 0)) {
				if g.Since != last || g.SeenAt == 0 || g.NotedAt < g.SeenAt {
					t.Errorf("%+v, want it from %d on", g, last)
				}
				found = append(found, g.Gateway+" "+g.Cause)
			}
			return found
		}
		working := func(g keystore.Registration) keystore.Registration {
			t.Helper()
			g.UsageThrough = last
			must.Get[keystore.Beat](t)(s.Heartbeat(ctx, g, 0, ""))
			return g
		}
		rows := []keystore.UsageRow{{Tenant: tenant, Outcome: "ok", Hour: last, Requests: 1}}

		forgotten := working(register("gw-1", "a"))
		add(t, s, forgotten, 1, rows)
		add(t, s, forgotten, 2, rows)
		must.Get[keystore.Change](t)(s.ForgetGateway(ctx, "gw-1"))
		wantEqual(t, "after gw-1 was forgotten", gaps(), []string{"gw-1 forgotten"})
		forgotten = register("gw-1", "a")
		add(t, s, forgotten, 2, rows) // its answer was lost
		add(t, s, forgotten, 3, rows)
		if n := must.Get[[]keystore.UsageRow](t)(s.Usage(ctx, tenant, 0))[0].Requests; n != 3 {
			t.Errorf("%d requests are stored, want 3", n)
		}
		wantEqual(t, "after gw-1 came back", gaps(), []string{})
		working(forgotten)
		successor := register("gw-1", "b", "a")
		wantEqual(t, "after gw-1 was killed", gaps(), []string{"gw-1 killed"})
		must.Do(t, s.SignOff(ctx, successor))
		must.Do(t, s.SignOffWithGap(ctx, working(register("gw-2", "c"))))
		working(register("gw-3", "d"))
		fenced := must.Get[[]keystore.Gateway](t)(s.Gateways(ctx))[0]
		if removed := must.Get[bool](t)(s.RemoveFenced(ctx, fenced)); !removed {
			t.Error("gw-3 is not removed")
		}
		wantEqual(t, "at the end", gaps(), []string{"gw-1 killed", "gw-2 unwritten", "gw-3 fenced"})
		if later := must.Get[[]keystore.UsageGap](t)(s.UsageGaps(ctx, instant.Of(time.Now().Add(time.Hour)))); len(later) != 0 {
			t.Errorf("gaps of the future: %+v", later)
		}
	})
}

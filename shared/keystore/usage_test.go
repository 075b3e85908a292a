package keystore_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/keystore/usage"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

const hour = 3_600_000 // ms

// add adds a batch that is not refused.
func add(
	t *testing.T, s *keystore.Store, g keystore.Registration, batch int64, rows []usage.Row,
	minutes ...usage.Minutes,
) {
	t.Helper()
	must.Do(t, usage.Of(s).AddUsage(t.Context(), g, batch, rows, minutes))
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
		rows := []usage.Row{
			{Tenant: tenant, Key: key.ID, Operation: "listPets", Outcome: "ok", Charged: true, Hour: last - hour, Requests: 5},
			{Tenant: tenant, Key: key.ID, Operation: "listPets", Outcome: "internal", Charged: true, Hour: last - hour, Requests: 3},
			{Tenant: tenant, Key: key.ID, Operation: "listPets", Outcome: "internal", Hour: last - hour, Requests: 4},
			{Tenant: tenant, Key: key.ID, Outcome: "no_such_route", Charged: true, Hour: last - hour, Requests: 1},
			{Tenant: tenant, Operation: "getPet", Outcome: "ok", Charged: true, Hour: last, Requests: 2},
			{Tenant: tenant, Operation: "none", Outcome: "invalid_api_key", Hour: last - hour, Requests: 6},
		}
		refused(t, keystore.ErrNotFound)(usage.Of(s).AddUsage(ctx, gateway, 1, rows, nil))
		gateway = registered(t, s, gateway)
		for _, batch := range []int64{1, 1, 2} { // the first one is sent twice
			add(t, s, gateway, batch, rows)
		}
		want := []usage.Row{
			{Tenant: tenant, Operation: "none", Outcome: "invalid_api_key", Hour: last - hour, Requests: 12},
			{Tenant: tenant, Key: key.ID, Outcome: "no_such_route", Charged: true, Hour: last - hour, Requests: 2},
			{Tenant: tenant, Key: key.ID, Operation: "listPets", Outcome: "internal", Hour: last - hour, Requests: 8},
			{Tenant: tenant, Key: key.ID, Operation: "listPets", Outcome: "internal", Charged: true, Hour: last - hour, Requests: 6},
			{Tenant: tenant, Key: key.ID, Operation: "listPets", Outcome: "ok", Charged: true, Hour: last - hour, Requests: 10},
			{Tenant: tenant, Operation: "getPet", Outcome: "ok", Charged: true, Hour: last, Requests: 4},
		}
		wantEqual(t, "usage", must.Get[[]usage.Row](t)(usage.Of(s).Usage(ctx, tenant, last-hour+1)), want)
		wantEqual(t, "later usage", must.Get[[]usage.Row](t)(usage.Of(s).Usage(ctx, tenant, last)), want[5:])
		day := last.Truncate(24 * time.Hour)
		wantEqual(
			t,
			"usage by day",
			must.Get[[]usage.OfPeriod](t)(
				usage.Of(s).UsageByPeriod(ctx, tenant, id.Key{}, day.Add(-24*time.Hour), 24*time.Hour),
			),
			[]usage.OfPeriod{
				{Start: day, Outcome: "no_such_route", Requests: 2},
				{Start: day, Operation: "getPet", Outcome: "ok", Requests: 4},
				{Start: day, Operation: "listPets", Outcome: "internal", Requests: 14},
				{Start: day, Operation: "listPets", Outcome: "ok", Requests: 10},
				{Start: day, Operation: "none", Outcome: "invalid_api_key", Requests: 12},
			},
		)
		wantEqual(t, "usage by hour",
			must.Get[[]usage.OfPeriod](t)(usage.Of(s).UsageByPeriod(ctx, tenant, id.Key{}, last+1, time.Hour)),
			[]usage.OfPeriod{{Start: last, Operation: "getPet", Outcome: "ok", Requests: 4}})
		most := []usage.TenantOutcome{
			{Tenant: tenant, Outcome: "internal", Requests: 14},
			{Tenant: tenant, Outcome: "invalid_api_key", Requests: 12},
		}
		wantEqual(t, "refused most", must.Get[[]usage.TenantOutcome](t)(usage.Of(s).RefusedMost(ctx, last-1, last, 2)), most)
		old := []usage.Row{{Tenant: tenant, Outcome: "ok", Hour: last - (401*24+1)*hour, Requests: 6}}
		kept := []usage.Row{{Tenant: tenant, Outcome: "ok", Hour: last - 401*24*hour, Requests: 7}}
		add(t, s, gateway, 5, slices.Concat(old, kept), usage.Minutes{Tenant: tenant, Hour: last})
		wantEqual(t, "all usage", must.Get[[]usage.Row](t)(usage.Of(s).Usage(ctx, tenant, 0)), slices.Concat(kept, want))
		gateway = registered(t, s, gateway)
		add(t, s, gateway, 5, rows) // as after a lost answer
		wantEqual(t, "usage after a batch was sent again", must.Get[[]usage.Row](t)(usage.Of(s).Usage(ctx, tenant, 0)),
			slices.Concat(kept, want))
		registered(t, s, keystore.Registration{ID: "gw-1", Incarnation: "b"}, "a")
		refused(t, keystore.ErrDisplaced)(usage.Of(s).AddUsage(ctx, gateway, 6, rows, nil))
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
			{"report", false, 160_000, times{160_000, 100_000}},
			{"key_banned", false, 160_000, times{160_000, 160_000}},
			{"upstream_timeout", true, 150_000, times{160_000, 160_000}}, // another gateway's, which was late
		} {
			row := usage.Row{
				Tenant: tenant, Key: key.ID, Outcome: call.outcome, Charged: call.charged, Hour: now.Truncate(time.Hour), Requests: 1, LastAt: now + call.at,
			}
			add(t, s, gateway, int64(i+1), []usage.Row{row})
			k := must.Get[keystore.Key](t)(s.Key(t.Context(), key.ID))
			got := times{max(k.LastUsedAt-now, 0), max(k.RefusedAt-now, 0)}
			wantEqual(t, call.outcome, got, call.want)
		}
		refused := must.Get[[]usage.TenantOutcome](t)(usage.Of(s).RefusedMost(t.Context(), now, now.Add(time.Hour), 9))
		must.Equal(t, len(refused), 5, "outcomes of refusals and failures")
	})
}

// Usage is added up by hour or by UTC day, beginning with a whole one. It is complete through the
// instant up to which the last gateway has stored everything, or until now if no gateway is
// registered.
func TestStatement(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, _ *clock) {
		ctx := t.Context()
		tenant, other := newTenant(t, s, "acme").ID, newTenant(t, s, "globex").ID
		key, _ := newKey(t, s, keystore.KeySpec{Tenant: tenant})
		today := instant.Of(time.Now()).Truncate(24 * time.Hour)
		read := func(since instant.Millis, period time.Duration, n int) ([]usage.StatementRow, instant.Millis) {
			t.Helper()
			found := must.Get[usage.Statement](t)(usage.Of(s).Statement(ctx, tenant, since, period, false, n))
			return found.Rows, found.CompleteThrough
		}
		if rows, through := read(0, time.Hour, 9); len(rows) != 0 || through < today {
			t.Errorf("without gateways: %v, complete through %d", rows, through)
		}
		g := registered(t, s, keystore.Registration{ID: "gw-1", Incarnation: "a", UsageThrough: today})
		row := func(at instant.Millis, operation, outcome string, charged bool, n int64) usage.Row {
			return usage.Row{
				Tenant:    tenant,
				Key:       key.ID,
				Operation: operation,
				Outcome:   outcome,
				Charged:   charged,
				Hour:      at,
				Requests:  n,
			}
		}
		add(t, s, g, 1, []usage.Row{
			row(
				today-hour, "listPets", "ok", true, 1,
			), row(today-24*hour, "listPets", "ok", true, 4), row(today-25*hour, "listPets", "ok", true, 4),
			row(
				today, "listPets", "ok", true, 8,
			), row(today, "listPets", "ok", false, 16), row(today, "", "key_banned", false, 32),
			{Tenant: other, Outcome: "ok", Hour: today, Requests: 512},
			{Tenant: tenant, Operation: "none", Outcome: "invalid_api_key", Hour: today, Requests: 256},
		})
		of := func(at instant.Millis, operation, outcome string, requests, charged int64) usage.StatementRow {
			return usage.StatementRow{
				Start:     at,
				Key:       key.ID,
				Operation: operation,
				Outcome:   outcome,
				Requests:  requests,
				Charged:   charged,
				Units:     charged,
			}
		}
		now := []usage.StatementRow{
			{
				Start:     today,
				Operation: "none",
				Outcome:   "invalid_api_key",
				Requests:  256,
			}, of(today, "", "key_banned", 32, 0), of(today, "listPets", "ok", 24, 8),
		}
		hours, through := read(today-hour+1, time.Hour, 9)
		wantEqual(t, "by hour", hours, append([]usage.StatementRow{of(today-hour, "listPets", "ok", 1, 1)}, now...))
		wantEqual(t, "complete through", through, today)
		days, _ := read(today-hour, 24*time.Hour, 9)
		wantEqual(t, "by day", days, append([]usage.StatementRow{of(today-24*hour, "listPets", "ok", 5, 5)}, now...))
		few, _ := read(0, 24*time.Hour, 2)
		wantEqual(
			t,
			"two rows",
			few,
			[]usage.StatementRow{
				of(today-48*hour, "listPets", "ok", 4, 4), of(today-24*hour, "listPets", "ok", 5, 5),
			},
		)
		top := usage.OfTenant{Tenant: tenant, Requests: 9, Charged: 9, Units: 9, BusiestDay: 5}
		wantEqual(t, "of two days", must.Get[[]usage.OfTenant](t)(usage.Of(s).TopUsage(ctx, today-24*hour-1, today, 9)),
			[]usage.OfTenant{top})
		top.Requests, top.Charged, top.Units, top.BusiestDay = 321, 17, 17, 8
		wantEqual(t, "and today", must.Get[[]usage.OfTenant](t)(usage.Of(s).TopUsage(ctx, today-25*hour, today+1, 9)),
			[]usage.OfTenant{top, {Tenant: other, Requests: 512}})
	})
}

// A receiver's cursor moves only from where it is.
func TestCursor(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, _ *clock) {
		const wrong = "another process sends usage to the same receiver"
		at := func(n int64) usage.Cursor {
			return usage.Cursor{
				Destination: "there",
				Since:       instant.Millis(n),
				Hour:        instant.Millis(n + 1),
				Tenant:      id.Tenant{byte(n + 2)},
				Seal:        n + 3,
			}
		}
		beside := at(1)
		beside.Destination = "beside"
		must.Do(t, usage.Of(s).AddCursor(t.Context(), beside))
		must.Do(t, usage.Of(s).AddCursor(t.Context(), at(1)))
		refused(t, keystore.ErrConflict, wrong)(usage.Of(s).AddCursor(t.Context(), at(2)))
		for _, was := range []usage.Cursor{{}, {Hour: 2, Tenant: id.Tenant{3}}, {Hour: 2, Seal: 4}, {Tenant: id.Tenant{3}, Seal: 4}} {
			was.Destination = "there"
			refused(t, keystore.ErrConflict, wrong)(usage.Of(s).MoveCursor(t.Context(), was, at(5)))
		}
		must.Do(t, usage.Of(s).MoveCursor(t.Context(), at(1), at(5)))
		for _, want := range []usage.Cursor{at(5), beside, {Destination: "elsewhere"}} {
			got, known, err := usage.Of(s).Cursor(t.Context(), want.Destination)
			if must.Do(t, err); got != want || known != (want.Hour != 0) {
				t.Errorf("the cursor is %+v, known: %t; want %+v", got, known, want)
			}
		}
	})
}

// Attempts of one minute that are sent in several batches add up, and gateways have rows of their
// own. Old rows are deleted.
func TestMinutes(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		c.now = c.now.AddDate(-3, 0, 0) // the database deletes nothing that is new by its own clock
		ctx := t.Context()
		tenant, other := newTenant(t, s, "acme").ID, newTenant(t, s, "globex").ID
		c.now = c.now.Truncate(time.Hour).Add(30 * time.Minute)
		last := instant.Of(c.now).Truncate(time.Hour)
		of := func(gateway string, hour instant.Millis, attempts map[int]int64) usage.Minutes {
			m := usage.Minutes{Tenant: tenant, Gateway: gateway, Hour: hour}
			for minute, n := range attempts {
				m.Attempts[minute] = n
			}
			return m
		}
		first := registered(t, s, keystore.Registration{ID: "gw-1", Incarnation: "a"})
		second := registered(t, s, keystore.Registration{ID: "gw-0", Incarnation: "b"})
		elsewhere := usage.Minutes{Tenant: other, Hour: last}
		elsewhere.Attempts[0] = 9
		batch := []usage.Minutes{
			of("", last, map[int]int64{0: 7, 28: 1_000_000, 59: 1}), of("", last-hour, map[int]int64{59: 2}),
			of(
				"", last-(35*24+1)*hour, map[int]int64{5: 5},
			), of("", last-35*24*hour, map[int]int64{5: 5, 59: 4}), elsewhere,
		}
		add(t, s, first, 1, nil, batch...)
		add(t, s, first, 1, nil, batch...) // sent again
		add(t, s, first, 2, nil, of("", last, map[int]int64{28: 3, 29: 4}))
		add(t, s, second, 1, nil, of("", last, map[int]int64{28: 6}))
		wantEqual(
			t,
			"minutes",
			must.Get[[]usage.Minutes](t)(usage.Of(s).Minutes(ctx, tenant, 0)),
			[]usage.Minutes{
				of("gw-1", last-35*24*hour, map[int]int64{5: 5, 59: 4}), // its hour is not over
				of("gw-1", last-hour, map[int]int64{59: 2}),
				of("gw-0", last, map[int]int64{28: 6}),
				of("gw-1", last, map[int]int64{0: 7, 28: 1_000_003, 29: 4, 59: 1}),
			},
		)
		wantEqual(t, "rows of the last hour", len(must.Get[[]usage.Minutes](t)(usage.Of(s).Minutes(ctx, tenant, last+1))),
			2)
		for _, text := range []string{"|5", "?5", "@", "@5A", "@x"} {
			if err := new(usage.Attempts).Scan(text); err == nil ||
				!strings.HasPrefix(err.Error(), "attempts of a minute: ") {
				t.Errorf("%q is read as attempts: %v", text, err)
			}
		}
	})
}

// A process that ends without storing its usage is noted. If it comes back, the note goes, and a
// batch that was stored before is not added again.
func TestUsageGaps(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		ctx := t.Context()
		tenant := newTenant(t, s, "acme").ID
		last := instant.Of(c.now).Truncate(time.Hour)
		register := func(gateway, incarnation string, dead ...string) keystore.Registration {
			t.Helper()
			return registered(t, s,
				keystore.Registration{ID: gateway, Incarnation: incarnation, UsageThrough: last - 1, MaxAge: 1},
				dead...)
		}
		gaps := func() []string {
			t.Helper()
			found := []string{}
			for _, g := range must.Get[[]usage.Gap](t)(usage.Of(s).UsageGaps(ctx, 0)) {
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
		rows := []usage.Row{{Tenant: tenant, Outcome: "ok", Hour: last, Requests: 1}}

		forgotten := working(register("gw-1", "a"))
		add(t, s, forgotten, 1, rows)
		add(t, s, forgotten, 2, rows)
		must.Get[keystore.Change](t)(s.ForgetGateway(ctx, "gw-1"))
		wantEqual(t, "after gw-1 was forgotten", gaps(), []string{"gw-1 forgotten"})
		forgotten = register("gw-1", "a")
		add(t, s, forgotten, 2, rows) // its answer was lost
		add(t, s, forgotten, 3, rows)
		wantEqual(t, "requests that are stored", must.Get[[]usage.Row](t)(usage.Of(s).Usage(ctx, tenant, 0))[0].Requests,
			int64(3))
		wantEqual(t, "after gw-1 came back", gaps(), []string{})
		working(forgotten)
		successor := register("gw-1", "b", "a")
		wantEqual(t, "after gw-1 was killed", gaps(), []string{"gw-1 killed"})
		must.Do(t, s.SignOff(ctx, successor))
		must.Do(t, s.SignOffWithGap(ctx, working(register("gw-2", "c"))))
		working(register("gw-3", "d"))
		wantEqual(t, "gw-3 is removed", must.Get[bool](t)(s.RemoveFenced(ctx, gateways(t, s)[0])), true)
		dropping := working(register("gw-4", "e"))
		for _, batch := range []int64{1, 2, 2} { // once again, as after a lost answer
			must.Do(t, usage.Of(s).NoteDropped(ctx, dropping, batch))
		}
		register("gw-4", "e")
		wantEqual(t, "at the end", gaps(),
			[]string{"gw-1 killed", "gw-2 unwritten", "gw-3 fenced", "gw-4 dropped", "gw-4 dropped"})
		wantEqual(t, "gaps of the future",
			must.Get[[]usage.Gap](t)(usage.Of(s).UsageGaps(ctx, instant.Of(time.Now().Add(time.Hour)))),
			[]usage.Gap{})
	})
}

// A tenant is near its limit of a month although it is quiet today. Its month begins on a day of
// its own, and its use with its last reset.
func TestNearestToLimit(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		at := func(month time.Month, day int) instant.Millis {
			return instant.Of(time.Date(2026, month, day, 9, 0, 0, 0, time.UTC))
		}
		gateway := registered(t, s, keystore.Registration{ID: "gw-1", Incarnation: "a"})
		named := map[id.Tenant]string{}
		for i, test := range []struct {
			name   string
			starts uint8
			limits plan.Limits
			used   instant.Millis
			n      int64
		}{
			{"today", 0, plan.Limits{Day: 1000}, at(3, 10) - 9*hour, 500},
			{"yesterday", 0, plan.Limits{Day: 1000}, at(3, 10) - 10*hour, 900},
			{"this month", 0, plan.Limits{Month: 10_000}, at(3, 1), 9000},
			{"its plan's day", 0, plan.Limits{}, at(3, 10), 9000},
			{"last month", 0, plan.Limits{Month: 1000}, at(2, 28), 900},
			{"month since the 20th", 20, plan.Limits{Month: 1000}, at(2, 20), 950},
			{"month before the 20th", 20, plan.Limits{Month: 1000}, at(2, 19), 950},
			{"month since the 10th", 10, plan.Limits{Month: 1000}, at(3, 9), 950},
			{"both", 5, plan.Limits{Day: 500, Month: 1000}, at(3, 10), 400},
			{"reset", 0, plan.Limits{Month: 1000}, at(3, 6) - hour, 990},
			{"hour of its reset", 0, plan.Limits{Month: 1000}, at(3, 6), 800},
		} {
			made := must.First[keystore.Tenant](t)(s.CreateTenant(t.Context(),
				keystore.TenantSpec{Name: test.name, Plan: "pro", Override: test.limits, MonthStarts: test.starts}))
			named[made.ID] = test.name
			add(t, s, gateway, int64(i+1), []usage.Row{
				{Tenant: made.ID, Outcome: "ok", Charged: true, Hour: test.used, Requests: 1, MoreUnits: test.n - 1},
				{Tenant: made.ID, Outcome: "minute_quota_exceeded", Hour: at(3, 10), Requests: 9999},
				{Tenant: made.ID, Outcome: "ok", Charged: true, IsTest: true, Hour: at(3, 10) - hour, Requests: 9999},
			})
		}
		c.now = at(3, 6).Time()
		for _, name := range []string{"reset", "hour of its reset"} {
			must.Get[keystore.Change](t)(
				s.ResetUsage(t.Context(), must.Get[keystore.Tenant](t)(s.Tenant(t.Context(), name)).ID),
			)
		}
		for n, want := range map[int][]string{
			1: {"its plan's day", "month since the 20th"}, 10: {"its plan's day", "both", "today", "month since the 20th", "this month", "hour of its reset"},
		} {
			var found []string
			for _, tenant := range must.Get[[]id.Tenant](t)(usage.Of(s).NearestToLimit(t.Context(), at(3, 10), n)) {
				found = append(found, named[tenant])
			}
			wantEqual(t, "the nearest", found, want)
		}
	})
}

// The usage of test keys is apart from that of live keys, and on no bill.
func TestUsageOfTestKeys(t *testing.T) {
	t.Parallel()
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		ctx, db := t.Context(), open(t, url)
		s := keystore.New(db, nil, nil, "ada")
		tenant := newTenant(t, s, "acme").ID
		live, _ := newKey(t, s, keystore.KeySpec{Tenant: tenant})
		test, _ := newKey(t, s, keystore.KeySpec{Tenant: tenant, Environment: apikey.Test})
		open := instant.Of(time.Now()).Truncate(time.Hour) - 3*hour
		sealed := open - hour
		row := usage.Row{Tenant: tenant, Operation: "listPets", Outcome: "ok", Charged: true}
		in := func(hour instant.Millis, k id.Key, isTest bool, requests, moreUnits int64) usage.Row {
			r := row
			r.Hour, r.Key, r.IsTest = hour, k, isTest
			r.Requests, r.MoreUnits = requests, moreUnits
			return r
		}
		of := func(k id.Key, isTest bool, requests, moreUnits int64) usage.Row {
			return in(open, k, isTest, requests, moreUnits)
		}
		g := registered(t, s, keystore.Registration{ID: "gw-1", Incarnation: "a", UsageThrough: open})
		add(t, s, g, 1, []usage.Row{in(sealed, live.ID, false, 10, 0), in(sealed, test.ID, true, 10, 0)})
		first := must.Get[usage.Seal](t)(usage.Of(s).SealUsage(ctx))
		add(t, s, g, 2, []usage.Row{in(sealed, live.ID, false, 3, 0), in(sealed, test.ID, true, 3, 0)})
		g = registered(t, s, keystore.Registration{ID: "gw-1", Incarnation: "a", UsageThrough: open + 3*hour/2})
		deleted := id.Key{1}
		add(t, s, g, 3,
			[]usage.Row{
				of(live.ID, false, 120, 0), of(test.ID, true, 121, 0),
				in(open+hour, live.ID, false, 7, 0), in(open+hour, test.ID, true, 7, 0),
			})
		add(t, s, g, 4,
			[]usage.Row{of(live.ID, false, 2, 8), of(test.ID, true, 4, 16), of(deleted, true, 1, 0)},
			usage.Minutes{Tenant: tenant, Hour: open, IsTest: true, Attempts: [60]int64{7: 5}})

		// A batch is stored as a whole or not at all.
		run(t, db, "ALTER TABLE usage_minutes RENAME TO hidden")
		batch := []usage.Row{of(live.ID, false, 30, 0)}
		if usage.Of(s).AddUsage(ctx, g, 5, batch, []usage.Minutes{{Tenant: tenant, Hour: open}}) == nil {
			t.Error("a batch is stored without its minutes")
		}
		run(t, db, "ALTER TABLE hidden RENAME TO usage_minutes")
		batch[0].Requests = 0
		add(t, s, g, 5, batch)

		ofLive, ofTest, ofDeleted := of(live.ID, false, 122, 8), of(test.ID, true, 125, 16), of(deleted, true, 1, 0)
		lateLive, lateTest := in(open+hour, live.ID, false, 7, 0), in(open+hour, test.ID, true, 7, 0)
		want := []usage.Row{ofLive, ofTest, ofDeleted, lateLive, lateTest}
		slices.SortFunc(want, func(a, b usage.Row) int {
			return cmp.Or(cmp.Compare(a.Hour, b.Hour), strings.Compare(a.Key.String(), b.Key.String()))
		})
		wantEqual(t, "usage", must.Get[[]usage.Row](t)(usage.Of(s).Usage(ctx, tenant, open)), want)
		statement := func(isTest bool) (rows []usage.StatementRow) {
			return must.Get[usage.Statement](t)(usage.Of(s).Statement(ctx, tenant, open, time.Hour, isTest, 9)).Rows
		}
		stated := usage.StatementRow{
			Start:     open,
			Key:       live.ID,
			Operation: "listPets",
			Outcome:   "ok",
			Requests:  122,
			Charged:   122,
			Units:     130,
		}
		wantEqual(t, "statement of live keys", statement(false)[:1], []usage.StatementRow{stated})
		if rows := statement(true); len(rows) != 3 || rows[0].Units+rows[1].Units+rows[2].Units != 149 {
			t.Errorf("statement of test keys: %+v", rows)
		}
		for key, requests := range map[id.Key]int64{{}: 122, test.ID: 125} {
			wantEqual(t, "by period",
				must.Get[[]usage.OfPeriod](t)(usage.Of(s).UsageByPeriod(ctx, tenant, key, open, time.Hour))[:1],
				[]usage.OfPeriod{{Start: open, Operation: "listPets", Outcome: "ok", Requests: requests}})
		}
		wantEqual(t, "top", must.Get[[]usage.OfTenant](t)(usage.Of(s).TopUsage(ctx, open, open+hour, 9)),
			[]usage.OfTenant{{Tenant: tenant, Requests: 122, Charged: 122, Units: 130, BusiestDay: 130}})
		if minutes := must.Get[[]usage.Minutes](t)(usage.Of(s).Minutes(ctx, tenant, open)); len(minutes) != 1 ||
			!minutes[0].IsTest {
			t.Errorf("minutes: %+v", minutes)
		}
		last := must.Get[usage.Seal](t)(usage.Of(s).SealUsage(ctx))
		wantEqual(t, "the end of the last whole hour", last.Through, open+hour)
		bill := usage.Sealed{
			Hour:      sealed,
			Tenant:    tenant,
			Operation: "listPets",
			Requests:  10,
			Charged:   10,
			Units:     10,
		}
		wantEqual(t, "what was sealed before",
			must.Get[[]usage.Sealed](t)(usage.Of(s).UsageOfHour(ctx, sealed, id.Tenant{}, nil, 9)),
			[]usage.Sealed{bill})
		bill.Correction, bill.Requests, bill.Charged, bill.Units = first.Number, 3, 3, 3
		wantEqual(t, "corrections",
			must.Get[[]usage.Sealed](t)(usage.Of(s).Corrections(ctx, usage.Sealed{}, last.Number, 0, open, 9)),
			[]usage.Sealed{bill})
		bill = usage.Sealed{
			Hour:      open,
			Tenant:    tenant,
			Operation: "listPets",
			Requests:  122,
			Charged:   122,
			Units:     130,
		}
		wantEqual(t, "what is sealed now",
			must.Get[[]usage.Sealed](t)(usage.Of(s).UsageOfHour(ctx, open, id.Tenant{}, nil, 9)),
			[]usage.Sealed{bill})
		wantEqual(t, "after the operation",
			must.Get[[]usage.Sealed](t)(usage.Of(s).UsageOfHour(ctx, open, tenant, &bill.Operation, 9)),
			[]usage.Sealed{})
	})
}

package metering

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/keystore/schema"
	"petgate/shared/keystore/usage"
	"petgate/shared/operate"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// metered is a database with usage of three tenants in hours up to the one that is open.
type metered struct {
	t       *testing.T
	url     string
	now     time.Time
	db      *database.DB
	store   *keystore.Store
	gateway keystore.Registration
	tenants []id.Tenant
	batch   int64
}

// newMetered has a gateway that has stored everything before the hour that began an hour ago:
// eleven events in three hours.
func newMetered(t *testing.T, url string) *metered {
	t.Helper()
	db := testkit.Open(t, url, schema.Migrations)
	u := &metered{
		t:       t,
		url:     url,
		db:      db,
		now:     time.Date(2026, 3, 1, 12, 0, 1, 0, time.UTC),
		tenants: []id.Tenant{{1}, {2}, {3}},
	}
	u.store = keystore.New(db, func() time.Time { return u.now }, nil, "test")
	u.gateway = keystore.Registration{ID: "gw-1", Incarnation: "gw-1-1", AdminAddress: "127.0.0.1:1"}
	var err error
	if u.gateway.Generation, err = u.store.Register(t.Context(), u.gateway, nil); err != nil {
		t.Fatal(err)
	}
	for ago := range 5 { // of the hour that has just begun, too
		for i, tenant := range u.tenants {
			u.use(tenant, u.hour(ago), "listPets", int64(10*ago+i+1))
		}
	}
	u.use(u.tenants[0], u.hour(3), "getPet", 7)
	u.add(usage.Row{Tenant: u.tenants[2], Outcome: "key_banned", Hour: u.hour(2), Requests: 50})
	u.stored(u.hour(1))
	return u
}

func (u *metered) hour(ago int) instant.Millis {
	return instant.Of(u.now).Truncate(time.Hour).Add(-time.Duration(ago) * time.Hour)
}

func (u *metered) use(tenant id.Tenant, hour instant.Millis, operation string, requests int64) {
	u.t.Helper()
	u.add(
		usage.Row{
			Tenant:    tenant,
			Operation: operation,
			Outcome:   "ok",
			Charged:   true,
			Hour:      hour,
			Requests:  requests,
			MoreUnits: requests,
		},
	)
}

func (u *metered) add(rows ...usage.Row) {
	u.t.Helper()
	u.batch++
	must.Do(u.t, usage.Of(u.store).AddUsage(u.t.Context(), u.gateway, u.batch, rows, nil))
}

// stored publishes that the gateway has stored its usage up to an instant.
func (u *metered) stored(through instant.Millis) {
	u.t.Helper()
	u.gateway.UsageThrough = through
	last, err := u.store.LastEvent(u.t.Context())
	if err == nil {
		_, err = u.store.Heartbeat(u.t.Context(), u.gateway, last, "")
	}
	must.Do(u.t, err)
}

// export is what is written since a day ago and until an hour; 0: until the last one.
func (u *metered) export(format Format, until instant.Millis) (*Export, string) {
	u.t.Helper()
	e, err := New(u.t.Context(), u.store, format, instant.Of(u.now).Add(-24*time.Hour), cmp.Or(until, operate.Forever))
	var out bytes.Buffer
	if err == nil {
		err = e.Write(u.t.Context(), &out)
	}
	must.Do(u.t, err)
	return e, out.String()
}

// charged adds up what is charged since a day ago and before an hour, by tenant.
func (u *metered) charged(before instant.Millis) map[string]int64 {
	u.t.Helper()
	sums := map[string]int64{}
	for _, tenant := range u.tenants {
		for _, r := range must.Get[[]usage.Row](u.t)(usage.Of(u.store).Usage(u.t.Context(), tenant, 0)) {
			if r.Charged && r.Hour < before && r.Hour >= u.hour(24) {
				sums[tenant.String()] += r.Requests
			}
		}
	}
	return sums
}

// An export is the same byte by byte, whether hours close meanwhile or not. An open hour is never
// in it. Later usage is one event more, and only one, after all hours.
func TestExportIsTheSameAgain(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		u := newMetered(t, url)
		export := func() string {
			t.Helper()
			_, text := u.export(CloudEvents, u.hour(2))
			return text
		}
		first := export()
		if n := strings.Count(first, "\n"); n != 7 {
			t.Errorf("%d events, want 7: the hours 4 and 3\n%s", n, first)
		}
		for _, until := range []instant.Millis{0, u.hour(-1)} {
			e, all := u.export(CSV, until)
			for _, open := range []instant.Millis{u.hour(1), u.hour(0)} {
				if strings.Contains(all, ","+open.String()+",") {
					t.Errorf("the open hour %s is exported:\n%s", open, all)
				}
			}
			if want := (Sums{Events: 11, Requests: 345, Charged: 295, Units: 590}); e.Sums != want {
				t.Errorf("the sums are %+v, want %+v", e.Sums, want)
			}
		}
		u.stored(u.hour(0))
		must.Equal(t, export(), first, "exported again")
		u.use(u.tenants[1], u.hour(4), "listPets", 3)
		u.use(u.tenants[1], u.hour(4), "listPets", 4)
		u.use(u.tenants[0], u.hour(2), "listPets", 4) // not of these hours
		withLate := export()
		late, found := strings.CutPrefix(withLate, first)
		if !found || strings.Count(late, "\n") != 1 ||
			!strings.Contains(late,
				`"requests":7,"charged":7,"start":"2026-03-01T08:00:00Z","correction":4,"units":14`) {
			t.Errorf("late usage makes\n%s", late)
		}
		must.Equal(t, export(), withLate, "exported again with the correction")
		u.use(u.tenants[1], u.hour(4), "listPets", 1)
		if last := export(); strings.Count(last, "\n") != strings.Count(withLate, "\n")+1 ||
			!strings.HasPrefix(last, withLate) {
			t.Errorf("a second correction changes the first one:\n%s\nwant\n%s", last, withLate)
		}
		_, want := u.export(CSV, 0)
		for n := range 17 { // the pages of an export, of any size, have the same events
			e, _ := u.export(CSV, 0)
			got := forms[CSV].head
			isLast := false
			for after := (usage.Sealed{}); ; {
				page, err := e.Page(t.Context(), after, n+1)
				if must.Do(t, err); len(page) == 0 {
					break
				}
				if isLast || len(page) > n+1 {
					t.Errorf("a page of %d events, want %d on each but the last", len(page), n+1)
				}
				isLast = len(page) <= n
				for _, after = range page {
					v := e.View(after)
					got += fmt.Sprintf("%s,%s,%s,%s,%d,%d,%d,%d\r\n", v.ID, v.Start, v.TenantID, v.Operation,
						v.Correction, v.Requests, v.Charged, v.Units)
				}
			}
			must.Equal(t, got, want, "in pages of %d", n+1)
		}
		// A part of an hour counts as the hour, and a page after an event of an earlier hour begins
		// with the first event.
		u.exec(`UPDATE usage_hours SET hour = $1 WHERE hour = $2`, u.hour(5), u.hour(3))
		part := 59 * time.Minute
		e, err := New(t.Context(), u.store, CSV, u.hour(4).Add(part), u.hour(2).Add(part))
		must.Do(t, err)
		u.use(u.tenants[1], u.hour(4), "listPets", 1) // for the next export
		page, err := e.Page(t.Context(), usage.Sealed{Hour: u.hour(5), Tenant: u.tenants[1]}, 9)
		if err != nil || len(page) != 5 || page[0].Tenant != u.tenants[0] { // of one hour, with two corrections
			t.Errorf("the page is %+v, %v", page, err)
		}
	})
}

// Each event of the formats, in a file and in a request.
func TestFormats(t *testing.T) {
	hour := instant.Of(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC))
	events := []event{
		{usage.Sealed{Hour: hour, Tenant: id.Tenant{1}, Operation: "list,Pets&", Requests: 3, Charged: 2, Units: 10}, "abc"},
		{usage.Sealed{Hour: hour, Tenant: id.Tenant{1}, Correction: 1, Requests: 3}, "abc"},
	}
	tenant := id.Tenant{1}.String()
	for format, want := range map[Format]string{
		CSV: "id,start,tenant,operation,correction,requests,charged,units\r\n" +
			`"pgu_abc_TEN_2026030109_list,Pets&",2026-03-01T09:00:00Z,TEN,"list,Pets&",0,3,2,10` + "\r\n" +
			"pgu_abc_TEN_2026030109_-_c1,2026-03-01T09:00:00Z,TEN,,1,3,0,0\r\n",
		CloudEvents: `[{"specversion":"1.0","id":"pgu_abc_TEN_2026030109_list,Pets&","source":"/petgate/abc",` +
			`"type":"petgate.requests",` +
			`"subject":"TEN","time":"2026-03-01T10:00:00Z","datacontenttype":"application/json",` +
			`"data":{"operation":"list,Pets&","requests":3,"charged":2,"start":"2026-03-01T09:00:00Z","units":10}},` +
			`{"specversion":"1.0","id":"pgu_abc_TEN_2026030109_-_c1","source":"/petgate/abc","type":"petgate.requests",` +
			`"subject":"TEN","time":"2026-03-01T10:00:00Z","datacontenttype":"application/json",` +
			`"data":{"operation":"","requests":3,"charged":0,"start":"2026-03-01T09:00:00Z","correction":1,"units":0}}]`,
	} {
		must.Equal(t, strings.ReplaceAll(string(format.body(events)), tenant, "TEN"), want, "%s", format)
	}
	var f Format
	if err := f.UnmarshalText([]byte("xml")); err == nil ||
		err.Error() != `"xml" is not a format: use cloudevents or csv` {
		t.Error(err)
	}
}

// Gateways that keep hours open are named, whether they live or not, and so is what is missing.
func TestMissing(t *testing.T) {
	u := newMetered(t, testkit.SQLite(t))
	ages := regexp.MustCompile(`[\d,]+ days ago`)
	says := func(want string) {
		t.Helper()
		e, _ := u.export(CSV, 0)
		texts, err := e.Missing(t.Context(), instant.Of(u.now), instant.Of(u.now))
		if got := ages.ReplaceAllString(strings.Join(texts, "\n"), "AGE ago"); err != nil || got != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	const open = "The hours from 2026-03-01T11:00:00Z on are open: gateway gw-1 (127.0.0.1)"
	says(open + " has stored no usage since 2026-03-01T11:00:00Z. See its log.")
	u.stored(0)
	says(open + " stores no usage. See its log. If its version is older than the database's schema, update it.")
	u.exec(`UPDATE gateways SET seen_at = 1`)
	says(open + ", last seen AGE ago, may have usage of them. If it will not come back: keyadmin gateway forget gw-1")
	u.stored(instant.Of(u.now).Add(-15 * time.Minute))
	says("")
	u.stored(instant.Of(u.now).Add(-15*time.Minute) - 1)
	says(open + " has stored no usage since 2026-03-01T11:45:00Z. See its log.")
	u.stored(u.hour(0))
	u.exec(`UPDATE gateways SET seen_at = 1`)
	says("") // it has stored every hour that has ended
	must.Do(t, u.store.SignOffWithGap(t.Context(), u.gateway))
	u.exec(`UPDATE usage_gaps SET seen_at = $1`, u.hour(0))
	says(
		"Gateway gw-1 could not write its last usage. Of what it counted from 2026-03-01T12:00:00Z to 2026-03-01T12:00:00Z, " +
			"some may be missing, usually the last 3 seconds.",
	)
	// A process that was seen before the hours of this export, and was noted after.
	u.exec(`UPDATE usage_gaps SET since = $1, seen_at = $1, noted_at = $2`, u.hour(200), u.hour(1))
	for cause, text := range map[string]string{
		keystore.GapKilled: "was killed", keystore.GapForgotten: "was forgotten", keystore.GapFenced: "was fenced",
		keystore.GapDropped: "dropped usage, because it could not write for too long",
	} {
		u.exec(`UPDATE usage_gaps SET cause = $1`, cause)
		missing := cmp.Or(map[string]string{keystore.GapDropped: "some is missing."}[cause],
			"some may be missing, usually the last 3 seconds.")
		says(
			"Gateway gw-1 " + text + ". Of what it counted from 2026-02-28T12:00:00Z to 2026-03-01T11:00:00Z, " + missing,
		)
	}
	u.exec(`UPDATE usage_gaps SET seen_at = $1, cause = 'killed'`, u.hour(24))
	says(
		"Gateway gw-1 was killed. Of what it counted from 2026-02-28T12:00:00Z to 2026-02-28T12:00:00Z, " +
			"some may be missing, usually the last 3 seconds.",
	)
	u.exec(`UPDATE usage_gaps SET cause = 'dropped'`) // it went on after that
	says(
		"Gateway gw-1 dropped usage, because it could not write for too long. " +
			"Of what it counted from 2026-02-28T12:00:00Z to 2026-03-01T11:00:00Z, some is missing.",
	)
	u.exec(`UPDATE usage_gaps SET noted_at = $1`, u.hour(24))
	says("")
	u.exec(`UPDATE usage_gaps SET since = $1, noted_at = $1`, u.hour(1))
	e, _ := u.export(CSV, u.hour(1))
	if texts, err := e.Missing(t.Context(), instant.Of(u.now), u.hour(1)); err != nil || len(texts) > 0 {
		t.Errorf("of a gap after the export: %q, %v", texts, err)
	}
}

func (u *metered) exec(query string, args ...any) {
	u.t.Helper()
	if _, err := u.db.Exec(query, args...); err != nil {
		u.t.Fatal(fmt.Errorf("%s: %w", query, err))
	}
}

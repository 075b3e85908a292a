package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
)

// metered is a database with usage of three tenants in hours up to the one that is open.
type metered struct {
	*shell
	store   *keystore.Store
	gateway *gateway
	tenants []keystore.Tenant
	batch   int64
}

// newMetered has a gateway that has stored everything before the hour that began an hour ago.
func newMetered(s *shell) *metered {
	s.t.Helper()
	u := &metered{shell: s, store: s.store()}
	for _, name := range []string{"acme", "globex", "initech"} {
		s.ok("tenant", "create", name)
		tenant, err := u.store.Tenant(s.t.Context(), name)
		if err != nil {
			s.t.Fatal(err)
		}
		u.tenants = append(u.tenants, tenant)
	}
	u.gateway = s.gateway(u.store, "gw-1", "127.0.0.1:1")
	for ago := range 5 { // of the hour that has just begun, too
		for i, tenant := range u.tenants {
			u.use(tenant, u.hour(ago), "listPets", int64(10*ago+i+1))
		}
	}
	u.use(u.tenants[0], u.hour(3), "getPet", 7)
	u.add(keystore.UsageRow{Tenant: u.tenants[2].ID, Outcome: "key_banned", Hour: u.hour(2), Requests: 50})
	u.stored(u.hour(1))
	return u
}

func (u *metered) hour(ago int) instant.Millis {
	return instant.Of(u.now).Truncate(time.Hour).Add(-time.Duration(ago) * time.Hour)
}

func (u *metered) use(tenant keystore.Tenant, hour instant.Millis, operation string, requests int64) {
	u.t.Helper()
	u.add(keystore.UsageRow{Tenant: tenant.ID, Operation: operation, Outcome: "ok", Charged: true, Hour: hour, Requests: requests})
}

func (u *metered) add(rows ...keystore.UsageRow) {
	u.t.Helper()
	u.batch++
	if err := u.store.AddUsage(u.t.Context(), u.gateway.Registration, u.batch, rows, nil); err != nil {
		u.t.Fatal(err)
	}
}

// stored publishes that the gateway has stored its usage up to an instant.
func (u *metered) stored(through instant.Millis) {
	u.t.Helper()
	u.gateway.UsageThrough = through
	u.gateway.follow()
}

// sums adds up what is charged in sealed hours of the database, by tenant.
func (u *metered) sums(before instant.Millis) map[string]int64 {
	u.t.Helper()
	sums := map[string]int64{}
	for _, tenant := range u.tenants {
		rows, err := u.store.Usage(u.t.Context(), tenant.ID, 0)
		if err != nil {
			u.t.Fatal(err)
		}
		for _, r := range rows {
			if r.Charged && r.Hour < before {
				sums[tenant.ID.String()] += r.Requests
			}
		}
	}
	return sums
}

func TestUsageExport(t *testing.T) {
	eachMode(t, "export", func(s *shell) {
		u := newMetered(s)
		s.record.Reset()
		for _, format := range []string{"csv", "cloudevents", "stripe", "lago"} {
			s.ok("usage", "export", "--format", format, "--since", "3h")
		}
		s.ok("usage", "export", "--format", "csv", "--until", "3h")
		s.ok("usage", "export", "--format", "csv", "--verify")
		s.ok("usage", "export", "--format", "csv", "--verify", "-o", "json")
		u.use(u.tenants[0], u.hour(2), "listPets", 5)
		u.use(u.tenants[0], u.hour(2), "listPets", 1)
		s.ok("usage", "export", "--format", "csv", "--since", "3h")
		s.ok("usage", "export", "--format", "lago", "--since", "3h")
		s.keyadmin("usage", "export", "--format", "xml", "--to", "ftp://x")
		s.keyadmin("usage", "export", "--format", "csv", "--token-file", "x")
		s.keyadmin("usage", "export")
	})
}

// An export is the same byte by byte, whether hours close meanwhile or not. An open hour is never in it. Later usage is one event
// more, and only one.
func TestExportIsTheSameAgain(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		u := newMetered(newMigrated(t, url))
		export := func() string {
			t.Helper()
			r := u.want(exitDone, "SHA-256", "usage", "export", "--format", "cloudevents", "--since", "1d", "--until", "2h")
			return r.stdout
		}
		first := export()
		if n := strings.Count(first, "\n"); n != 7 {
			t.Errorf("%d events, want 7: the hours 4 and 3\n%s", n, first)
		}
		all := u.want(exitDone, "", "usage", "export", "--format", "csv", "--since", "1d").stdout
		for _, open := range []instant.Millis{u.hour(1), u.hour(0)} {
			if strings.Contains(all, ","+open.String()+",") {
				t.Errorf("the open hour %s is exported:\n%s", open, all)
			}
		}
		u.stored(u.hour(0))
		if again := export(); again != first {
			t.Errorf("exported again:\n%s\nwant\n%s", again, first)
		}
		u.use(u.tenants[1], u.hour(4), "listPets", 3)
		u.use(u.tenants[1], u.hour(4), "listPets", 4)
		withLate := export()
		late, found := strings.CutPrefix(withLate, first)
		if !found || strings.Count(late, "\n") != 1 || !strings.Contains(late, `"requests":7,"charged":7`) {
			t.Errorf("late usage makes\n%s", late)
		}
		if again := export(); again != withLate {
			t.Errorf("with the correction, exported again:\n%s\nwant\n%s", again, withLate)
		}
		u.use(u.tenants[1], u.hour(4), "listPets", 1)
		if last := export(); strings.Count(last, "\n") != strings.Count(withLate, "\n")+1 || !strings.HasPrefix(last, withLate) {
			t.Errorf("a second correction changes the first one:\n%s\nwant\n%s", last, withLate)
		}
	})
}

// meter is a receiver that recognizes requests by their Idempotency-Key, and events by their IDs.
type meter struct {
	*httptest.Server
	mu       sync.Mutex
	events   map[string]string // by ID
	keys     map[string]bool
	repeated int
	changed  []string
	requests int
	// fault may end the n-th request. It returns true if it has answered.
	fault func(n int, w http.ResponseWriter, take func()) bool
}

func newMeter(t *testing.T) *meter {
	m := &meter{events: map[string]string{}, keys: map[string]bool{}}
	m.Server = httptest.NewServer(m)
	t.Cleanup(m.Close)
	return m
}

func (m *meter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var events []json.RawMessage
	if err != nil || json.Unmarshal(body, &events) != nil {
		http.Error(w, "no events", http.StatusBadRequest)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests++
	take := func() {
		key := r.Header.Get("Idempotency-Key")
		if m.keys[key] {
			m.repeated += len(events)
			return
		}
		m.keys[key] = true
		for _, text := range events {
			var head struct {
				ID string `json:"id"`
			}
			if err := json.Unmarshal(text, &head); err != nil {
				panic(err)
			}
			if before, known := m.events[head.ID]; known {
				m.repeated++
				if before != string(text) {
					m.changed = append(m.changed, head.ID)
				}
			}
			m.events[head.ID] = string(text)
		}
	}
	if m.fault != nil && m.fault(m.requests, w, take) {
		return
	}
	take()
	w.WriteHeader(http.StatusAccepted)
}

// sums adds up the charged requests of all events, by tenant.
func (m *meter) sums(t *testing.T) map[string]int64 {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.changed) > 0 {
		t.Errorf("events with the same ID and other contents: %v", m.changed)
	}
	sums := map[string]int64{}
	for _, text := range m.events {
		var e event.Event
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			t.Fatal(err)
		}
		if err := e.Validate(); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		var data struct{ Charged int64 }
		if err := e.DataAs(&data); err != nil {
			t.Fatal(err)
		}
		sums[e.Subject()] += data.Charged
	}
	return sums
}

// Whatever happens to a request, the next export continues, and at the end the receiver has each event once.
func TestExportToAReceiver(t *testing.T) {
	faults := map[string]func(w http.ResponseWriter, take func()) bool{
		"not taken":        func(http.ResponseWriter, func()) bool { panic(http.ErrAbortHandler) },
		"taken, no answer": func(_ http.ResponseWriter, take func()) bool { take(); panic(http.ErrAbortHandler) },
		"refused":          func(w http.ResponseWriter, _ func()) bool { w.WriteHeader(http.StatusForbidden); return true },
		"redirected": func(w http.ResponseWriter, _ func()) bool {
			w.Header().Set("Location", "/")
			w.WriteHeader(307)
			return true
		},
		"taken, then error": func(w http.ResponseWriter, take func()) bool {
			take()
			w.WriteHeader(http.StatusBadRequest)
			return true
		},
	}
	batch := usageFormats[0].batch
	usageFormats[0].batch = 2
	t.Cleanup(func() { usageFormats[0].batch = batch })
	url := testkit.SQLite(t)
	u := newMetered(newMigrated(t, url))
	for name, fault := range faults {
		m := newMeter(t)
		export := func() exitCode {
			return u.keyadmin("usage", "export", "--format", "cloudevents", "--since", "1d", "--to", m.URL+"/").code
		}
		failures := 0
		m.fault = func(n int, w http.ResponseWriter, take func()) bool {
			return n%2 == 1 && fault(w, take) // every other request
		}
		u.ended = true // it does not try again by itself
		for export() != exitDone {
			if failures++; failures > 30 {
				t.Fatalf("%s: no end:\n%s", name, u.record.String())
			}
		}
		u.ended = false
		if got, want := fmt.Sprint(m.sums(t)), fmt.Sprint(u.sums(u.hour(1))); got != want || failures == 0 {
			t.Errorf("%s, %d failures: the receiver has %s, want %s", name, failures, got, want)
		}
		requests := m.requests
		if code := export(); code != exitDone || m.requests != requests {
			t.Errorf("%s: another export ends with %d and sends %d requests", name, code, m.requests-requests)
		}
	}
}

// A receiver gets late usage as one correction, new hours as they close, and with --verify the same sums are printed.
func TestReceiverGetsCorrections(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		u := newMetered(newMigrated(t, url))
		m := newMeter(t)
		token := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		export := func(more ...string) result {
			t.Helper()
			return u.want(exitDone, "", append([]string{"usage", "export", "--format", "cloudevents", "--to", m.URL, "--token-file", token}, more...)...)
		}
		check := func(when string, events int) {
			t.Helper()
			if got, want := fmt.Sprint(m.sums(t)), fmt.Sprint(u.sums(u.gateway.UsageThrough)); got != want || len(m.events) != events || m.repeated != 0 {
				t.Errorf("%s: %d events, %d of them twice: %s, want %d: %s", when, len(m.events), m.repeated, got, events, want)
			}
		}
		export("--since", "1d")
		check("at first", 11)
		u.stored(u.hour(0))
		u.use(u.tenants[1], u.hour(4), "listPets", 3)
		u.use(u.tenants[1], u.hour(4), "listPets", 4)
		export()
		check("an hour later", 15)
		export()
		check("again", 15)
		u.use(u.tenants[2], u.hour(2), "getPet", 2)
		export()
		check("late usage of another operation", 16)
		sums := export("--verify", "-o", "json")
		var views []verifyView
		if err := json.Unmarshal([]byte(sums.stdout), &views); err != nil {
			t.Fatal(err)
		}
		for _, v := range views {
			if want := m.sums(t)[v.TenantID]; v.Charged != want {
				t.Errorf("--verify: %s %d, want %d", v.Tenant, v.Charged, want)
			}
		}
		if len(views) != 3 {
			t.Errorf("--verify: %+v", views)
		}
	})
}

// Gateways that keep hours open are named, whether they live or not.
func TestExportNamesGatewaysThatStoreNothing(t *testing.T) {
	u := newMetered(newMigrated(t, testkit.SQLite(t)))
	says := func(want string, args ...string) {
		t.Helper()
		u.want(exitDone, want, append([]string{"usage", "export", "--format", "csv"}, args...)...)
	}
	says("The hours from 2026-03-01T11:00:00Z on are open: gateway gw-1 (127.0.0.1) has stored no usage since 2026-03-01T11:00:00Z. See its log.")
	says("No hour since 2026-03-01T11:00:00Z is closed.\n0 events of 2026-03-01T11:00:00Z to 2026-03-01T11:00:00Z", "--since", "1h")
	u.stored(0)
	says("The hours from 2026-03-01T11:00:00Z on are open: gateway gw-1 (127.0.0.1) stores no usage. See its log.")
	u.stored(u.hour(0).Add(-5 * time.Minute))
	if r := u.keyadmin("usage", "export", "--format", "csv"); strings.Contains(r.stderr, "gw-1") {
		t.Errorf("a gateway that is five minutes behind is named: %s", r.stderr)
	}
}

// What an export cannot promise is said.
func TestExportTells(t *testing.T) {
	u := newMetered(newMigrated(t, testkit.SQLite(t)))
	if err := u.store.SignOffWithGap(t.Context(), u.gateway.Registration); err != nil {
		t.Fatal(err)
	}
	u.want(exitDone, "Gateway gw-1 could not write its last usage. Of what it counted from 2026-03-01T11:00:00Z to ",
		"usage", "export", "--format", "csv", "--verify")
	// A process that was seen before the hours of this export, and was noted after.
	const moved = `UPDATE usage_gaps SET since = $1, seen_at = $1, noted_at = $2`
	if _, err := u.open().Exec(moved, u.hour(200), u.hour(1)); err != nil {
		t.Fatal(err)
	}
	u.want(exitDone, "Of what it counted from 2026-02-22T12:00:00Z to 2026-03-01T11:00:00Z", "usage", "export", "--format", "csv", "--verify")
	if _, err := u.open().Exec(`UPDATE usage_gaps SET cause = 'dropped'`); err != nil {
		t.Fatal(err)
	}
	u.want(exitDone, "Gateway gw-1 dropped usage, because it could not write for too long. Of what it counted from 2026-02-22T12:00:00Z to "+
		"2026-03-01T11:00:00Z, some is missing.", "usage", "export", "--format", "csv", "--verify")
	customers := filepath.Join(t.TempDir(), "customers.csv")
	for text, want := range map[string]string{
		"acme,cus_1\n":         "names no customer for tenant ten_",
		"acme\n":               "wrong number of fields",
		"acme,cus_1\nacne,b\n": `line 2: there is no tenant "acne"`,
	} {
		if err := os.WriteFile(customers, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		u.want(exitFailed, want, "usage", "export", "--format", "csv", "--customers", customers)
	}
	if err := os.WriteFile(customers, []byte("acme,cus_1\nglobex, cus_2\n"+u.tenants[2].ID.String()+",cus_3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := u.want(exitDone, "", "usage", "export", "--format", "stripe", "--customers", customers, "--since", "2h").stdout; !strings.Contains(out, `"stripe_customer_id":"cus_3"`) {
		t.Errorf("with customers: %s", out)
	}
	u.now = u.now.Add(36 * day)
	u.want(exitFailed, "stripe takes nothing that is older than 35 days", "usage", "export", "--format", "stripe", "--since", "60d")
	m := newMeter(t)
	u.want(exitFailed, "stripe recognizes a repeated event for 24 h only", "usage", "export", "--format", "stripe", "--since", "60d", "--to", m.URL)
	if m.requests != 0 {
		t.Errorf("%d requests are sent", m.requests)
	}
}

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"petgate/shared/core/id"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
)

// ledger is a receiver that refuses a whole request if it has one of its events, as Lago and Stripe do.
type ledger struct {
	*httptest.Server
	mu      sync.Mutex
	charged map[string]int64  // by event
	tenants map[string]string // by event
	taken   int               // requests
	refused int
	// lost reports whether the response to the n-th request that was taken is lost.
	lost func(n int) bool
}

func newLedger(t *testing.T) *ledger {
	l := &ledger{charged: map[string]int64{}, tenants: map[string]string{}, lost: func(int) bool { return false }}
	l.Server = httptest.NewServer(l)
	t.Cleanup(l.Close)
	return l
}

func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	type entry struct {
		ID         string `json:"transaction_id"`
		Tenant     string `json:"external_subscription_id"`
		Properties struct{ Charged int64 }
	}
	var body struct{ Events []entry }
	isStripe := strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded")
	if isStripe {
		e := entry{ID: r.PostFormValue("identifier"), Tenant: r.PostFormValue("payload[stripe_customer_id]")}
		e.Properties.Charged, _ = strconv.ParseInt(r.PostFormValue("payload[value]"), 10, 64)
		body.Events = []entry{e}
	} else if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, e := range body.Events {
		if _, known := l.charged[e.ID]; !known {
			continue
		}
		l.refused++
		if isStripe {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"error":{"message":"An event already exists with identifier %s.","type":"invalid_request_error"}}`, e.ID)
			return
		}
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprintf(w, `{"status":422,"trace":%q,"code":"validation_errors","error_details":{"%d":{"transaction_id":["value_already_exist"]}}}`,
			strings.Repeat("-", 300), i)
		return
	}
	for _, e := range body.Events {
		l.charged[e.ID], l.tenants[e.ID] = e.Properties.Charged, e.Tenant
	}
	if l.taken++; l.lost(l.taken) {
		panic(http.ErrAbortHandler)
	}
}

// sums adds up the charged requests of all events, by tenant.
func (l *ledger) sums() map[string]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	sums := map[string]int64{}
	for id, n := range l.charged {
		sums[l.tenants[id]] += n
	}
	return sums
}

// exportAll repeats an export until it ends well, and returns how often it failed. An export does not try again by itself.
func (u *metered) exportAll(args ...string) (failures int) {
	u.t.Helper()
	u.ended = true
	defer func() { u.ended = false }()
	for u.keyadmin(append([]string{"usage", "export"}, args...)...).code != exitDone {
		if failures++; failures > 30 {
			u.t.Fatalf("no end:\n%s", u.record.String())
		}
	}
	return failures
}

// A receiver may refuse a request because it has got one of its events, whose response was lost. The export takes that for a yes, and
// sends the other events of the request.
func TestReceiverRefusesKnownEvents(t *testing.T) {
	lago := &usageFormats[len(usageFormats)-1]
	batch := lago.batch
	lago.batch = 3
	t.Cleanup(func() { lago.batch = batch })
	for _, format := range []string{"stripe", "lago"} {
		u := newMetered(newMigrated(t, testkit.SQLite(t)))
		l := newLedger(t)
		l.lost = func(n int) bool { return n%3 == 1 }
		failures := u.exportAll("--format", format, "--since", "1d", "--to", l.URL)
		u.use(u.tenants[1], u.hour(4), "listPets", 3)
		failures += u.exportAll("--format", format, "--to", l.URL)
		if got, want := fmt.Sprint(l.sums()), fmt.Sprint(u.sums(u.hour(1))); got != want || failures == 0 || l.refused == 0 {
			t.Errorf("%s, %d failures, %d requests refused: the receiver has %s, want %s", format, failures, l.refused, got, want)
		}
	}
	l := newLedger(t)
	l.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w, `{"error_details":{"0":{"transaction_id":["value_is_mandatory"]}}}`)
	})
	u := newMetered(newMigrated(t, testkit.SQLite(t)))
	u.want(exitFailed, "value_is_mandatory", "usage", "export", "--format", "lago", "--since", "1d", "--to", l.URL)
}

// A correction that comes after a request whose response was lost is sent in a request of its own, and the cursor moves with each
// number of corrections.
func TestCorrectionAfterALostResponse(t *testing.T) {
	u := newMetered(newMigrated(t, testkit.SQLite(t)))
	m := newMeter(t)
	export := []string{"usage", "export", "--format", "cloudevents", "--since", "1d", "--to", m.URL}
	u.want(exitDone, "", export...)
	m.mu.Lock()
	sent := m.requests
	m.fault = func(n int, _ http.ResponseWriter, take func()) bool {
		if n < sent+2 {
			return false
		}
		take()
		panic(http.ErrAbortHandler)
	}
	m.mu.Unlock()
	u.use(u.tenants[0], u.hour(4), "listPets", 3)
	seal, err := u.store.SealUsage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	u.use(u.tenants[1], u.hour(4), "listPets", 3)
	u.ended = true
	u.want(exitFailed, "", export...)
	if cursor, _, err := u.store.Cursor(t.Context(), m.URL); err != nil || cursor.Seal != seal.Number {
		t.Errorf("%+v, %v, want it at the second correction, number %d", cursor, err, seal.Number)
	}
	u.use(u.tenants[2], u.hour(4), "listPets", 4)
	m.mu.Lock()
	m.fault = nil
	m.mu.Unlock()
	u.want(exitDone, "", export...)
	if got, want := fmt.Sprint(m.sums(t)), fmt.Sprint(u.sums(u.hour(1))); got != want || m.repeated == 0 {
		t.Errorf("the receiver has %s and %d events twice, want %s", got, m.repeated, want)
	}
}

// With --skip, a --since that is later than the cursor skips hours, so a receiver that takes nothing so old goes on. Corrections that it would not
// take are named and left out. The sums of what it has got can always be printed.
func TestReceiverSkipsHours(t *testing.T) {
	u := newMetered(newMigrated(t, testkit.SQLite(t)))
	const tooOld = "stripe takes nothing that is older than 35 days"
	export := func(l *ledger, code exitCode, says string, more ...string) {
		t.Helper()
		u.want(code, says, append([]string{"usage", "export", "--format", "stripe", "--to", l.URL}, more...)...)
	}
	known, fresh := newLedger(t), newLedger(t)
	export(known, exitDone, "", "--since", "1d")
	u.now = u.now.Add(36 * day)
	u.use(u.tenants[0], u.hour(2), "listPets", 1000)
	u.stored(u.hour(1))
	export(known, exitFailed, tooOld)
	export(known, exitFailed, tooOld, "--since", "30d") // as in a cron job: without --skip, no hour is left out
	export(known, exitDone, "It will get nothing more of the hours before 2026-03-07T12:00:00Z", "--since", "30d", "--skip")
	export(fresh, exitFailed, tooOld, "--since", "60d")
	export(fresh, exitDone, "", "--since", "30d", "--skip")
	for _, l := range []*ledger{known, fresh} {
		if got := l.sums()[u.tenants[0].ID.String()]; got%1000 != 0 && l == fresh || got/1000 != 1 {
			t.Errorf("the receiver has %d requests of acme", got)
		}
		export(l, exitDone, "Sent 0 events")
	}
	late := u.hour(29 * 24)
	u.now = u.now.Add(7 * day)
	u.stored(u.hour(1))
	export(fresh, exitDone, "Sent 0 events")
	u.use(u.tenants[0], late, "listPets", 5)
	export(fresh, exitDone, "Left out: corrections of hours that are older than 35 days, which stripe does not take: 1.")
	if r := u.keyadmin("usage", "export", "--format", "stripe", "--to", fresh.URL); r.code != exitDone || strings.Contains(r.stderr, "Left out") {
		t.Errorf("exit %d, and again: %s", r.code, r.stderr)
	}
	u.now = u.now.Add(36 * day)
	export(fresh, exitDone, "SHA-256", "--verify")
}

// --verify adds up what is in the export, without the rows that a format leaves out. Such a row needs no customer.
func TestVerifyCountsWhatIsExported(t *testing.T) {
	u := newMetered(newMigrated(t, testkit.SQLite(t)))
	u.add(keystore.UsageRow{Tenant: id.Tenant{7}, Outcome: "key_banned", Hour: u.hour(2), Requests: 9})
	customers := filepath.Join(t.TempDir(), "customers.csv")
	if err := os.WriteFile(customers, []byte("acme,cus_1\nglobex,cus_2\ninitech,cus_3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"csv", "stripe", "lago"} {
		args := []string{"usage", "export", "--format", format, "--since", "1d"}
		if format != "csv" {
			args = append(args, "--customers", customers)
		}
		_, want, _ := strings.Cut(u.want(exitDone, "SHA-256", args...).stderr, " events of ")
		r := u.want(exitDone, want, append(args, "--verify", "-o", "json")...)
		var views []verifyView
		if err := json.Unmarshal([]byte(r.stdout), &views); err != nil {
			t.Fatal(err)
		}
		var requests, charged int64
		for _, v := range views {
			requests, charged = requests+v.Requests, charged+v.Charged
		}
		if sums := fmt.Sprintf("%s requests, %s charged", count(requests), count(charged)); !strings.Contains(want, sums) {
			t.Errorf("%s: --verify adds up to %s, the export to %s", format, sums, want)
		}
	}
}

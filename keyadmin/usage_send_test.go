package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

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

package metering

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore/usage"
	"petgate/shared/operate"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// meter is a receiver that recognizes requests by their Idempotency-Key, and events by their IDs.
type meter struct {
	*httptest.Server
	mu       sync.Mutex
	events   map[string]string // by ID
	order    []string          // the IDs as they came
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
	h, want := r.Header, fmt.Sprintf("POST Bearer secret application/cloudevents-batch+json petgate-keyadmin %x",
		sha256.Sum256(body))
	got := strings.Join(
		[]string{
			r.Method, h.Get("Authorization"), h.Get("Content-Type"), h.Get("User-Agent"), h.Get("Idempotency-Key"),
		},
		" ",
	)
	if err != nil || json.Unmarshal(body, &events) != nil || got != want {
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
			m.order = append(m.order, head.ID)
		}
	}
	if m.fault != nil && m.fault(m.requests, w, take) {
		return
	}
	take()
	w.WriteHeader(http.StatusAccepted)
}

// fail sets what happens to the requests from now on, the n-th, counted from 1. A fault may call
// take, so that the events of its request are taken.
func (m *meter) fail(fault func(n int, w http.ResponseWriter, take func()) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests, m.fault = 0, fault
}

// charged adds up the charged requests of all events, by tenant.
func (m *meter) charged(t *testing.T) map[string]int64 {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.changed) > 0 {
		t.Errorf("events with the same ID and other contents: %v", m.changed)
	}
	sums := map[string]int64{}
	for _, text := range m.events {
		var e struct {
			Subject string
			Data    struct{ Charged int64 }
		}
		must.Do(t, json.Unmarshal([]byte(text), &e))
		sums[e.Subject] += e.Data.Charged
	}
	return sums
}

// send sends what a receiver has not got yet. It never waits: a receiver that may take a request
// later gets it in the next call.
func (u *metered) send(m *meter, until instant.Millis) (r *Receiver, e *Export, err error) {
	u.t.Helper()
	if r, err = FindReceiver(u.t.Context(), u.store, m.URL); err != nil {
		return r, e, err
	}
	r.Token, r.Sleep = "secret", func(context.Context, time.Duration) error { return context.Canceled }
	since := instant.Of(u.now).Add(-24 * time.Hour)
	e, err = New(u.t.Context(), u.store, CloudEvents, since, cmp.Or(until, operate.Forever))
	if err != nil {
		return r, e, err
	}
	return r, e, r.Send(u.t.Context(), e)
}

func (u *metered) sent(m *meter) *Export {
	u.t.Helper()
	_, e, err := u.send(m, 0)
	if err != nil {
		u.t.Error(err)
	}
	return e
}

// smallBatches makes requests of at most three events.
func smallBatches(t *testing.T) {
	before := batchMax
	batchMax = 3
	t.Cleanup(func() { batchMax = before })
}

// Whatever happens to a request, the next export continues, and at the end the receiver has each
// event once.
func TestSendAfterFaults(t *testing.T) {
	smallBatches(t)
	u := newMetered(t, testkit.SQLite(t))
	for name, fault := range map[string]func(w http.ResponseWriter, take func()){
		"not taken":        func(http.ResponseWriter, func()) { panic(http.ErrAbortHandler) },
		"taken, no answer": func(_ http.ResponseWriter, take func()) { take(); panic(http.ErrAbortHandler) },
		"refused":          func(w http.ResponseWriter, _ func()) { w.WriteHeader(http.StatusForbidden) },
		"redirected": func(w http.ResponseWriter, _ func()) {
			w.Header().Set("Location", "/")
			w.WriteHeader(http.StatusTemporaryRedirect)
		},
		"taken, then error": func(w http.ResponseWriter, take func()) { take(); w.WriteHeader(http.StatusBadRequest) },
	} {
		m := newMeter(t)
		m.fail(func(n int, w http.ResponseWriter, take func()) bool {
			if n%2 == 1 { // every other request
				fault(w, take)
			}
			return n%2 == 1
		})
		failures := 0
		for {
			_, _, err := u.send(m, 0)
			if err == nil {
				break
			}
			if failures++; failures > 30 {
				t.Fatalf("%s: no end: %v", name, err)
			}
		}
		if got, want := fmt.Sprint(m.charged(t)), fmt.Sprint(u.charged(u.hour(1))); got != want || failures == 0 {
			t.Errorf("%s, %d failures: the receiver has %s, want %s", name, failures, got, want)
		}
		requests := m.requests
		if u.sent(m); m.requests != requests {
			t.Errorf("%s: another export sends %d requests", name, m.requests-requests)
		}
	}
}

// A receiver that may take a request later is asked again, after the time that it names but at most
// a minute.
func TestSendTriesAgain(t *testing.T) {
	u := newMetered(t, testkit.SQLite(t))
	m := newMeter(t)
	answers := []struct {
		after string
		code  int
		text  string
	}{
		{"", 0, ""}, // the connection breaks
		{"7", http.StatusTooManyRequests, ""},
		{"900", http.StatusServiceUnavailable, ""},
		{"-7", http.StatusInternalServerError, "\x1b[31mlater"},
	}
	m.fail(func(n int, w http.ResponseWriter, _ func()) bool {
		if n > len(answers) {
			return false
		}
		a := answers[n-1]
		if a.code == 0 {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Retry-After", a.after)
		http.Error(w, a.text, a.code)
		return true
	})
	r, e, err := u.send(m, u.hour(24*365)) // an export of nothing
	if err != nil || e.Events != 0 || m.requests != 0 {
		t.Fatalf("%v, %+v, %d requests", err, e.Sums, m.requests)
	}
	var waits []time.Duration
	r.Sleep = func(_ context.Context, d time.Duration) error { waits = append(waits, d); return nil }
	var shown string
	r.Say = func(text string) { shown += text + "\n" }
	begun := 0
	send := func(wantErr, wantWaits, wantShown string) {
		t.Helper()
		begun++
		waits, shown = nil, ""
		e.Until, e.Since, e.Sums, r.known, r.URL = u.hour(1), u.hour(24), Sums{}, false, fmt.Sprint(m.URL, "/", begun)
		r.Cursor = usage.Cursor{Destination: r.URL}
		err := r.Send(t.Context(), e)
		if fmt.Sprint(err) != strings.ReplaceAll(wantErr, "URL", r.URL) || (err == nil) != (e.Events == 11) ||
			fmt.Sprint(waits) != wantWaits ||
			shown != strings.ReplaceAll(wantShown, "URL", r.URL) {
			t.Errorf("%v, %+v, waits %v, shown:\n%s", err, e.Sums, waits, shown)
		}
	}
	send(
		"<nil>",
		"[1s 7s 1m0s 8s]",
		"Post \"URL\": EOF: next try in 1 s\nPOST URL: 429 Too Many Requests: : next try in 7 s\n"+
			"POST URL: 503 Service Unavailable: : next try in 60 s\nPOST URL: 500 Internal Server Error: ?[31mlater: next try in 8 s\n",
	)
	m.fail(func(_ int, w http.ResponseWriter, _ func()) bool {
		w.Header().Set("Retry-After", "1") // sooner than without a time
		http.Error(w, "", http.StatusInternalServerError)
		return true
	})
	r.Say = nil
	send("POST URL: 500 Internal Server Error: ", "[1s 2s 4s 8s]", "") // the fifth try is the last
	m.fail(func(_ int, w http.ResponseWriter, _ func()) bool {
		http.Error(w, strings.Repeat("x", 300), http.StatusConflict)
		return true
	})
	send("POST URL: 409 Conflict: "+strings.Repeat("x", 200), "[]", "")
}

// A receiver gets late usage as one correction, and new hours as they close. A correction never
// comes before the hour that it corrects.
func TestReceiverGetsCorrections(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		smallBatches(t)
		u := newMetered(t, url)
		m, late := newMeter(t), newMeter(t)
		check := func(m *meter, when string, events int) {
			t.Helper()
			if got, want := fmt.Sprint(m.charged(t)), fmt.Sprint(u.charged(u.gateway.UsageThrough)); got != want ||
				len(m.events) != events ||
				m.repeated != 0 {
				t.Errorf("%s: %d events, %d of them twice: %s, want %d: %s", when, len(m.events), m.repeated, got,
					events, want)
			}
		}
		u.sent(m)
		check(m, "at first", 11)
		u.stored(u.hour(0))
		u.use(u.tenants[1], u.hour(4), "listPets", 3)
		u.use(u.tenants[1], u.hour(4), "listPets", 4)
		u.sent(m)
		check(m, "an hour later", 15)
		if _, _, err := u.send(m, u.hour(3)); err != nil { // it has them all: the cursor does not go back
			t.Error(err)
		}
		u.sent(m)
		check(m, "again", 15)
		u.use(u.tenants[2], u.hour(2), "getPet", 2)
		u.use(u.tenants[0], u.hour(2), "getPet", 2)
		u.use(u.tenants[0], u.hour(25), "getPet", 2) // before what the receivers get
		before := m.requests
		u.sent(m)
		check(m, "late usage of another operation", 17)
		if m.requests != before+1 {
			t.Errorf("two corrections in %d requests", m.requests-before)
		}
		// A new receiver that gets the hours in two steps.
		if _, _, err := u.send(late, u.hour(3)); err != nil || slices.ContainsFunc(late.order, isCorrection) {
			t.Errorf("corrections before all hours: %v, %v", late.order, err)
		}
		u.sent(late)
		check(late, "a new receiver", 17)
		for _, m := range []*meter{m, late} {
			if id, isFirst := correctionFirst(m.order); isFirst {
				t.Errorf("%s comes before the hour that it corrects: %v", id, m.order)
			}
		}
	})
}

// isCorrection goes by the end of an ID. Its beginning is random.
var isCorrection = regexp.MustCompile(`_c\d+$`).MatchString

// correctionFirst finds a correction before an event of an earlier or the same hour.
func correctionFirst(ids []string) (correction string, found bool) {
	hour := regexp.MustCompile(`_(\d{10})_`)
	last := ""
	for _, id := range ids {
		at := hour.FindStringSubmatch(id)[1]
		switch {
		case isCorrection(id):
			if at > last {
				correction, last = id, at
			}
		case correction != "" && at <= last:
			return correction, true
		}
	}
	return "", false
}

// A correction that comes after a request whose response was lost is sent in a request of its own,
// and the cursor moves with each number of corrections.
func TestCorrectionAfterALostResponse(t *testing.T) {
	u := newMetered(t, testkit.SQLite(t))
	m := newMeter(t)
	u.sent(m)
	m.fail(func(n int, _ http.ResponseWriter, take func()) bool {
		if n == 1 {
			return false
		}
		take()
		panic(http.ErrAbortHandler)
	})
	u.use(u.tenants[0], u.hour(4), "listPets", 3)
	seal := must.Get[usage.Seal](t)(usage.Of(u.store).SealUsage(t.Context()))
	u.use(u.tenants[1], u.hour(4), "listPets", 3)
	if r, _, err := u.send(m, 0); err == nil || r.Cursor.Seal != seal.Number {
		t.Errorf("%+v, %v, want an error, and the cursor at the second correction, number %d", r.Cursor, err,
			seal.Number)
	}
	u.use(u.tenants[2], u.hour(4), "listPets", 4)
	m.fail(nil)
	u.sent(m)
	if got, want := fmt.Sprint(m.charged(t)), fmt.Sprint(u.charged(u.hour(1))); got != want || m.repeated == 0 {
		t.Errorf("the receiver has %s and %d events twice, want %s", got, m.repeated, want)
	}
}

// If the hour of a receiver's cursor is too old and deleted, the export continues with the first
// tenant of the next hour.
func TestCursorInADeletedHour(t *testing.T) {
	smallBatches(t)
	u, m := newMetered(t, testkit.SQLite(t)), newMeter(t)
	m.fail(func(n int, w http.ResponseWriter, _ func()) bool {
		if n > 1 {
			w.WriteHeader(http.StatusForbidden)
		}
		return n > 1
	})
	if r, _, err := u.send(m, 0); err == nil || r.Cursor.Hour != u.hour(4) || r.Cursor.Tenant == (id.Tenant{}) {
		t.Fatalf("%+v, %v, want an error after some tenants of the first hour", r.Cursor, err)
	}
	sent := len(m.events)
	u.exec(`DELETE FROM usage_hours WHERE hour = $1`, u.hour(4))
	m.fail(nil)
	if u.sent(m); len(m.events) != sent+8 {
		t.Errorf("%d events of the other hours, want 8", len(m.events)-sent)
	}
}

// Whatever table is away, from the beginning or from a request on, an export that says that it is
// sent is complete. A tenant with more operations than a request has events is sent in several, and
// the tenants after it are not forgotten.
func TestSendWithoutATable(t *testing.T) {
	smallBatches(t)
	u := newMetered(t, testkit.SQLite(t))
	for n := range 5 {
		u.use(u.tenants[1], u.hour(3), fmt.Sprint("op", n), 1)
	}
	u.use(id.Tenant{9}, u.hour(3), "listPets", 1)
	u.tenants = append(u.tenants, id.Tenant{9})
	for _, ago := range []int{4, 2} { // corrections with a number of their own
		u.sent(newMeter(t))
		u.use(u.tenants[1], u.hour(ago), "listPets", 3)
	}
	for _, table := range []string{"usage_hours", "usage_ledger", "usage_exports", "gateways"} {
		for from, isAway := 0, true; isAway; from++ {
			m := newMeter(t)
			isAway = false
			away := func(n int, _ http.ResponseWriter, _ func()) bool {
				if n == from {
					u.exec(`ALTER TABLE ` + table + ` RENAME TO away`)
					isAway = true
				}
				return false
			}
			m.fail(away)
			away(0, nil, nil)
			_, e, err := u.send(m, 0)
			if err == nil {
				_, err = e.Missing(t.Context(), instant.Of(u.now), instant.Of(u.now))
			}
			if err == nil {
				err = e.Write(t.Context(), io.Discard)
			}
			if err == nil && (len(m.events) != 19 || fmt.Sprint(m.charged(t)) != fmt.Sprint(u.charged(u.hour(1)))) {
				t.Errorf("without %s from request %d on: %d events: %v", table, from, len(m.events), m.charged(t))
			}
			if isAway {
				u.exec(`ALTER TABLE away RENAME TO ` + table)
			}
		}
	}
}

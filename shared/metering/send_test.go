package metering

import (
	"cmp"
	"context"
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
	if err != nil || json.Unmarshal(body, &events) != nil || r.Header.Get("Authorization") != "Bearer secret" {
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

// fail sets what happens to the requests from now on, the n-th, counted from 1. A fault may call take, so that the events of its request are taken.
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

// send sends what a receiver has not got yet. It never waits: a receiver that may take a request later gets it in the next call.
func (u *metered) send(m *meter, until instant.Millis) (*Receiver, *Export, error) {
	u.t.Helper()
	r, err := FindReceiver(u.t.Context(), u.store, m.URL)
	must.Do(u.t, err)
	r.Token, r.Sleep = "secret", func(context.Context, time.Duration) error { return context.Canceled }
	e, err := New(u.t.Context(), u.store, CloudEvents, instant.Of(u.now).Add(-24*time.Hour), cmp.Or(until, operate.Forever))
	must.Do(u.t, err)
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

// Whatever happens to a request, the next export continues, and at the end the receiver has each event once.
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

// A receiver that may take a request later is asked again, after the time that it names but at most a minute.
func TestSendTriesAgain(t *testing.T) {
	u := newMetered(t, testkit.SQLite(t))
	m := newMeter(t)
	answers := []func(http.ResponseWriter){
		func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
		},
		func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "900")
			w.WriteHeader(http.StatusServiceUnavailable)
		},
		func(w http.ResponseWriter) { http.Error(w, "\x1b[31mlater", http.StatusInternalServerError) },
		func(w http.ResponseWriter) { // sooner than without a time
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(http.StatusTooManyRequests)
		},
	}
	m.fail(func(n int, w http.ResponseWriter, _ func()) bool {
		if n <= len(answers) {
			answers[n-1](w)
		}
		return n <= len(answers)
	})
	r, e, err := u.send(m, u.hour(24*365)) // an export of nothing
	if err != nil || e.Events != 0 || m.requests != 0 {
		t.Fatalf("%v, %+v, %d requests", err, e.Sums, m.requests)
	}
	var waits []time.Duration
	r.Sleep = func(_ context.Context, d time.Duration) error { waits = append(waits, d); return nil }
	var shown string
	r.Say = func(text string) { shown += text + "\n" }
	e.Until, e.Since, r.known, r.URL = u.hour(1), u.hour(24), false, r.URL+"/new"
	r.Cursor.Destination = r.URL
	if err := r.Send(t.Context(), e); err != nil || e.Events != 11 {
		t.Errorf("%v, %+v", err, e.Sums)
	}
	if fmt.Sprint(waits) != "[7s 1m0s 4s 8s]" || !strings.Contains(shown, "500 Internal Server Error: ") || strings.Contains(shown, "\x1b") {
		t.Errorf("waits %v, shown:\n%s", waits, shown)
	}
}

// A receiver gets late usage as one correction, and new hours as they close. A correction never comes before the hour that it corrects.
func TestReceiverGetsCorrections(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		smallBatches(t)
		u := newMetered(t, url)
		m, late := newMeter(t), newMeter(t)
		check := func(m *meter, when string, events int) {
			t.Helper()
			if got, want := fmt.Sprint(m.charged(t)), fmt.Sprint(u.charged(u.gateway.UsageThrough)); got != want || len(m.events) != events || m.repeated != 0 {
				t.Errorf("%s: %d events, %d of them twice: %s, want %d: %s", when, len(m.events), m.repeated, got, events, want)
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
		u.sent(m)
		check(m, "late usage of another operation", 16)
		// A new receiver that gets the hours in two steps.
		if _, _, err := u.send(late, u.hour(3)); err != nil || slices.ContainsFunc(late.order, isCorrection) {
			t.Errorf("corrections before all hours: %v, %v", late.order, err)
		}
		u.sent(late)
		check(late, "a new receiver", 16)
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

// A correction that comes after a request whose response was lost is sent in a request of its own, and the cursor moves with each
// number of corrections.
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
	seal, err := u.store.SealUsage(t.Context())
	must.Do(t, err)
	u.use(u.tenants[1], u.hour(4), "listPets", 3)
	if r, _, err := u.send(m, 0); err == nil || r.Cursor.Seal != seal.Number {
		t.Errorf("%+v, %v, want an error, and the cursor at the second correction, number %d", r.Cursor, err, seal.Number)
	}
	u.use(u.tenants[2], u.hour(4), "listPets", 4)
	m.fail(nil)
	u.sent(m)
	if got, want := fmt.Sprint(m.charged(t)), fmt.Sprint(u.charged(u.hour(1))); got != want || m.repeated == 0 {
		t.Errorf("the receiver has %s and %d events twice, want %s", got, m.repeated, want)
	}
}

// A tenant with more operations than a request has events is sent in several, and the tenants after it are not forgotten.
func TestManyOperations(t *testing.T) {
	smallBatches(t)
	u := newMetered(t, testkit.SQLite(t))
	for n := range 5 {
		u.use(u.tenants[1], u.hour(3), fmt.Sprint("op", n), 1)
	}
	u.use(id.Tenant{9}, u.hour(3), "listPets", 1)
	u.tenants = append(u.tenants, id.Tenant{9})
	m := newMeter(t)
	if e := u.sent(m); e.Events != 17 || len(m.events) != 17 {
		t.Errorf("%+v, %d events", e.Sums, len(m.events))
	}
	if got, want := fmt.Sprint(m.charged(t)), fmt.Sprint(u.charged(u.hour(1))); got != want {
		t.Errorf("the receiver has %s, want %s", got, want)
	}
}

// If the hour of a receiver's cursor is too old and deleted, the export continues with the first tenant of the next hour.
func TestCursorInADeletedHour(t *testing.T) {
	smallBatches(t)
	u, m := newMetered(t, testkit.SQLite(t)), newMeter(t)
	m.fail(func(n int, w http.ResponseWriter, _ func()) bool {
		if n > 1 {
			w.WriteHeader(http.StatusForbidden)
		}
		return n > 1
	})
	r, _, err := u.send(m, 0)
	if err == nil || r.Cursor.Hour != u.hour(4) || r.Cursor.Tenant == (id.Tenant{}) {
		t.Fatalf("%+v, %v, want an error after some tenants of the first hour", r.Cursor, err)
	}
	sent := len(m.events)
	u.exec(`DELETE FROM usage_hours WHERE hour = $1`, u.hour(4))
	m.fail(nil)
	if u.sent(m); len(m.events) != sent+8 {
		t.Errorf("%d events of the other hours, want 8", len(m.events)-sent)
	}
}

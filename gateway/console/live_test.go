package console

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"petgate/shared/keystore"
	"petgate/shared/operate"
	"petgate/shared/service"
)

// busy registers a gateway whose /live has 50 more requests, of which 10 are refused, in every second of its own clock.
func (s *site) busy(id string) {
	s.Helper()
	var mu sync.Mutex
	answer := operate.Live{Mode: "shared", Since: 1}
	s.register(id, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch r.URL.RequestURI() {
		case "/live?n=10":
			p50, p99 := 1.25, 17.0
			answer.Elapsed, answer.Requests, answer.Refused, answer.P50, answer.P99 = answer.Elapsed+1000, answer.Requests+50, answer.Refused+10, &p50, &p99
			service.WriteJSON(w, http.StatusOK, answer)
		case "/readyz":
			service.WriteJSON(w, http.StatusServiceUnavailable, map[string]any{"problems": []service.Problem{
				{Name: "quotas", Detail: "Redis <does> not answer", Serving: true}, {Name: "directory", Detail: "it is too old"},
			}})
		default:
			http.NotFound(w, r)
		}
	}))
}

func (s *site) register(id string, admin http.Handler) {
	s.Helper()
	server := httptest.NewServer(admin)
	s.Cleanup(server.Close)
	registration := keystore.Registration{ID: id, Incarnation: "a", AdminAddress: server.Listener.Addr().String()}
	if _, err := s.operator.Register(s.Context(), registration, nil); err != nil {
		s.Fatal(err)
	}
}

// stream opens a stream of live figures.
func (s *site) stream(b *http.Client) (*http.Response, *bufio.Reader) {
	s.Helper()
	response, err := b.Get(s.url + livePath)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { response.Body.Close() })
	return response, bufio.NewReader(response.Body)
}

// next reads an event.
func (s *site) next(from *bufio.Reader) (name, data string) {
	s.Helper()
	for {
		line, err := from.ReadString('\n')
		if err != nil {
			s.Fatalf("the stream ended: %v", err)
		}
		switch field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); field {
		case "event":
			name = value
		case "data":
			data = value
		case "":
			return name, data
		}
	}
}

func TestLiveFigures(t *testing.T) {
	s := newSite(t)
	b := s.signIn(keystore.ConsoleInvitation{})
	s.busy("gw-2")
	s.register("gw-3", http.NotFoundHandler())
	response, events := s.stream(b)
	if got := response.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Fatalf("Content-Type %q", got)
	}
	var parts struct{ Gateways, Problems string }
	for i, wanted := 0, false; !wanted; i++ { // there are rates from the second refresh on
		name, data := s.next(events)
		if err := json.Unmarshal([]byte(data), &parts); name != "figures" || err != nil {
			t.Fatalf("event %q: %v: %s", name, err, data)
		}
		if wanted = strings.Contains(parts.Gateways, `class="number">50.0</td><td role="cell" data-title="Refused/s" class="number">10.0</td>`); !wanted && i == 1000 {
			t.Fatalf("there are no rates after %d events: %s", i, data)
		}
	}
	for _, want := range []string{`data-title="Gateway">gw-2</th>`, "1.2 ms", "17.0 ms", "in Redis", `data-title="Gateway">gw-3</th>`} {
		if !strings.Contains(parts.Gateways, want) {
			t.Errorf("the gateways lack %s:\n%s", want, parts.Gateways)
		}
	}
	// A problem of several gateways has one row.
	for _, want := range []string{
		`<p class="notice"><strong>Warning, gw-1, gw-2:</strong> quotas: Redis &lt;does&gt; not answer</p>`,
		`<p class="notice severe"><strong>Problem, gw-2:</strong> directory: it is too old</p>`,
		`gw-3:</strong> its figures are missing: it cannot be watched: its version is too old</p>`,
	} {
		if !strings.Contains(parts.Problems, want) {
			t.Errorf("the problems lack %s:\n%s", want, parts.Problems)
		}
	}
}

func TestStreamEndsWithItsSession(t *testing.T) {
	s := newSite(t)
	b := s.signIn(keystore.ConsoleInvitation{})
	_, events := s.stream(b)
	if name, _ := s.next(events); name != "figures" {
		t.Fatalf("the first event is %q", name)
	}
	if _, err := s.operator.EndConsoles(t.Context()); err != nil {
		t.Fatal(err)
	}
	name, data := s.next(events)
	for name == "figures" {
		name, data = s.next(events)
	}
	if name != "end" || !strings.Contains(data, "Sign in again") {
		t.Errorf("the last event is %q: %s", name, data)
	}
	if rest, err := io.ReadAll(events); len(rest) > 0 || err != nil {
		t.Errorf("after the end: %q, %v", rest, err)
	}
	if response, _ := s.stream(b); response.StatusCode != http.StatusSeeOther {
		t.Errorf("a stream without a session: %d", response.StatusCode)
	}
}

// A gateway serves a bounded number of streams, and fewer to each session. Close ends them.
func TestStreamsAreBounded(t *testing.T) {
	s := newSite(t)
	var open []*bufio.Reader
	for len(open) < streamsMax {
		b := s.signIn(keystore.ConsoleInvitation{})
		for range ownStreamsMax {
			response, events := s.stream(b)
			if response.StatusCode != http.StatusOK {
				t.Fatalf("stream %d: %d", len(open), response.StatusCode)
			}
			open = append(open, events)
		}
		if response, _ := s.stream(b); response.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("one stream of a session too many: %d", response.StatusCode)
		}
	}
	if response, _ := s.stream(s.signIn(keystore.ConsoleInvitation{})); response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("one stream too many: %d", response.StatusCode)
	}
	s.console.Close()
	for i, events := range open {
		if _, err := io.Copy(io.Discard, events); err != nil {
			t.Errorf("stream %d: %v", i, err)
		}
	}
	if s.console.streams.all != 0 || len(s.console.streams.each) != 0 {
		t.Errorf("closed streams are counted: %d, %v", s.console.streams.all, s.console.streams.each)
	}
}

// Pages of other sites, and of other ports of the host, open no stream.
func TestForeignPagesOpenNoStream(t *testing.T) {
	s := newSite(t)
	b := s.signIn(keystore.ConsoleInvitation{})
	for site, want := range map[string]int{"": 200, "same-origin": 200, "none": 200, "same-site": 403, "cross-site": 403} {
		r := s.request(t.Context(), b, livePath)
		if site != "" {
			r.Header.Set("Sec-Fetch-Site", site)
		}
		w := httptest.NewRecorder()
		s.console.ServeHTTP(&controlled{ResponseWriter: w}, r)
		if w.Code != want {
			t.Errorf("Sec-Fetch-Site %q: %d, want %d", site, w.Code, want)
		}
	}
}

// controlled is a response whose deadlines can be seen. The browser is gone at the second event.
type controlled struct {
	http.ResponseWriter
	read   []time.Time
	writes int
}

func (c *controlled) SetReadDeadline(at time.Time) error {
	c.read = append(c.read, at)
	return nil
}

func (c *controlled) SetWriteDeadline(at time.Time) error {
	if c.writes++; time.Until(at) > readWithin {
		return errors.New("too late")
	}
	return nil
}

func (c *controlled) Write(p []byte) (int, error) {
	if c.writes > 1 {
		return 0, io.ErrClosedPipe
	}
	return c.ResponseWriter.Write(p)
}

func (c *controlled) Flush() {}

// A stream outlasts the limits of the admin port for a request, and it does not wait for a browser that reads nothing.
func TestDeadlinesOfStreams(t *testing.T) {
	s := newSite(t)
	b := s.signIn(keystore.ConsoleInvitation{})
	w := &controlled{ResponseWriter: httptest.NewRecorder()}
	s.console.ServeHTTP(w, s.request(t.Context(), b, livePath))
	if len(w.read) != 1 || !w.read[0].IsZero() || w.writes != 2 {
		t.Errorf("the deadlines for reading are %v, and %d were set for writing", w.read, w.writes)
	}
}

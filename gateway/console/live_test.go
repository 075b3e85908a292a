package console

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"petgate/shared/keystore"
	"petgate/shared/operate"
	"petgate/shared/service"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// busy registers a gateway whose /live has 50 more requests, of which 10 are refused, in every second of its own clock.
func (s *site) busy(id string) {
	s.Helper()
	var mu sync.Mutex
	answer := operate.Live{Mode: "shared", Since: 1, Within: []float64{0.001, 0.01}, Took: make([]uint64, 2)}
	s.register(id, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch r.URL.RequestURI() {
		case "/live?n=10":
			answer.Elapsed, answer.Requests, answer.Refused = answer.Elapsed+1000, answer.Requests+50, answer.Refused+10
			answer.Took[0], answer.Took[1] = answer.Took[0]+25, answer.Took[1]+50
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
	must.Get[int64](s)(s.operator.Register(s.Context(), registration, nil))
}

// The overview has live figures of all gateways, until the session ends.
func TestLiveFigures(t *testing.T) {
	s := newSite(t)
	b := s.signIn(keystore.ConsoleInvitation{})
	s.busy("gw-2")
	s.register("gw-3", http.NotFoundHandler())
	var parts struct{ Gateways, Problems string }
	testkit.Eventually(t, time.Minute, "there are rates", func() bool { // from the second refresh on
		_, _, data := s.send(b, "GET", Home+"live", "")
		must.Do(t, json.Unmarshal([]byte(data), &parts))
		return strings.Contains(parts.Gateways, `class="number">50.0</td><td role="cell" data-title="Refused/s" class="number">10.0</td>`)
	})
	for _, want := range []string{`data-title="Gateway"><span class="whole">gw-2</span></th>`, "1.00 ms", "9.82 ms", "in Redis", `data-title="Gateway"><span class="whole">gw-3</span></th>`} {
		if !strings.Contains(parts.Gateways, want) {
			t.Errorf("the gateways lack %s:\n%s", want, parts.Gateways)
		}
	}
	// A problem of several gateways has one row.
	for _, want := range []string{
		`<p class="notice"><strong>Warning, gw-1, gw-2:</strong> quotas: Redis &lt;does&gt; not answer</p>`,
		`<p class="notice severe"><strong>Problem, gw-2:</strong> directory: it is too old</p>`,
		`gw-3:</strong> its figures are missing: GET http://`,
	} {
		if !strings.Contains(parts.Problems, want) {
			t.Errorf("the problems lack %s:\n%s", want, parts.Problems)
		}
	}
	must.Get[int64](t)(s.operator.EndConsoles(t.Context()))
	if status, _, data := s.send(b, "GET", Home+"live", ""); status != http.StatusUnauthorized {
		t.Errorf("after the end of the session: %d\n%s", status, data)
	}
}

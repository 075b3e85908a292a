package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// quotaSite is gateways whose quotas a test uses up.
type quotaSite struct {
	*fleet.Fleet
	t      *testing.T
	server *testkit.Server // Redis; nil for in-process quotas
	client http.Client
}

// newQuotaSite starts gateways on a private Redis, before an upstream that answers whatever happens.
func newQuotaSite(t *testing.T, gateways int, env ...string) *quotaSite {
	t.Helper()
	server := testkit.StartRedis(t)
	s := openQuotaSite(t, fleet.Spec{Redis: server.URL, Gateways: gateways}, env...)
	s.server = server
	return s
}

func openQuotaSite(t *testing.T, spec fleet.Spec, env ...string) *quotaSite {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "[]")
	}))
	t.Cleanup(upstream.Close)
	spec.Database, spec.Upstreams = testkit.SQLite(t), upstream.URL
	spec.GatewayEnv = append([]string{
		"GATEWAY_ACCESS_LOG=false", "GATEWAY_LOG_LEVEL=warn", "GATEWAY_DRAIN_DELAY=0s",
	}, env...)
	s := &quotaSite{Fleet: fleet.Start(t, spec), t: t}
	s.client = http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 300}, Timeout: 20 * time.Second}
	t.Cleanup(s.client.CloseIdleConnections)
	return s
}

// told is what a client was answered.
type told struct {
	at         time.Time
	took       time.Duration
	status     int
	code       string // of a refusal
	message    string
	retryAfter time.Duration
	header     http.Header
	details    struct{ StrikesUntilBan int }
}

// ask sends one request; no answer is status 0.
func (s *quotaSite) ask(gateway *fleet.Program, token string, fields ...string) told {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, gateway.URL+"/v1/pets", nil)
	if err != nil {
		panic("bug: " + err.Error())
	}
	request.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i < len(fields); i += 2 {
		request.Header.Set(fields[i], fields[i+1])
	}
	began := time.Now()
	response, err := s.client.Do(request)
	if err != nil {
		return told{at: time.Now(), took: time.Since(began), message: err.Error()}
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	got := told{at: time.Now(), took: time.Since(began), status: response.StatusCode, header: response.Header}
	if got.status != http.StatusOK {
		refused := struct {
			Code, Message *string
			Details       any
		}{&got.code, &got.message, &got.details}
		if err := json.Unmarshal(body, &refused); err != nil {
			got.message = err.Error()
		}
	}
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil {
		got.retryAfter = time.Duration(seconds) * time.Second
	}
	return got
}

// burst sends count requests from a few clients to all gateways in turn, and counts the answers by status.
func (s *quotaSite) burst(token string, count int) map[int]int {
	var mu sync.Mutex
	var next atomic.Int64
	var all sync.WaitGroup
	statuses := map[int]int{}
	for range 8 {
		all.Go(func() {
			for n := int(next.Add(1)); n <= count; n = int(next.Add(1)) {
				got := s.ask(s.Gateways[n%len(s.Gateways)], token)
				mu.Lock()
				statuses[got.status]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return statuses
}

// explained is what `keyadmin usage explain` says of a token.
type explained struct {
	Passes      bool
	Code, Until string
	Mode        string
	Minute, Day struct{ Limit, Used, Remaining int64 }
}

func (s *quotaSite) explain(token string) (e explained) {
	s.t.Helper()
	cmd := exec.Command(testkit.Build(s.t, "petgate/keyadmin"), "usage", "explain", "--output", "json")
	cmd.Env = append(os.Environ(), "DATABASE_URL="+s.Database)
	cmd.Stdin = strings.NewReader(token + "\n")
	var problem bytes.Buffer
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &e)
	}
	if err != nil {
		s.t.Fatalf("keyadmin usage explain: %v\n%s%s", err, out, &problem)
	}
	return e
}

// metrics reads a gateway's metrics; none if it does not answer.
func (s *quotaSite) metrics(gateway *fleet.Program) map[string]float64 {
	metrics := map[string]float64{}
	response, err := s.client.Get(gateway.Admin + "/metrics")
	if err != nil {
		return metrics
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), " "); ok {
			metrics[name], _ = strconv.ParseFloat(value, 64) // comments have none
		}
	}
	return metrics
}

// decidedAlone is how many decisions were made without Redis, or may have been.
func (s *quotaSite) decidedAlone() (sum int) {
	for _, g := range s.Gateways {
		metrics := s.metrics(g)
		for _, name := range []string{
			`decisions_total{outcome="local_admitted"}`, `decisions_total{outcome="local_refused"}`,
			`trips_total{result="failed"}`, `trips_total{result="unsure"}`,
		} {
			sum += int(metrics["gateway_limits_"+name])
		}
	}
	return sum
}

// quotaPatience bounds how long a test is repeated that this machine disturbs: a gateway that is held up for longer than its
// budget of 50 ms has an outage, and then no longer counts in Redis alone.
const quotaPatience = 5 * time.Minute

// undisturbed runs a test that needs every decision to be Redis's, again if the machine disturbed it. The test says whether it
// did, before it judges.
func undisturbed(t *testing.T, run func(t *testing.T) (disturbed bool)) {
	t.Helper()
	began := time.Now()
	for attempt := 1; ; attempt++ {
		var disturbed bool
		passed := t.Run(fmt.Sprintf("run %d", attempt), func(t *testing.T) { disturbed = run(t) })
		switch {
		case !passed || !disturbed:
			return
		case time.Since(began) > quotaPatience:
			t.Fatalf("this machine held the gateways up for longer than 50 ms in each of %d runs", attempt)
		}
		t.Logf("run %d: this machine held a gateway up for longer than 50 ms; again", attempt)
	}
}

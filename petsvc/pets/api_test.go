package pets_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"petgate/petsvc/pets"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

func TestAddAndGet(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		r := start(t, url, pets.Config{})
		const name = `"\"R\\ex\" \u2028 日本 😀"`
		pet := `{"name":` + name + `,"categoryId":-9223372036854775808}`
		pet += strings.Repeat(" ", 64<<10-len(pet)) // the longest body
		a := r.do(t, "POST", "/v1/pets", pet, "Content-Type: Application/JSON; charset=utf-8")
		const stored = `{"id":1,"name":` + name + `,"categoryId":-9223372036854775808,"status":"available"}`
		var got, want any
		_ = json.Unmarshal([]byte(a.body), &got)
		_ = json.Unmarshal([]byte(stored), &want)
		if a.status != 201 || fmt.Sprint(got) != fmt.Sprint(want) || a.header.Get("Location") != "/v1/pets/1" {
			t.Errorf("POST: %d %v %s", a.status, a.header, a.body)
		}
		if b := r.do(t, "GET", a.header.Get("Location"), ""); b.status != 200 || b.body != a.body {
			t.Errorf("GET of what was stored: %d %s, want %s", b.status, b.body, a.body)
		}
		must.Equal(t, r.do(t, "GET", "/v1/pets", "").body, "["+a.body+"]", "the list")
		for _, target := range []string{"/v1/pets", "/v1/pets/1", "/v1/pets/2", "/v1/pets?limit=0", "/v1"} {
			get, head := r.do(t, "GET", target, ""), r.do(t, "HEAD", target, "")
			get.header.Del("Date")
			head.header.Del("Date")
			if head.body != "" || head.status != get.status || fmt.Sprint(head.header) != fmt.Sprint(get.header) {
				t.Errorf("HEAD %s: %+v; GET: %+v", target, head, get)
			}
		}
		must.Equal(t, r.do(t, "GET", "/v1/pets/%31", "").body, a.body, "percent-encoded")
	})
}

var nextLink = regexp.MustCompile(`^<(.*)>; rel="next"$`)

func TestPages(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		r := start(t, url, pets.Config{})
		if a := r.do(t, "GET", "/v1/pets", ""); a.body != "[]" || a.header.Get("Link") != "" {
			t.Errorf("the list of nothing: %s, Link %q", a.body, a.header.Get("Link"))
		}
		all := map[pets.Status][]int64{}
		for i := range 45 {
			status := []pets.Status{pets.Available, pets.Pending, pets.Sold}[i%3]
			id := r.add(t, fmt.Sprint("pet ", i), status)
			all[status] = append(all[status], id)
			all[""] = append(all[""], id)
		}
		for _, c := range []struct {
			query  string
			status pets.Status
			sizes  []int
		}{
			{"", "", []int{20, 20, 5}},
			{"?limit=15", "", []int{15, 15, 15}},
			{"?limit=100", "", []int{45}},
			{"?limit=1&status=sold", pets.Sold, slices.Repeat([]int{1}, 15)},
			{"?status=pending", pets.Pending, []int{15}},
			{"?status=pending&limit=10&colour=red&colour=", pets.Pending, []int{10, 5}},
			{"?after=-7", "", []int{20, 20, 5}},
		} {
			var ids []int64
			var sizes []int
			for target := "/v1/pets" + c.query; target != ""; {
				a := r.do(t, "GET", target, "")
				var page []struct{ ID int64 }
				if err := json.Unmarshal([]byte(a.body), &page); err != nil {
					t.Fatalf("%s: %v in %s", target, err, a.body)
				}
				for _, pet := range page {
					ids = append(ids, pet.ID)
				}
				sizes = append(sizes, len(page))
				target = ""
				if next := nextLink.FindStringSubmatch(a.header.Get("Link")); next != nil {
					target = next[1]
				}
			}
			if !slices.Equal(ids, all[c.status]) || !slices.Equal(sizes, c.sizes) {
				t.Errorf("%s: pages of %v, want %v; ids %v, want %v", c.query, sizes, c.sizes, ids, all[c.status])
			}
		}
		must.Equal(t, r.do(t, "GET", "/v1/pets?after=9223372036854775807", "").body, "[]", "after the last possible id")
	})
}

func TestRefusals(t *testing.T) {
	const rex = `{"name":"Rex","categoryId":1}`
	type refusal struct {
		method, target, body string
		header               []string
		status               int
		code                 string
		mentions             string
	}
	refusals := []refusal{
		{"GET", "/", "", nil, 404, "no_such_route", ""},
		{"GET", "/v1/pets/", "", nil, 404, "no_such_route", ""},
		{"GET", "/v1/pets/1/toys", "", nil, 404, "no_such_route", ""},
		{"GET", "/v1/Pets", "", nil, 404, "no_such_route", ""},
		{"POST", "/v2/pets", rex, nil, 404, "no_such_route", ""},
		{"PUT", "/v1/pets", rex, nil, 405, "method_not_allowed", "GET, HEAD, POST"},
		{"DELETE", "/v1/pets/1", "", nil, 405, "method_not_allowed", "GET, HEAD"},
		{"POST", "/v1/pets/1", rex, nil, 405, "method_not_allowed", "GET, HEAD"},
		{"GET", "/v1/pets/x", "", nil, 400, "invalid_parameter", "petId"},
		{"GET", "/v1/pets/1.0", "", nil, 400, "invalid_parameter", "petId"},
		{"GET", "/v1/pets/+1", "", nil, 400, "invalid_parameter", "petId"},
		{"GET", "/v1/pets/%D9%A1", "", nil, 400, "invalid_parameter", "petId"},
		{"GET", "/v1/pets/0", "", nil, 404, "pet_not_found", ""},
		{"GET", "/v1/pets/-1", "", nil, 404, "pet_not_found", ""},
		{"GET", "/v1/pets/1", "", nil, 404, "pet_not_found", ""},
		{"GET", "/v1/pets/9223372036854775807", "", nil, 404, "pet_not_found", ""},
		{"GET", "/v1/pets/9223372036854775808", "", nil, 404, "pet_not_found", ""},
		{"POST", "/v1/pets", rex, []string{"Content-Type: text/plain"}, 415, "unsupported_media_type", `is \"text/plain\": send`},
		{"POST", "/v1/pets", rex, []string{"Content-Type: application/json-patch+json"}, 415, "unsupported_media_type", "application/json"},
		{"POST", "/v1/pets", rex, []string{"Content-Type: ;application/json"}, 415, "unsupported_media_type", "application/json"},
		{"POST", "/v1/pets", rex, []string{"Content-Encoding: gzip"}, 415, "unsupported_media_type", "Content-Encoding"},
		{"POST", "/v1/pets", "", nil, 400, "invalid_request", "the body is empty"},
		{"POST", "/v1/pets", rex + rex, nil, 400, "invalid_request", "the JSON is malformed at byte 30"},
		{"POST", "/v1/pets", `{"name":nope}`, nil, 400, "invalid_request", `is malformed at byte 10`},
		{"POST", "/v1/pets", rex + strings.Repeat(" ", 64<<10-len(rex)+1), nil, 413, "body_too_large", "65536"},
		{"POST", "/v1/pets", rex, []string{`Idempotency-Key: ""`}, 400, "invalid_parameter", `"parameter":"Idempotency-Key"`},
		{"POST", "/v1/pets", rex, []string{"Idempotency-Key: one", "Idempotency-Key: one"}, 400, "invalid_parameter", "must be sent once"},
		{"GET", "/v1/pets?offset=20", "", nil, 400, "invalid_parameter", `"parameter":"offset"`},
		{"GET", "/v1/pets?offset=20&offset=40", "", nil, 400, "invalid_parameter", "is not supported: follow Link"},
		{"GET", "/v1/pets?limit=5&page=2", "", nil, 400, "invalid_parameter", `"parameter":"page"`},
		{"POST", "/v1/pets", `{"name":"Rex"}`, []string{"Content-Type: application/json"}, 400, "invalid_request", "categoryId"},
	}
	for _, query := range []string{
		"limit=", "limit=0", "limit=101", "limit=-1", "limit=1.5", "limit=1e1", "limit=+5", "limit=five",
		"limit=99999999999999999999", "limit=٥", "limit=5%20", "limit", "limit=5&limit=5", "limit=5&limit", "limit&after=1",
		"status=", "status", "status=lost", "status=SOLD", "status=sold&status=sold", "status=sold,pending",
		"after=", "after=x", "after=1&after=2", "after=9223372036854775808",
	} {
		name := regexp.MustCompile("^[a-z]+").FindString(query)
		refusals = append(refusals, refusal{"GET", "/v1/pets?" + query, "", nil, 400, "invalid_parameter", name})
	}
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		r := start(t, url, pets.Config{})
		for _, c := range refusals {
			a := r.do(t, c.method, c.target, c.body, c.header...)
			what := fmt.Sprint(c.method, " ", c.target, " ", c.body, " ", c.header)
			a.is(t, what, c.status, c.code)
			if !strings.Contains(a.body, c.mentions) {
				t.Errorf("%s: %s does not mention %q", what, a.body, c.mentions)
			}
			wantAllow := ""
			if c.status == 405 {
				wantAllow = c.mentions
			}
			must.Equal(t, a.header.Get("Allow"), wantAllow, "%s: Allow", what)
		}
		must.Equal(t, r.do(t, "GET", "/v1/pets", "").body, "[]", "what is stored")
	})
}

// A larger limit admits larger bodies. A body that says it is not encoded is stored.
func TestBodyBytesMax(t *testing.T) {
	for size, want := range map[int]int{64<<10 + 1: 201, 5 << 20: 201, 3<<20 + 1: 413} {
		r := start(t, testkit.SQLite(t), pets.Config{BodyBytesMax: size - want/413}) // for a 413, a byte less
		a := r.do(t, "POST", "/v1/pets", `{"name":"Rex","categoryId":1}`+strings.Repeat(" ", size-29),
			"Content-Encoding: Identity")
		a.is(t, fmt.Sprint(size, " bytes"), want, map[int]string{413: "body_too_large"}[want])
	}
}

// By default, the responses that fasthttp makes itself are text.
func TestUnreadableRequests(t *testing.T) {
	long := strings.Repeat("x", 70_000)
	r := start(t, testkit.SQLite(t), pets.Config{})
	for _, c := range []struct {
		name, bytes string
		status      int
		code        string
	}{
		{"no HTTP", "hello\r\n\r\n", 400, "bad_request"},
		{"a header without a colon", "GET /v1/pets HTTP/1.1\r\nHost: x\r\nnonsense\r\n\r\n", 400, "bad_request"},
		{"too long a header", "GET /v1/pets HTTP/1.1\r\nHost: x\r\nX-Long: " + long + "\r\n\r\n", 431, "headers_too_large"},
		{"too long a target", "GET /" + long + " HTTP/1.1\r\nHost: x\r\n\r\n", 431, "headers_too_large"},
		{"too large a body", "POST /v1/pets HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n{", 413, "body_too_large"},
		{"a broken chunk", "POST /v1/pets HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n", 400, "bad_request"},
	} {
		conn := must.Get[net.Conn](t)(r.listener.Dial())
		go io.WriteString(conn, c.bytes) // the answer may come before all of it is read
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		a := answerOf(t)(response, err)
		a.is(t, c.name, c.status, c.code)
		if !response.Close || a.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %v, want JSON and a closed connection", c.name, a.header)
		}
		conn.Close()
	}
}

// Only gateways that have the secret are served, and are told whether requests should come here.
// These checks are neither counted nor logged.
func TestOnlyTheGatewayIsAnswered(t *testing.T) {
	var log testkit.Output
	ctx, stop := context.WithCancel(t.Context())
	r := launch(t, ctx, testkit.SQLite(t),
		pets.Config{Secret: "open sesame", AccessLog: slog.New(slog.NewTextHandler(&log, nil))})
	testkit.Eventually(t, time.Minute, "the service is ready", r.isReady)
	check := func(secret string, status int, body string) {
		t.Helper()
		request := must.Get[*http.Request](t)(http.NewRequest("GET", "http://pets/readyz", nil))
		request.Header.Set("X-Gateway-Secret", secret)
		if a := answerOf(t)(r.client.Do(request)); a.status != status || !strings.Contains(a.body, body) {
			t.Errorf("%d %s, want %d %s", a.status, a.body, status, body)
		}
	}
	check("open sesame", 200, "ready")
	stop()
	check("open sesame", 503, "stopping")
	if log.Len() > 0 {
		t.Errorf("the checks are logged: %s", log.String())
	}
	check("guessed", 401, "gateway_only")
	stopping := r.do(t, "GET", "/v1/pets", "", "X-Gateway-Secret: open sesame")
	stopping.is(t, "a service that is stopping serves until it ends", 200, "")
	const secret = "X-Gateway-Secret: "
	for _, header := range []string{"X-Other: none", secret, secret + "open sesam", secret + "open sesame!"} {
		// And with WWW-Authenticate, which the document requires.
		r.do(t, "GET", "/v1/pets", "", header).is(t, header, 401, "gateway_only")
	}
}

func TestAccessLogAndMetricsUseTheSameWord(t *testing.T) {
	var lines testkit.Output
	r := start(t, testkit.SQLite(t),
		pets.Config{AccessLog: slog.New(slog.NewJSONHandler(&lines, nil)), Secret: "open sesame"})
	secret := "X-Gateway-Secret: open sesame"
	r.do(t, "GET", "/v1/pets?limit=5", "", secret, "X-Request-Id: r-1")
	r.do(t, "POST", "/v1/pets", `{"name":"Rex","categoryId":1}`, secret, "X-Request-Id: r-2")
	r.do(t, "GET", "/v1/pets/7", "", secret, "X-Request-Id: r-3")
	r.do(t, "DELETE", "/v1/pets/7%0A%22", "", secret, "X-Request-Id: r-4")
	want := []string{
		"r-1 GET listPets ok 200", "r-2 POST createPet created 201",
		"r-3 GET getPet pet_not_found 404", "r-4 DELETE none method_not_allowed 405",
	}
	testkit.Eventually(t, patience, "every request has its line", func() bool {
		return strings.Count(lines.String(), "\n") == len(want)
	})
	for i, line := range strings.Split(strings.TrimSpace(lines.String()), "\n") {
		var l struct {
			RequestID, Method, Operation, Outcome string
			Status, Bytes, Micros                 int
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		got := fmt.Sprint(l.RequestID, " ", l.Method, " ", l.Operation, " ", l.Outcome, " ", l.Status)
		if got != want[i] || l.Bytes == 0 || i < 3 && l.Micros == 0 { // the last request takes almost no time
			t.Errorf("the line is %s, want %s", line, want[i])
		}
	}
	if strings.Contains(lines.String(), "sesame") || strings.Contains(lines.String(), "/v1/pets") {
		t.Errorf("the log tells the secret or a target, in which there may be one: %s", lines.String())
	}
	if err := testutil.GatherAndCompare(r.registry, strings.NewReader(`
# HELP petgate_petsvc_requests_total Requests served, by operation and outcome.
# TYPE petgate_petsvc_requests_total counter
petgate_petsvc_requests_total{operation="createPet",outcome="created"} 1
petgate_petsvc_requests_total{operation="getPet",outcome="pet_not_found"} 1
petgate_petsvc_requests_total{operation="listPets",outcome="ok"} 1
petgate_petsvc_requests_total{operation="none",outcome="method_not_allowed"} 1
`), "petgate_petsvc_requests_total"); err != nil {
		t.Error(err)
	}
}

func TestDrain(t *testing.T) {
	r := start(t, testkit.SQLite(t), pets.Config{})
	closes := func() bool {
		response := must.Get[*http.Response](t)(r.client.Get("http://pets/v1/pets"))
		answerOf(t)(response, nil).is(t, "GET", 200, "")
		return response.Close
	}
	must.Equal(t, closes(), false, "Connection: close before the drain")
	// This transaction does not end, so the request below stays in flight.
	tx := must.Get[*sql.Tx](t)(r.db.Begin())
	inFlight := make(chan answer)
	go func() { inFlight <- r.do(t, "POST", "/v1/pets", `{"name":"Rex","categoryId":1}`) }()
	testkit.Eventually(t, patience, "the request is in flight", func() bool {
		return gathered(t, r, "petgate_petsvc_busy_connections") == 1
	})
	r.Drain()
	must.Equal(t, closes(), true, "Connection: close while draining")
	down := make(chan error)
	go func() { down <- r.Shutdown(context.Background()) }()
	testkit.Eventually(t, patience, "the listener is closed", func() bool {
		conn, err := r.listener.Dial()
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	must.Do(t, tx.Rollback())
	(<-inFlight).is(t, "the request in flight", 201, "")
	must.Do(t, <-down)
}

func gathered(t testing.TB, r *rig, name string) float64 {
	t.Helper()
	for _, family := range must.Get[[]*dto.MetricFamily](t)(r.registry.Gather()) {
		if family.GetName() == name {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

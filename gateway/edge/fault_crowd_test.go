package edge_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"petgate/gateway/portal"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// begin writes the beginning of a request and reads the response.
func begin(t *testing.T, r *rig, start string) answer {
	t.Helper()
	return r.dial(t).ask(t, start)
}

// say connects, writes text and reads nothing.
func (r *rig) say(t *testing.T, text string) *rawClient {
	t.Helper()
	c := r.dial(t)
	must.Do(t, c.connect())
	_, err := io.WriteString(c.conn, text)
	must.Do(t, err)
	return c
}

// isOpen reports whether the server has not closed the connection and has said nothing on it for a moment.
func (c *rawClient) isOpen(t *testing.T) bool {
	t.Helper()
	must.Do(t, c.conn.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
	_, err := c.in.Peek(1)
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// slowRequests are requests that the upstream keeps until release, or until the test ends.
type slowRequests struct {
	arrived, released chan bool
	release           func()
	responses         chan answer
}

// hold makes the upstream keep requests for targets that end in "slow".
func (r *rig) hold(t *testing.T) *slowRequests {
	s := &slowRequests{arrived: make(chan bool), released: make(chan bool), responses: make(chan answer, 10)}
	s.release = sync.OnceFunc(func() { close(s.released) })
	t.Cleanup(s.release) // before the rig ends, which waits for all requests
	r.upstream.Answer(func(c net.Conn, q upstreamRequest) bool {
		if strings.HasSuffix(q.Target, "slow") {
			select {
			case s.arrived <- true:
			case <-s.released:
			}
			<-s.released
		}
		return plainAnswer(c, q)
	})
	return s
}

// send has the client send one of them, and returns when it is at the upstream.
func (s *slowRequests) send(t *testing.T, client *rawClient) {
	t.Helper()
	go func() {
		got, _ := client.try(rawTarget("/v1/pets?slow"))
		s.responses <- got
	}()
	receive(t, s.arrived, "a slow request arrives at the upstream")
}

// end lets the upstream answer n of them.
func (s *slowRequests) end(t *testing.T, n int) {
	t.Helper()
	s.release()
	for range n {
		if got := receive(t, s.responses, "a slow request is answered"); got.Status != 200 {
			t.Errorf("a slow request got %d %s", got.Status, got.Body)
		}
	}
}

// receive returns the next value of a channel, and ends the test if there is none in time.
func receive[T any](t *testing.T, from <-chan T, what string) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(2 * patience): // longer than a client's own patience
		t.Fatalf("not within %v: %s", 2*patience, what)
	}
	return value
}

// A client without a key is refused when 16 KiB of its body are there, or when it waits for 100 (Continue): the rest of its body is
// never asked for, and nothing is charged.
func TestBodyWaitsForTheKey(t *testing.T) {
	r := newRig(t, func(s *setup) { s.ReadTimeout = patience })
	head := func(fields ...string) string {
		return rawBare(append([]string{"POST /v1/pets HTTP/1.1", "Host: a"}, fields...)...)
	}
	for name, start := range map[string]string{
		"length":   head("Content-Length: 60000") + repeat("a", 20_000),
		"chunks":   head("Transfer-Encoding: chunked") + "ea60\r\n" + repeat("a", 20_000),
		"continue": head("Content-Length: 5", "Expect: 100-continue"),
	} {
		if got := begin(t, r, start); got.Status != 401 || !got.Closes {
			t.Errorf("%s: got %d, closes: %t", name, got.Status, got.Closes)
		}
	}
	if n := r.takes.Load(); n != 0 {
		t.Errorf("%d requests were metered", n)
	}
	large := rawPost("Content-Length: 60000") + repeat("a", 60_000)
	if got := begin(t, r, large); got.Status != 201 || got.Closes {
		t.Errorf("with a key: got %d, closes: %t", got.Status, got.Closes)
	}
	if seen := r.upstream.Seen(); len(seen) != 1 || len(seen[0].Body) != 60_000 {
		t.Errorf("the upstream saw %q", texts(seen))
	}
}

// A client that waits for 100 (Continue) gets the refusal instead, and is charged, if there is no such path or method, or if its key may
// not call it. The connection ends, because the body may still come.
func TestContinueWaitsForTheRoute(t *testing.T) {
	r := newRig(t, sunsetAt(now))
	const wait = "Expect: 100-continue"
	for want, request := range map[string]string{
		"no_such_route":      rawStart("POST /v1/cats HTTP/1.1", wait, "Content-Length: 5"),
		"method_not_allowed": rawStart("PUT /v1/pets HTTP/1.1", wait, "Transfer-Encoding: chunked"),
		"operation_removed":  rawStart("GET /v1/pets/7 HTTP/1.1", wait, "Content-Length: 5"),
		"insufficient_scope": strings.Replace(rawPost(wait, "Content-Length: 5"), token, readerToken, 1),
	} {
		before := r.admitted.Load()
		client := r.say(t, request)
		line, err := client.in.ReadString('\n')
		if err != nil || strings.Contains(line, "100") {
			t.Fatalf("%s: %q %v", want, line, err)
		}
		client.in = bufio.NewReader(io.MultiReader(strings.NewReader(line), client.in))
		if got, err := readAnswer(client.in, no); err != nil || codeOf(got) != want || !got.Closes || r.admitted.Load() != before+1 {
			t.Errorf("got %d %s %v, closes: %t, want %s; %d were charged", got.Status, codeOf(got), err, got.Closes, want, r.admitted.Load()-before)
		}
	}
	if seen := r.upstream.Seen(); len(seen) != 0 {
		t.Errorf("the upstream saw %q", texts(seen))
	}
}

// A request whose body is still to come leaves its slot to others, and needs one again when the body is there.
func TestBodyThatIsToComeHoldsNoSlot(t *testing.T) {
	r := newRig(t, func(s *setup) { s.ConcurrencyMax, s.ReadTimeout, s.UpstreamTimeout = 1, patience, patience })
	slow, other := r.hold(t), r.dial(t)
	promise := func() (sending *rawClient) {
		t.Helper()
		sending = r.dial(t)
		if got := sending.ask(t, rawGet()); got.Status != 200 {
			t.Fatalf("a request before it got %d %s", got.Status, codeOf(got))
		}
		must.Get[int](t)(io.WriteString(sending.conn, rawPost("Content-Length: 2", "Expect: 100-continue")))
		must.Get[int](t)(sending.in.Discard(len("HTTP/1.1 100 Continue\r\n\r\n")))
		return sending
	}
	first, second := promise(), promise()
	if got := other.ask(t, rawGet()); got.Status != 200 {
		t.Errorf("while a body is to come, another request got %d %s", got.Status, codeOf(got))
	}
	slow.send(t, r.dial(t))
	if got := first.ask(t, "{}"); codeOf(got) != "overloaded" {
		t.Errorf("while the only slot is taken, the body's request got %d %s", got.Status, codeOf(got))
	}
	slow.end(t, 1)
	testkit.Eventually(t, patience, "the slot is free", func() bool { return other.ask(t, rawGet()).Status == 200 })
	if got := second.ask(t, "{}"); got.Status != 201 {
		t.Errorf("the second body's request got %d %s", got.Status, codeOf(got))
	}
}

// The bodies of all requests share one budget, which is given back.
func TestBodiesShareABudget(t *testing.T) {
	registry := prometheus.NewRegistry()
	r := newRig(t, func(s *setup) { s.BodiesBytesMax, s.ReadTimeout, s.Metrics = 100_000, patience, registry })
	first := r.say(t, rawPost("Content-Length: 60001")+repeat("a", 60_000))
	testkit.Eventually(t, patience, "the first body holds its memory", func() bool {
		return gauges(t, registry, "petgate_gateway_body_bytes") > 60_000
	})
	request := rawPost("Content-Length: 60000") + repeat("a", 60_000)
	others := strings.Replace(request, token, rotatedToken, 1) // another tenant's, which has a share of its own
	if got := begin(t, r, others); got.Status != 503 || got.refusal() != nil || strings.Contains(got.Body, "your account") {
		t.Errorf("past the budget: %d, %v, %s", got.Status, got.refusal(), got.Body)
	}
	if got := begin(t, r, rawGet()); got.Status != 200 {
		t.Errorf("a request without a body got %d", got.Status)
	}
	if got := first.ask(t, "a"); got.Status != 201 {
		t.Errorf("the first body: %d", got.Status)
	}
	if got := begin(t, r, request); got.Status != 201 {
		t.Errorf("afterwards: %d", got.Status)
	}
	testkit.Eventually(t, patience, "all memory is given back, also what the refused body held", func() bool {
		return gauges(t, registry, "petgate_gateway_body_bytes") == 0
	})
}

// Strangers do not keep out a client with a key, whatever they do: keep the connections in front of the queue busy, never end their heads
// or bodies, do not read a page, or fall silent. Those that have been silent for longest are closed, but never a client with a key.
func TestAllStrangersMakeRoom(t *testing.T) {
	const most = 200
	body := rawBare("POST /v1/pets HTTP/1.1", "Host: a", "Content-Length: 9") + "a"
	refused := func(c *rawClient, n int) *rawClient {
		if got := c.ask(t, rawKey()); got.Status != 401 {
			t.Fatalf("stranger %d: %d", n, got.Status)
		}
		return c
	}
	for what, begin := range map[string]func(r *rig, n int) *rawClient{
		"silent ones": func(r *rig, n int) *rawClient { return refused(r.dial(t), n) },
		"busy ones": func(r *rig, n int) *rawClient {
			c := refused(r.dial(t), n)
			if n < 80 { // more than are checked at a time
				_, _ = io.WriteString(c.conn, "G")
			}
			return c
		},
		"heads":  func(r *rig, _ int) *rawClient { return r.say(t, "GET / HTTP/1.1\r\n") },
		"bodies": func(r *rig, _ int) *rawClient { return r.say(t, body) },
		"unread pages": func(r *rig, n int) *rawClient {
			c := r.say(t, keyless("GET /docs HTTP/1.1"))
			if _, err := c.in.Peek(1); err != nil { // the response has begun
				t.Fatalf("stranger %d: %v", n, err)
			}
			return c
		},
	} {
		registry := prometheus.NewRegistry()
		r := newRig(t, func(s *setup) {
			s.ConnectionsMax, s.ReadTimeout, s.WriteTimeout, s.Metrics = most, patience, patience, registry
			s.Pages = published(page("/docs", "text/plain", portal.Content{Body: make([]byte, 16<<20)})) // more than both kernels hold
		})
		slow, known := r.hold(t), r.dial(t)
		slow.send(t, r.dial(t))
		known.ask(t, rawGet())
		var strangers []*rawClient
		for n := range most + most/10 {
			strangers = append(strangers, begin(r, n))
			if what == "silent ones" { // but the first one never for long
				refused(strangers[0], 0)
			}
		}
		if got := r.dial(t).ask(t, rawGet()); got.Status != 200 {
			t.Errorf("%s: a new client with a key got %d", what, got.Status)
		}
		if got, err := known.try(rawGet()); err != nil || got.Status != 200 {
			t.Errorf("%s: an old client with a key got %d %v", what, got.Status, err)
		}
		slow.end(t, 1)
		if what == "silent ones" {
			if _, err := strangers[1].in.Peek(1); err == nil || strings.Contains(err.Error(), "timeout") {
				t.Errorf("the stranger that was silent for longest is still there: %v", err)
			}
		}
		if isFair := what != "heads" && what != "bodies"; !isFair && (strangers[0].isOpen(t) || !strangers[len(strangers)-1].isOpen(t)) {
			t.Errorf("%s: the oldest request must make room, and the youngest must not", what)
		}
		for _, c := range strangers {
			c.close()
		}
		testkit.Eventually(t, patience, "nothing held", func() bool {
			return gauges(t, registry, "petgate_gateway_connections", "petgate_gateway_body_bytes") <= 3 // the clients with a key
		})
	}
}

// When all connections have sent a key, each new one closes the one that has been idle for longest, and never a busy one. But
// clients without a key get at most a tenth of the connections.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	const most = 40
	r := newRig(t, func(s *setup) { s.ConnectionsMax, s.ReadTimeout, s.UpstreamTimeout = most, patience, patience })
	slow, known := r.hold(t), make([]*rawClient, most)
	for i := range known {
		known[i] = r.dial(t)
		of := []string{token, readerToken}[i%2]
		if i >= most-most/10 {
			of = otherToken // the last tenth is for tenants with few connections
		}
		if got := known[i].ask(t, rawBare("GET /v1/pets HTTP/1.1", "Host: a", "Authorization: Bearer "+of)); got.Status != 200 {
			t.Fatalf("connection %d got %d %s", i, got.Status, got.Body)
		}
	}
	slow.send(t, known[0])
	first, second := r.say(t, ""), r.say(t, "")
	for _, c := range []*rawClient{second, first} { // the second one does not take the place of the first
		if got, err := c.try(rawKey()); err != nil || got.Status != 401 {
			t.Errorf("a client that has just connected got %d %v", got.Status, err)
		}
	}
	for range 2 * most {
		if got := r.dial(t).ask(t, rawKey()); got.Status != 401 {
			t.Errorf("a new client got %d", got.Status)
		}
	}
	const closed = most/10 + 1 // the last stranger comes before the tenth is exceeded
	if known[1].isOpen(t) || known[closed].isOpen(t) || !known[closed+1].isOpen(t) || !known[most-1].isOpen(t) {
		t.Error("exactly the connections that were idle for longest must make room")
	}
	slow.end(t, 1)
}

// Long heads have a budget. Above it, the head that has been arriving for longest makes room for a new one.
func TestLongHeadsHaveABudget(t *testing.T) {
	const most = 10
	const large = 8<<10 + 32<<10 + 500 // at least the size of a large buffer in this rig
	registry := prometheus.NewRegistry()
	r := newRig(t, func(s *setup) { s.HeadsBytesMax, s.ReadTimeout, s.Metrics = most*large, patience, registry })
	long := "X-Long: " + repeat("a", 5000)
	var slow []*rawClient
	for range 3 * most {
		c := r.say(t, "GET / HTTP/1.1\r\n"+long)
		slow = append(slow, c)
		testkit.Eventually(t, patience, "the head has arrived and its predecessors' memory is returned", func() bool {
			held := gauges(t, registry, "petgate_gateway_head_bytes")
			n := float64(min(len(slow), most))
			return held > n*40_000 && held <= n*large && gauges(t, registry, "petgate_gateway_connections") == n &&
				gauges(t, registry, "petgate_gateway_connections_evicted_total") == float64(len(slow))-n
		})
	}
	if slow[2*most-1].isOpen(t) || !slow[3*most-1].isOpen(t) {
		t.Error("the oldest head must make room, and the youngest must not")
	}
	for range 3 { // the second and third request use the same connection
		if got := r.dial(t).ask(t, rawKey("Authorization: Bearer "+token, long)); got.Status != 200 {
			t.Errorf("a client with a key and a long head got %d", got.Status)
		}
	}
	for _, c := range slow {
		c.close()
	}
	testkit.Eventually(t, patience, "nothing held", func() bool {
		return gauges(t, registry, "petgate_gateway_head_bytes") == 0
	})
}

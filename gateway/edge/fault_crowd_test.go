package edge_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"petgate/gateway/http1"
	"petgate/gateway/portal"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// promise says a head whose body waits for 100 (Continue), and reads that line.
func (r *rig) promise(t *testing.T, head string) *rawClient {
	t.Helper()
	c := r.say(t, head)
	must.Get[int](t)(c.in.Discard(len("HTTP/1.1 100 Continue\r\n\r\n")))
	return c
}

// isOpen reports whether the server has not closed the connection and has said nothing on it for
// some time.
func (c *rawClient) isOpen(t *testing.T, lasting time.Duration) bool {
	t.Helper()
	must.Do(t, c.conn.SetReadDeadline(time.Now().Add(lasting)))
	_, err := c.in.Peek(1)
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// slowRequests are requests that the upstream keeps until release, or until the test ends.
type slowRequests struct {
	arrived, released chan bool
	release           func()
	responses         chan answer
}

var rawSlow = rawTarget("/v1/pets?slow")

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
func (s *slowRequests) send(t *testing.T, client *rawClient, request string) {
	t.Helper()
	go func() {
		got, _ := client.try(request)
		s.responses <- got
	}()
	receive(t, s.arrived, "a slow request arrives at the upstream")
}

// end lets the upstream answer n of them.
func (s *slowRequests) end(t *testing.T, n int) {
	t.Helper()
	s.release()
	for range n {
		receive(t, s.responses, "a slow request is answered").expect(t, "a slow request", "200")
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

// A client without a key is refused when 16 KiB of its body are there, or when it waits for 100
// (Continue): the rest of its body is never asked for, and nothing is charged.
func TestBodyWaitsForTheKey(t *testing.T) {
	r := newRig(t)
	for name, start := range map[string]string{
		"length":   keyless("POST /v1/pets HTTP/1.1", "Content-Length: 60000") + repeat("a", 20_000),
		"chunks":   keyless("POST /v1/pets HTTP/1.1", "Transfer-Encoding: chunked") + "ea60\r\n" + repeat("a", 20_000),
		"continue": keyless("POST /v1/pets HTTP/1.1", "Content-Length: 5", "Expect: 100-continue"),
	} {
		got := r.ask(t, start)
		if got.expect(t, name, "401 missing_api_key"); !got.Closes || r.takes.Load() != 0 {
			t.Errorf("%s: closes: %t, %d requests were metered", name, got.Closes, r.takes.Load())
		}
	}
	got := r.ask(t, rawPost("Content-Length: 60000")+repeat("a", 60_000))
	got.expect(t, "with a key", "201")
	if seen := r.upstream.Seen(); got.Closes || len(seen) != 1 || len(seen[0].Body) != 60_000 {
		t.Errorf("closes: %t, the upstream saw %q", got.Closes, texts(seen))
	}
}

// A client that waits for 100 (Continue) gets the refusal instead, and is charged, if there is no
// such path or method, or if its key may not call it. The connection ends, because the body may
// still come.
func TestContinueWaitsForTheRoute(t *testing.T) {
	r := newRig(t, sunsetAt(now))
	const wait = "Expect: 100-continue"
	client := r.dial(t)
	for _, e := range []exchange{
		{
			request: rawStart("POST /v1/cats HTTP/1.1", wait, "Content-Length: 5"),
			want:    "404 no_such_route",
		},
		{
			request: rawStart("PUT /v1/pets HTTP/1.1", wait, "Transfer-Encoding: chunked"),
			want:    "405 method_not_allowed",
		},
		{
			request: rawStart("GET /v1/pets/7 HTTP/1.1", wait, "Content-Length: 5"),
			want:    "410 operation_removed", operation: "getPet",
		},
		{
			request: strings.Replace(rawPost(wait, "Content-Length: 5"), token, readerToken, 1),
			want:    "403 insufficient_scope", operation: "createPet",
		},
	} {
		e.counts = charged
		got := r.exchange(t, client, e)
		must.Equal(t, got.Closes && !got.mayContinue, true, "whether %s ends the connection, without a 100", e.want)
	}
	must.Equal(t, len(r.upstream.Seen()), 0, "how many requests the upstream saw")
}

// A request whose body is still to come leaves its slot to others, and needs one again when the
// body is there.
func TestBodyThatIsToComeHoldsNoSlot(t *testing.T) {
	r := newRig(t, streams, func(s *setup) { s.ConcurrencyMax = 1 })
	slow, other := r.hold(t), r.dial(t)
	head := rawPost("Content-Length: 2", "Expect: 100-continue")
	first, second := r.promise(t, head), r.promise(t, head)
	other.ask(t, rawGet()).expect(t, "while a body is to come, another request", "200")
	slow.send(t, r.dial(t), rawSlow)
	first.ask(t, "{}").expect(t, "while the only slot is taken, the body's request", "503 overloaded")
	slow.end(t, 1)
	testkit.Eventually(t, patience, "the slot is free", func() bool { return other.ask(t, rawGet()).Status == 200 })
	second.ask(t, "{}").expect(t, "the second body's request", "201")
	charged := r.admitted.Load()
	long := r.say(t, rawPost("Content-Length: "+decimal(streamed))+repeat("a", streamed/2))
	testkit.Eventually(t, patience, "a long body passes, and the slot is free", func() bool {
		return r.admitted.Load() > charged && other.ask(t, rawGet()).Status == 200
	})
	long.ask(t, repeat("a", streamed/2)).expect(t, "the long body's request", "201")
}

// The bodies of all requests share one budget, which is given back.
func TestBodiesShareABudget(t *testing.T) {
	r := newRig(t, func(s *setup) { s.BodiesBytesMax = 100_000 })
	held := func() float64 { return r.metric(t, "petgate_gateway_body_bytes") }
	first := r.say(t, rawPost("Content-Length: 60001")+repeat("a", 60_000))
	testkit.Eventually(t, patience, "the first body holds its memory", func() bool { return held() > 60_000 })
	request := rawPost("Content-Length: 60000") + repeat("a", 60_000)
	got := r.ask(t, strings.Replace(request, token, rotatedToken, 1)) // another tenant's, which has a share of its own
	if got.expect(t, "past the budget", "503 overloaded"); strings.Contains(got.Body, "your account") {
		t.Errorf("past the budget: %s", got.Body)
	}
	r.ask(t, rawGet()).expect(t, "a request without a body", "200")
	first.ask(t, "a").expect(t, "the first body", "201")
	r.ask(t, request).expect(t, "afterwards", "201")
	testkit.Eventually(t, patience, "all memory is given back, also what the refused body held",
		func() bool { return held() == 0 })
}

// largePage has more than both kernels hold.
var largePage = published(page("/docs", "text/plain", portal.Content{Body: make([]byte, 16<<20)}))

// Strangers do not keep out a client with a key, whatever they do: keep the connections in front of
// the queue busy, never end their heads or bodies, do not read a page, or fall silent. Those that
// have been silent for longest are closed, but never a client with a key.
func TestAllStrangersMakeRoom(t *testing.T) {
	const most = 200
	body := keyless("POST /v1/pets HTTP/1.1", "Content-Length: 9") + "a"
	refused := func(c *rawClient) *rawClient {
		c.ask(t, rawKey()).expect(t, "a stranger", "401 missing_api_key")
		return c
	}
	for what, begin := range map[string]func(r *rig, n int) *rawClient{
		"silent ones": func(r *rig, _ int) *rawClient { return refused(r.dial(t)) },
		"busy ones": func(r *rig, n int) *rawClient {
			c := refused(r.dial(t))
			if n < 80 { // more than are checked at a time
				_, _ = io.WriteString(c.conn, "G")
			}
			return c
		},
		"heads":      func(r *rig, _ int) *rawClient { return r.say(t, "GET / HTTP/1.1\r\n") },
		"long heads": func(r *rig, _ int) *rawClient { return r.say(t, "GET / HTTP/1.1\r\nX: "+repeat("a", 600)) },
		"bodies":     func(r *rig, _ int) *rawClient { return r.say(t, body) },
		"unread pages": func(r *rig, n int) *rawClient {
			c := r.say(t, keyless("GET /docs HTTP/1.1"))
			if _, err := c.in.Peek(1); err != nil { // the response has begun
				t.Fatalf("stranger %d: %v", n, err)
			}
			return c
		},
	} {
		r := newRig(t, func(s *setup) {
			s.ConnectionsMax, s.WriteTimeout, s.Pages = most, patience, largePage
		})
		slow, known := r.hold(t), r.dial(t)
		slow.send(t, r.dial(t), rawSlow)
		known.ask(t, rawGet())
		var strangers []*rawClient
		for n := range most + most/10 {
			strangers = append(strangers, begin(r, n))
			if what == "silent ones" { // but the first one never for long
				refused(strangers[0])
			}
		}
		r.ask(t, rawGet()).expect(t, what+": a new client with a key", "200")
		known.ask(t, rawGet()).expect(t, what+": an old client with a key", "200")
		slow.end(t, 1)
		if what == "silent ones" {
			if _, err := strangers[1].in.Peek(1); err == nil || strings.Contains(err.Error(), "timeout") {
				t.Errorf("the stranger that was silent for longest is still there: %v", err)
			}
		}
		if isFair := what != "heads" && what != "bodies"; !isFair &&
			(strangers[0].isOpen(t, patience) || !strangers[len(strangers)-1].isOpen(t, moment)) {
			t.Errorf("%s: the oldest request must make room, and the youngest must not", what)
		}
		for _, c := range strangers {
			c.close()
		}
		testkit.Eventually(t, patience, "nothing held", func() bool {
			const known = 3 // the clients with a key
			return r.metric(t, "petgate_gateway_connections")+r.metric(t, "petgate_gateway_body_bytes") <= known
		})
	}
}

// When all connections have sent a key, each new one closes the one that has been idle for longest,
// and never a busy one, even if its client reads slowly. But clients without a key get at most a
// tenth of the connections.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	const most = 40
	r := newRig(t, func(s *setup) {
		s.ConnectionsMax, s.UpstreamTimeout, s.WriteTimeout, s.Pages = most, patience, patience, largePage
	})
	slow, known := r.hold(t), make([]*rawClient, most)
	for i := range known {
		known[i] = r.dial(t)
		of := []string{token, readerToken}[i%2]
		if i >= most-most/10 {
			of = otherToken // the last tenth is for tenants with few connections
		}
		known[i].ask(t, rawBearer(of)).expect(t, "a connection with a key", "200")
	}
	slow.send(t, known[0], rawSlow)
	must.Get[int](t)(io.WriteString(known[1].conn, keyless("GET /docs HTTP/1.1")))
	must.Get[[]byte](t)(known[1].in.Peek(1)) // the response has begun
	first, second := r.say(t, ""), r.say(t, "")
	for _, c := range []*rawClient{second, first} { // the second one does not take the place of the first
		c.ask(t, rawKey()).expect(t, "a client that has just connected", "401 missing_api_key")
	}
	for range 2 * most {
		r.ask(t, rawKey()).expect(t, "a new client", "401 missing_api_key")
	}
	const closed = most/10 + 1 // the last stranger comes before the tenth is exceeded
	if known[2].isOpen(t, patience) || known[closed+1].isOpen(t, patience) || !known[closed+2].isOpen(t, moment) ||
		!known[most-1].isOpen(t, moment) {
		t.Error("exactly the connections that were idle for longest must make room")
	}
	if n, err := known[1].in.Discard(16 << 20); err != nil {
		t.Errorf("a client that reads slowly gets %d bytes: %v", n, err)
	}
	slow.end(t, 1)
}

// Long heads have a budget. Above it, the head that has been arriving for longest makes room for a
// new one.
func TestLongHeadsHaveABudget(t *testing.T) {
	const most = 10
	const large = 8<<10 + 32<<10 + 500 // at least the size of a large buffer in this rig
	r := newRig(t, func(s *setup) { s.HeadsBytesMax = most * large })
	held := func() float64 { return r.metric(t, "petgate_gateway_head_bytes") }
	long := "X-Long: " + repeat("a", 5000)
	var slow []*rawClient
	for range 3 * most {
		c := r.say(t, "GET / HTTP/1.1\r\n"+long)
		slow = append(slow, c)
		testkit.Eventually(t, patience, "the head has arrived and its predecessors' memory is returned", func() bool {
			n := float64(min(len(slow), most))
			return held() > n*40_000 && held() <= n*large && r.metric(t, "petgate_gateway_connections") == n &&
				r.metric(t, "petgate_gateway_connections_evicted_total") == float64(len(slow))-n
		})
	}
	if slow[2*most-1].isOpen(t, patience) || !slow[3*most-1].isOpen(t, moment) {
		t.Error("the oldest head must make room, and the youngest must not")
	}
	for range 3 { // the second and third request use the same connection
		r.ask(t, rawGet(long)).expect(t, "a client with a key and a long head", "200")
	}
}

// One tenant gets nine tenths of an upstream's slots while no other one needs them, and not the
// last tenth. A request that gets none is not charged.
func TestTenantHasAShare(t *testing.T) {
	const slots, share = 20, 18
	r := newRig(t, func(s *setup) {
		s.UpstreamTimeout, s.UpstreamConnsMax, s.UpstreamConnsPerTenant = patience, slots, slots/4
	})
	slow := r.hold(t)
	for range share {
		slow.send(t, r.dial(t), rawSlow)
	}
	r.ask(t, rawGet()).expect(t, "the tenant's next request", "503 upstream_overloaded")
	must.Equal(t, r.admitted.Load(), share, "how many requests were charged")
	r.ask(t, rawBearer(readerToken)).expect(t, "another tenant's request", "200")
	slow.end(t, share)
	r.ask(t, rawGet()).expect(t, "afterwards", "200")
}

// One tenant gets nine tenths of the connections while no other one needs them. Those of a trusted
// proxy belong to no tenant.
func TestTenantHasAShareOfConnections(t *testing.T) {
	const most = 40
	for name, trusted := range map[string][]netip.Prefix{"direct": nil, "proxy": {loopback}} {
		r := newRig(t, func(s *setup) { s.ConnectionsMax, s.TrustedProxies = most, trusted })
		clients := make([]*rawClient, most-most/10+1)
		for i := range clients {
			clients[i] = r.dial(t)
			want := "200"
			if i == len(clients)-1 && name == "direct" {
				want = "503 overloaded"
			}
			got := clients[i].ask(t, rawGet())
			got.expect(t, name, want)
			must.Equal(t, strings.Contains(got.Body, "your account"), want != "200",
				"%s: whether the answer to connection %d blames its account: %s", name, i, got.Body)
		}
		r.ask(t, rawBearer(readerToken)).expect(t, name+": another tenant", "200")
		clients[0].close()
		clients[1].close() // the other tenant has one
		testkit.Eventually(t, patience, "a connection again", func() bool { return r.ask(t, rawGet()).Status == 200 })
	}
}

// One tenant's large bodies get nine tenths of the memory for bodies while no other one needs it,
// also if none of them ever ends, and if they pass through in parts.
func TestTenantHasAShareOfBodies(t *testing.T) {
	for _, longest := range []int{bodyMax, 140_000} {
		const most = 20
		r := newRig(t, func(s *setup) { s.BodyBytesMax, s.BodiesBytesMax = longest, most*http1.PartBytesMax })
		body := repeat("a", longest-5000)
		upload := rawPost("Content-Length: "+decimal(len(body)), "Expect: 100-continue")
		var sending []*rawClient
		for range most - most/10 {
			sending = append(sending, r.promise(t, upload))
		}
		got := r.ask(t, upload)
		if got.expect(t, "one more body", "503 overloaded"); !strings.Contains(got.Body, "your account") ||
			!got.Closes {
			t.Errorf("one more body got %s, closes: %t", got.Body, got.Closes)
		}
		r.ask(t, rawGet()).expect(t, "a request without a body", "200")
		for _, c := range append(sending, r.promise(t, strings.Replace(upload, token, otherToken, 1))) {
			c.ask(t, body).expect(t, "a body", "201")
		}
		testkit.Eventually(t, patience, "room again", func() bool {
			return r.ask(t, rawPost("Content-Length: "+decimal(len(body)))+body).Status == 201
		})
	}
}

// Many slow clients of a kind are gone in time, and an honest one is served throughout. What drips
// does not extend a timeout.
func TestSlowClients(t *testing.T) {
	const large = 64 << 10
	for name, kind := range map[string]struct {
		begin string // what a slow client says at once
		drip  string // and then again and again; empty: nothing, and it reads nothing either
	}{
		"heads":   {"GET /v1/pets HTTP/1.1\r\nHost: a\r\nX-Slow: ", "a"},
		"bodies":  {rawPost("Content-Length: 100000") + "{", "a"},
		"chunks":  {rawChunked(""), "1\r\na\r\n"},
		"readers": {repeat(rawTarget("/v1/pets?large"), 64), ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(s *setup) {
				s.ReadTimeout, s.WriteTimeout, s.UpstreamTimeout = time.Second, time.Second, patience
				s.BodyBytesMax = 1 << 20
				// All slow clients belong to one tenant, and each has to get its large answers.
				s.UpstreamConnsMax, s.UpstreamConnsPerTenant = 1024, 1024
			})
			r.upstream.Answer(func(c net.Conn, q upstreamRequest) bool {
				if strings.HasSuffix(q.Target, "large") {
					return saying(says("Content-Length: "+decimal(large))+repeat("a", large))(c, q)
				}
				return plainAnswer(c, q)
			})
			var clients []net.Conn
			for range slowClients {
				c := r.say(t, "").conn
				_ = c.(*net.TCPConn).SetReadBuffer(4096) // the server soon notices a client that does not read
				must.Get[int](t)(io.WriteString(c, kind.begin))
				clients = append(clients, c)
			}
			// Connections are accepted in order: when this one is answered, all are accepted.
			honest := r.dial(t)
			honest.ask(t, rawGet())
			testkit.Eventually(t, patience, "the slow clients are gone", func() bool {
				for _, c := range clients {
					_, _ = io.WriteString(c, kind.drip) // to one that is gone, it fails
				}
				honest.ask(t, rawGet()).expect(t, "an honest client", "200")
				return r.metric(t, "petgate_gateway_connections") == 1
			})
		})
	}
}

// slowClients is how many slow clients of a kind there are.
var slowClients = testkit.Size(50, 800)

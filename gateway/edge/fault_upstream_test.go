package edge_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"petgate/shared/testkit"
)

// upstreamTimeout is the deadline of one exchange in these tests; answers may come after slack times that at most.
const (
	upstreamTimeout = 300 * time.Millisecond
	slack           = 5
)

// fault is one way in which an upstream goes wrong, and what the client is told.
type fault struct {
	name   string
	says   string // written when a request has been read
	hangs  bool   // then nothing more, instead of closing
	status int    // of the answer to GET
	code   string // its code; "" = the answer is the upstream's own
	body   string // of such an answer
	twice  bool   // GET may be tried a second time: the connection died before any byte came back
}

// faults is data: each entry differs in what the gateway has to notice.
var faults = []fault{
	{name: "closes before answering", status: 502, code: "upstream_unreachable", twice: true},
	{name: "hangs before answering", hangs: true, status: 504, code: "upstream_timeout"},
	{name: "closes in the status line", says: "HTTP/1.1 20", status: 502, code: "upstream_unreachable"},
	{name: "hangs in the status line", says: "HTTP/1.1 20", hangs: true, status: 504, code: "upstream_timeout"},
	{name: "closes in the fields", says: "HTTP/1.1 200 OK\r\nX: y\r\n", status: 502, code: "upstream_unreachable"},
	{
		name: "hangs in the fields", says: "HTTP/1.1 200 OK\r\nX: y\r\n", hangs: true, status: 504,
		code: "upstream_timeout",
	},
	{name: "closes before content", says: says("Content-Length: 5"), status: 502, code: "upstream_unreachable"},
	{name: "closes in content", says: says("Content-Length: 5") + "evi", status: 502, code: "upstream_unreachable"},
	{
		name: "hangs in content", says: says("Content-Length: 5") + "evi", hangs: true, status: 504,
		code: "upstream_timeout",
	},
	{
		name: "closes in a chunk", says: says("Transfer-Encoding: chunked") + "5\r\nevi", status: 502,
		code: "upstream_unreachable",
	},
	{
		name: "closes between chunks", says: says("Transfer-Encoding: chunked") + "4\r\nevil\r\n", status: 502,
		code: "upstream_unreachable",
	},
	{
		name: "hangs between chunks", says: says("Transfer-Encoding: chunked") + "4\r\nevil\r\n", hangs: true,
		status: 504, code: "upstream_timeout",
	},

	{name: "garbage", says: "\x00\x01\x02\xff evil\r\n\r\n", status: 502, code: "upstream_unreachable"},
	{name: "greets as SSH", says: "SSH-2.0-OpenSSH_9.9\r\n", status: 502, code: "upstream_unreachable"},
	{name: "greets as SSH and waits", says: "SSH-2.0-OpenSSH_9.9\r\n", hangs: true, status: 502, code: "upstream_unreachable"},
	{name: "speaks HTTP/2", says: "\x00\x00\x06\x04\x00\x00\x00\x00\x00", hangs: true, status: 502, code: "upstream_unreachable"},
	{
		name: "204 with a length", says: "HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\n", hangs: true, status: 502,
		code: "upstream_unreachable",
	},
	{
		name: "204 with chunks", says: "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nevil\r\n0\r\n\r\n",
		status: 502, code: "upstream_unreachable",
	},
	{name: "alerts as TLS", says: "\x15\x03\x01\x00\x02\x02\x46", status: 502, code: "upstream_unreachable"},
	{name: "content without a head", says: "<html>evil</html>", status: 502, code: "upstream_unreachable"},
	{
		name: "status that is no number", says: "HTTP/1.1 abc OK\r\nContent-Length: 0\r\n\r\n", status: 502,
		code: "upstream_unreachable",
	},
	{
		name: "status of two digits", says: "HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n", status: 502,
		code: "upstream_unreachable",
	},
	{
		name: "status of four digits", says: "HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n", status: 502,
		code: "upstream_unreachable",
	},
	{
		name: "status below 100", says: "HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n", status: 502,
		code: "upstream_unreachable",
	},
	{
		name: "status past 599", says: "HTTP/1.1 999 OK\r\nContent-Length: 0\r\n\r\n", status: 502,
		code: "upstream_unreachable",
	},
	{
		name: "version of HTTP/2", says: "HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n", status: 502,
		code: "upstream_unreachable",
	},
	{name: "field without a colon", says: says("evil", "Content-Length: 0"), status: 502, code: "upstream_unreachable"},
	{name: "NUL in a field", says: says("X: ev\x00il", "Content-Length: 0"), status: 502, code: "upstream_unreachable"},
	{
		name: "length and chunks", says: says("Content-Length: 5", "Transfer-Encoding: chunked") + helloChunks,
		status: 502, code: "upstream_unreachable",
	},
	{
		name: "chunks and length", says: says("Transfer-Encoding: chunked", "Content-Length: 5") + helloChunks,
		status: 502, code: "upstream_unreachable",
	},
	{
		name: "two lengths", says: says("Content-Length: 2", "Content-Length: 5") + "hello", status: 502,
		code: "upstream_unreachable",
	},
	{name: "list of lengths", says: says("Content-Length: 2, 5") + "hello", status: 502, code: "upstream_unreachable"},
	{name: "negative length", says: says("Content-Length: -1") + "hello", status: 502, code: "upstream_unreachable"},
	{
		name: "length of letters", says: says("Content-Length: five") + "hello", status: 502,
		code: "upstream_unreachable",
	},
	{
		name: "length past int64", says: says("Content-Length: 9223372036854775808") + "hello", status: 502,
		code: "upstream_unreachable",
	},
	{
		name: "coding it was not asked for", says: says("Transfer-Encoding: gzip, chunked") + helloChunks,
		status: 502, code: "upstream_unreachable",
	},
	{
		name: "chunk size of letters", says: says("Transfer-Encoding: chunked") + "evil\r\n", status: 502,
		code: "upstream_unreachable",
	},
	{
		name: "no line end after a chunk", says: says("Transfer-Encoding: chunked") + "2\r\nevil0\r\n\r\n",
		status: 502, code: "upstream_unreachable",
	},
	{name: "fields of 1 MB", says: says("X: " + repeat("a", 1<<20)), status: 502, code: "upstream_unreachable"},
	{name: "ten thousand fields", says: says(numbered("X-", 10000)...), status: 502, code: "upstream_unreachable"},
	{
		name: "announces too much content", says: says("Content-Length: 1073741824") + "evil", status: 502,
		code: "upstream_unreachable",
	},
	{
		name:   "chunks of too much content",
		says:   says("Transfer-Encoding: chunked") + repeat("1000\r\n"+repeat("a", 4096)+"\r\n", 3*answerMax/4096),
		status: 502, code: "upstream_unreachable",
	},
	{
		name: "too much content until it closes", says: says() + repeat("a", 3*answerMax), status: 502,
		code: "upstream_unreachable",
	},
	{
		name: "switches protocols unasked",
		says: "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: evil\r\n\r\n", status: 502,
		code: "upstream_unreachable",
	},
	{
		name: "interim responses without end",
		says: repeat("HTTP/1.1 103 Early Hints\r\nLink: evil\r\n\r\n", 10000), status: 502,
		code: "upstream_unreachable",
	},
	{
		name: "interim response and nothing after it", says: "HTTP/1.1 100 Continue\r\n\r\n", status: 502,
		code: "upstream_unreachable",
	},

	{
		name: "one interim response", says: "HTTP/1.1 100 Continue\r\n\r\n" + says("Content-Length: 2") + "[]",
		status: 200, body: "[]",
	},
	{
		name: "early hints",
		says: "HTTP/1.1 103 Early Hints\r\nLink: evil\r\n\r\n" + says("Content-Length: 2") + "[]", status: 200,
		body: "[]",
	},
	{name: "content until it closes", says: says() + "[]", status: 200, body: "[]"},
	{name: "HTTP/1.0", says: "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n[]", status: 200, body: "[]"},
	{
		name: "chunks", says: says("Transfer-Encoding: chunked") + "1\r\n[\r\n1\r\n]\r\n0\r\n\r\n", status: 200,
		body: "[]",
	},
	{
		name:   "chunks and a trailer",
		says:   says("Transfer-Encoding: chunked", "Trailer: X-Sum") + "2\r\n[]\r\n0\r\nX-Sum: evil\r\n\r\n",
		status: 200, body: "[]",
	},
	{name: "more than its length", says: says("Content-Length: 2") + "[]evil", status: 200, body: "[]"},
	{
		name: "a second response", says: says("Content-Length: 2") + "[]" + says("Content-Length: 4") + "evil",
		hangs: true, status: 200, body: "[]",
	},
	{name: "our own fields", says: says("Content-Length: 2",
		"X-RateLimit-Limit: evil", "X-RateLimit-Remaining: evil", "X-RateLimit-Reset: evil",
		"RateLimit: evil", "RateLimit-Policy: evil", "X-Request-Id: evil") + "[]", status: 200, body: "[]"},
	{name: "hop-by-hop fields", says: says("Content-Length: 2",
		"Connection: X-Hop", "X-Hop: evil", "Keep-Alive: evil", "Proxy-Connection: evil",
		"Upgrade: evil", "TE: evil", "Trailer: X-evil", "Proxy-Authenticate: evil") + "[]", status: 200, body: "[]"},
	{
		name: "its own 503",
		says: "HTTP/1.1 503 Busy\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", status: 503,
		body: "{}",
	},
	{
		name: "its own 429",
		says: "HTTP/1.1 429 Slow\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", status: 429,
		body: "{}",
	},
}

// answerMax is how much content an upstream may answer in these tests.
const answerMax = 256 << 10

func says(fields ...string) string {
	return rawBare(append([]string{"HTTP/1.1 200 OK", "Content-Type: application/json"}, fields...)...)
}

func (f fault) answer(c net.Conn, _ upstreamRequest) bool {
	_, _ = io.WriteString(c, f.says)
	if f.hangs {
		_, _ = c.Read(make([]byte, 1)) // until the gateway gives the connection up
	}
	return false
}

func newFaultRig(t testing.TB, change func(*setup)) *rig {
	return newRig(t, func(s *setup) {
		s.UpstreamTimeout, s.ReadTimeout, s.UpstreamBodyBytesMax = upstreamTimeout, patience, answerMax
		if change != nil {
			change(s)
		}
	})
}

// TestUpstreamFaults lets an upstream go wrong in every way, for GET and for POST, and asks twice more after each.
func TestUpstreamFaults(t *testing.T) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			r := newFaultRig(t, nil)
			client := r.dial(t)
			for _, request := range []string{rawGet(), rawPost("Content-Length: 5") + "hello", rawGet()} {
				r.upstream.Answer(f.answer)
				began := time.Now()
				got := client.ask(t, request)
				if took := time.Since(began); took > slack*upstreamTimeout {
					t.Errorf("the answer took %v", took)
				}
				isPost := strings.HasPrefix(request, "POST")
				seen := len(r.upstream.Seen())
				if isPost && seen != 1 || seen < 1 || seen > 2 || seen == 2 && !f.twice {
					t.Errorf("the upstream saw it %d times", seen)
				}
				checkFault(t, f, got)
				r.checkOwnAnswers(t, client)
			}
			if charged := r.admitted.Load(); charged != 9 {
				t.Errorf("9 requests were charged %d", charged)
			}
		})
	}
}

func checkFault(t *testing.T, f fault, got answer) {
	t.Helper()
	if f.code != "" {
		if err := got.refusal(); err != nil {
			t.Error(err)
		}
	}
	if got.Status != f.status || got.Code != f.code || f.code == "" && got.Body != f.body {
		t.Errorf("got %d %s %q, want %d %s %q", got.Status, got.Code, got.Body, f.status, f.code, f.body)
	}
	if strings.Contains(strings.ToLower(fmt.Sprint(got)), "evil") {
		t.Errorf("the client is told %v", got)
	}
}

// checkOwnAnswers asks twice of an upstream that is well again: each exchange gets the answer that was meant for it.
func (r *rig) checkOwnAnswers(t *testing.T, client *rawClient) {
	t.Helper()
	r.upstream.Answer(echo)
	for _, target := range []string{"/v1/pets?first", "/v1/pets?second"} {
		if got := client.ask(t, rawTarget(target)); got.Status != 200 || got.Body != `"`+target+`"` {
			t.Errorf("the next exchange got %d %q, want %s", got.Status, got.Body, target)
		}
	}
	r.upstream.Seen()
}

// echo answers with the target.
func echo(c net.Conn, r upstreamRequest) bool {
	body := `"` + r.Target + `"`
	_, err := io.WriteString(c, says("Content-Length: "+decimal(len(body)))+body)
	return err == nil
}

// rawClient asks on one connection as long as it lasts, and then on another.
type rawClient struct {
	address string
	conn    net.Conn
	in      *bufio.Reader
}

func (r *rig) dial(t testing.TB) *rawClient {
	c := &rawClient{address: r.address}
	t.Cleanup(c.close)
	return c
}

func (c *rawClient) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn, c.in = nil, nil
	}
}

// ask writes a request and reads its answer.
func (c *rawClient) ask(t testing.TB, request string) answer {
	t.Helper()
	a, err := c.try(request)
	if err != nil {
		t.Fatalf("%q: %v", clip(request), err)
	}
	return a
}

func (c *rawClient) try(request string) (a answer, err error) {
	if c.conn == nil {
		if c.conn, err = net.Dial("tcp", c.address); err != nil {
			return a, err
		}
	}
	if c.in == nil {
		c.in = bufio.NewReader(c.conn)
	}
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return a, err
	}
	if _, err := io.WriteString(c.conn, request); err != nil {
		c.close()
		return a, err
	}
	toHead := no
	if strings.HasPrefix(request, "HEAD ") {
		toHead = yes
	}
	if a, err = readAnswer(c.in, toHead); err != nil || a.Closes {
		c.close()
	}
	return a, err
}

// An upstream that is not there is told from one that is, at once, for any method.
func TestUpstreamRefusesConnections(t *testing.T) {
	nowhere := fmt.Sprintf("http://127.0.0.1:%d", testkit.FreePort(t))
	for _, upstream := range []string{nowhere, "unix:" + filepath.Join(t.TempDir(), "none")} {
		r := newFaultRig(t, func(s *setup) { s.Upstreams = []string{upstream} })
		client := r.dial(t)
		for _, request := range []string{rawGet(), rawPost("Content-Length: 5") + "hello"} {
			began := time.Now()
			got := client.ask(t, request)
			if err := got.refusal(); err != nil || got.Status != 502 || got.Code != "upstream_unreachable" {
				t.Errorf("%s: %d %s %v", upstream, got.Status, got.Code, err)
			}
			if took := time.Since(began); took > slack*upstreamTimeout {
				t.Errorf("the answer took %v", took)
			}
		}
	}
}

// A connection may close while it idles in the pool. A GET then has a second attempt; a POST has none, because nobody can
// tell whether the first was carried out.
func TestConnectionClosedWhenReused(t *testing.T) {
	r := newFaultRig(t, nil)
	client := r.dial(t)
	for range 20 {
		r.upstream.Answer(nil)
		client.ask(t, rawGet())
		r.upstream.Seen()
		r.upstream.Answer(func(c net.Conn, request upstreamRequest) bool {
			return request.Nth == 1 && echo(c, request) // a request on a used connection is read and dropped
		})
		if got := client.ask(t, rawTarget("/v1/pets?again")); got.Status != 200 || got.Body != `"/v1/pets?again"` {
			t.Fatalf("GET got %d %q", got.Status, got.Body)
		}
		if seen := r.upstream.Seen(); len(seen) != 2 {
			t.Fatalf("GET was seen %q", texts(seen))
		}
		r.upstream.Answer(func(net.Conn, upstreamRequest) bool { return false })
		got := client.ask(t, rawPost("Content-Length: 5")+"hello")
		if err := got.refusal(); err != nil || got.Code != "upstream_unreachable" {
			t.Fatalf("POST got %d %v", got.Status, err)
		}
		if seen := r.upstream.Seen(); len(seen) != 1 {
			t.Fatalf("POST was seen %q", texts(seen))
		}
	}
}

// An upstream may refuse a large body before it has all of it, and read no more: its response counts.
func TestUpstreamRefusesEarly(t *testing.T) {
	const size = 8 << 20 // more than the kernel keeps for a reader that does not read
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			defer c.Close() // when the test ends: until then it reads no more
			_, _ = c.Read(make([]byte, 1024))
			_, _ = io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
		}
	}()
	r := newRig(t, func(s *setup) {
		s.Upstreams, s.BodyBytesMax, s.UpstreamTimeout, s.ReadTimeout = []string{"http://" + ln.Addr().String()}, size, 2*patience, patience
	})
	client := r.dial(t)
	for range 2 {
		began := time.Now()
		got := client.ask(t, rawPost("Content-Length: "+decimal(size))+repeat("a", size))
		if got.Status != 413 || got.Body != "{}" {
			t.Errorf("got %d %s", got.Status, got.Body)
		}
		if took := time.Since(began); took > patience {
			t.Errorf("the response took %v", took)
		}
	}
}

// Content that trickles is held to the one deadline of its exchange.
func TestUpstreamTrickles(t *testing.T) {
	r := newFaultRig(t, nil)
	r.upstream.Answer(func(c net.Conn, _ upstreamRequest) bool {
		_, err := io.WriteString(c, says("Content-Length: 100000"))
		for err == nil {
			time.Sleep(upstreamTimeout / 20) // the pace is the fault
			_, err = io.WriteString(c, "a")
		}
		return false
	})
	began := time.Now()
	got := r.dial(t).ask(t, rawGet())
	if err := got.refusal(); err != nil || got.Code != "upstream_timeout" {
		t.Errorf("got %d %s %v", got.Status, got.Code, err)
	}
	if took := time.Since(began); took > slack*upstreamTimeout {
		t.Errorf("the answer took %v", took)
	}
}

// One of two upstreams dies: after a few failures nobody notices; when it is back, it works again.
func TestUpstreamIsEjectedAndRecovers(t *testing.T) {
	well := newRawUpstream(t, "unix", filepath.Join(t.TempDir(), "well"))
	ill := newRawUpstream(t, "tcp", "127.0.0.1:0")
	r := newFaultRig(t, func(s *setup) {
		s.Upstreams = []string{ill.URL(), well.URL()}
	})
	client := r.dial(t)
	ask := func(n int) (failed int) {
		for range n {
			if got := client.ask(t, rawPost("Content-Length: 5")+"hello"); got.Status != 201 {
				failed++
			}
		}
		return failed
	}
	if failed := ask(100); failed != 0 || len(ill.Seen()) == 0 || len(well.Seen()) == 0 {
		t.Fatalf("%d of 100 failed, or one upstream had no work", failed)
	}
	ill.Answer(func(net.Conn, upstreamRequest) bool { return false })
	failed := ask(100)
	if failed == 0 || failed > 6 {
		t.Errorf("%d of 100 failed while one upstream was dead, want 1 to 6", failed)
	}
	ill.Answer(nil)
	ill.Seen()
	testkit.Eventually(t, patience, "work for the upstream that is well again", func() bool {
		return ask(1) == 0 && len(ill.Seen()) > 0
	})
	if failed := ask(100); failed != 0 {
		t.Errorf("%d of 100 failed after the recovery", failed)
	}
}

// One of two upstreams says that it closes, as one does that is about to end: it is left alone before it does.
func TestUpstreamThatClosesIsLeftAlone(t *testing.T) {
	stays := newRawUpstream(t, "tcp", "127.0.0.1:0")
	leaves := newRawUpstream(t, "tcp", "127.0.0.1:0")
	leaves.Answer(func(c net.Conn, _ upstreamRequest) bool {
		_, _ = io.WriteString(c, says("Connection: close", "Content-Length: 2")+"[]")
		return false
	})
	r := newFaultRig(t, func(s *setup) { s.Upstreams = []string{leaves.URL(), stays.URL()} })
	client := r.dial(t)
	testkit.Eventually(t, patience, "an answer of the one that closes", func() bool {
		client.ask(t, rawGet())
		return len(leaves.Seen()) > 0
	})
	ask := func(n int) {
		for range n {
			if got := client.ask(t, rawGet()); got.Status != 200 {
				t.Fatalf("got %d", got.Status)
			}
		}
	}
	ask(50)
	if seen := leaves.Seen(); len(seen) > 0 {
		t.Errorf("the upstream that closes got %d more requests", len(seen))
	}

	// It is back, and the other one begins to leave: the one that is back gets the work, although it was left alone till now.
	stays.Answer(func(c net.Conn, _ upstreamRequest) bool {
		_, _ = io.WriteString(c, says("Connection: close", "Content-Length: 2")+"[]")
		return false
	})
	leaves.Answer(nil)
	testkit.Eventually(t, patience, "work for the upstream that is back", func() bool {
		ask(1)
		return len(leaves.Seen()) > 0
	})
	stays.Seen()
	ask(50)
	if seen := stays.Seen(); len(seen) > 0 {
		t.Errorf("the other upstream that closes got %d more requests", len(seen))
	}
}

// All upstreams are ejected: the gateway goes on trying rather than refusing for good.
func TestLastUpstreamRecovers(t *testing.T) {
	r := newFaultRig(t, nil)
	client := r.dial(t)
	r.upstream.Answer(func(net.Conn, upstreamRequest) bool { return false })
	for range 20 {
		if got := client.ask(t, rawGet()); got.Status != 502 && got.Status != 503 {
			t.Fatalf("got %d", got.Status)
		}
	}
	r.upstream.Answer(nil)
	testkit.Eventually(t, patience, "an answer from the upstream that is well again", func() bool {
		return client.ask(t, rawGet()).Status == 200
	})
}

// Many clients at once, an upstream that closes, hangs and answers by turns: everyone gets an answer of his own.
func TestNoCrossTalk(t *testing.T) {
	r := newFaultRig(t, nil)
	r.upstream.Answer(func(c net.Conn, request upstreamRequest) bool {
		switch request.Nth % 5 {
		case 3:
			_, _ = io.WriteString(c, says("Content-Length: 100")+"evil")
			return false
		case 4:
			_, _ = io.WriteString(c, says("Content-Length: 2")+"[]"+says("Content-Length: 4")+"evil")
			return true
		}
		return echo(c, request)
	})
	results := make(chan error)
	for i := range 16 {
		client := r.dial(t)
		go func() {
			for n := range 50 {
				target := fmt.Sprintf("/v1/pets?client=%d&n=%d", i, n)
				got, err := client.try(rawTarget(target))
				isOwn := got.Body == `"`+target+`"` || got.Body == "[]" || got.Status == 502 || got.Status == 504
				if err == nil && !isOwn {
					err = fmt.Errorf("%s got %d %q", target, got.Status, got.Body)
				}
				if err != nil {
					results <- err
					return
				}
			}
			results <- nil
		}()
	}
	for range 16 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// An upstream that gives up new connections at once, before a request is sent or after, is dialed once a request and
// counted as failed; the next one takes the request.
func TestUpstreamThatHangsUp(t *testing.T) {
	for name, greet := range map[string]string{"silently": "", "after a word": "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			var dials atomic.Int64
			go func() {
				for {
					c, err := ln.Accept()
					if err != nil {
						return
					}
					dials.Add(1)
					_, _ = io.WriteString(c, greet)
					_ = c.Close()
				}
			}()
			r := newRig(t, func(s *setup) { s.Upstreams = []string{"http://" + ln.Addr().String()} })
			const requests = 200
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					client := r.dial(t)
					for range requests / 20 {
						if a, err := client.try(rawGet()); err != nil || a.Status < 500 && greet == "" {
							t.Errorf("%d %s, %v", a.Status, a.Body, err)
						}
					}
				})
			}
			all.Wait()
			if n := dials.Load(); n > requests {
				t.Errorf("%d dials for %d requests", n, requests)
			}
			if log := r.log.String(); !strings.Contains(log, "an upstream fails") || !strings.Contains(log, ln.Addr().String()) {
				t.Errorf("the log says %q", log)
			}
		})
	}
}

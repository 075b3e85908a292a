package edge_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// streamed is the length of bodies that pass through in parts.
const streamed = 300_000

// chunksOf is content in chunks of the given size, without the last one.
func chunksOf(content string, size int) string {
	var b strings.Builder
	for part := range slices.Chunk([]byte(content), size) {
		fmt.Fprintf(&b, "%x\r\n%s\r\n", len(part), part)
	}
	return b.String()
}

// Each row is what a client sends. Long bodies arrive whole or not at all, each request has one
// verdict, and what was refused after its beginning had gone to the upstream is charged and not
// seen.
func TestOracleOfLongBodies(t *testing.T) {
	t.Parallel()
	content := namedBody("content ", streamed)
	inChunks := chunksOf(content, 7001)
	f := func(name, sent, want string, seen, charged int) {
		t.Helper()
		r := newRig(t, streams)
		c, got := r.say(t, ""), ""
		go func(to *net.TCPConn) { // refused before all of it was sent: the answers are checked
			_, _ = io.WriteString(to, sent)
			_ = to.CloseWrite()
		}(c.conn.(*net.TCPConn))
		for a, err := readAnswer(c.in, no); err == nil; a, err = readAnswer(c.in, no) {
			got += fmt.Sprintf(" %d", a.Status)
		}
		got = strings.TrimSpace(got)
		if got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
		requests := r.upstream.Seen()
		for _, q := range requests {
			if q.Method == "POST" && q.Body != content {
				t.Errorf("%s: the upstream saw %d other bytes", name, len(q.Body))
			}
		}
		if len(requests) != seen || r.admitted.Load() != int64(charged) {
			t.Errorf("%s: the upstream saw %q, and %d were charged", name, texts(requests), r.admitted.Load())
		}
	}
	length := rawPost("Content-Length: " + decimal(streamed))
	chunked := rawPost("Transfer-Encoding: chunked")
	f("length", length+content+rawGet(), "201 200", 2, 2)
	f("chunks", chunked+inChunks+"0\r\n\r\n"+rawGet(), "201 200", 2, 2)
	f("chunks and a trailer", chunked+inChunks+"0\r\nX-Sum: 1\r\n\r\n"+rawGet(), "201 200", 2, 2)
	f("two in a row", length+content+chunked+inChunks+"0\r\n\r\n", "201 201", 2, 2)
	f("fewer bytes than announced", length+content[1:], "400", 0, 1)
	f("no last chunk", chunked+inChunks, "400", 0, 1)
	f("no line after the last chunk", chunked+inChunks+"0\r\n", "400", 0, 1)
	f("a wrong chunk size", chunked+inChunks+"5x\r\nhello\r\n0\r\n\r\n"+rawGet(), "400", 0, 1)
	f("a chunk longer than its size", chunked+inChunks+"2\r\nhello\r\n0\r\n\r\n"+rawGet(), "400", 0, 1)
	f("a bare LF", chunked+inChunks+"5\nhello\r\n0\r\n\r\n"+rawGet(), "400", 0, 1)
	f("a trailer that routes", chunked+inChunks+"0\r\nHost: evil\r\n\r\n"+rawGet(), "400", 0, 1)
	f("more than the maximum", chunked+repeat(inChunks, 5)+"0\r\n\r\n", "413", 0, 1)
	f("more than the maximum is announced", rawPost("Content-Length: "+decimal(5*streamed)), "413", 0, 0)
}

// eventRig has an upstream that sends what the test says, and tells when its connection has ended.
func eventRig(t *testing.T, changes ...func(*setup)) (r *rig, say chan string, ended chan bool) {
	say, ended = make(chan string), make(chan bool, 1)
	r = newRig(t, append([]func(*setup){streams}, changes...)...)
	r.upstream.Answer(func(c net.Conn, _ upstreamRequest) bool {
		_, _ = io.WriteString(c, events("Transfer-Encoding: chunked"))
		go func() {
			_, _ = c.Read(make([]byte, 1))
			_ = c.Close()
			ended <- true
		}()
		for text := range say {
			if _, err := io.WriteString(c, text); err != nil {
				break
			}
		}
		return false
	})
	t.Cleanup(func() { close(say) })
	return r, say, ended
}

// open reads the head of a stream of events.
func openEvents(t *testing.T, r *rig) (*rawClient, *http.Response) {
	t.Helper()
	c := r.say(t, rawGet())
	got, err := http.ReadResponse(c.in, nil)
	if err != nil || got.StatusCode != 200 {
		t.Fatalf("got %v %v", got, err)
	}
	return c, got
}

// Each event arrives before the upstream sends the next one. The end of the stream is the end of
// the response, and the connection stays.
func TestEventsPassAtOnce(t *testing.T) {
	t.Parallel()
	r, say, _ := eventRig(t)
	c, got := openEvents(t, r)
	for n := range 20 {
		event := fmt.Sprintf("data: %d\n\n", n)
		say <- chunksOf(event, 100)
		b := make([]byte, len(event))
		if _, err := io.ReadFull(got.Body, b); err != nil || string(b) != event {
			t.Fatalf("got %q %v, want %q", b, err, event)
		}
	}
	say <- "0\r\n\r\n"
	if rest, err := io.ReadAll(got.Body); err != nil || len(rest) > 0 {
		t.Errorf("at the end: %q %v", rest, err)
	}
	r.upstream.Answer(nil)
	c.ask(t, rawGet()).expect(t, "the next request", "200")
}

// A stream of events ends when its client goes away, when the gateway shuts down, and when its key
// ends: with the next event, or soon if none comes. A ban does not end it.
func TestEventsEnd(t *testing.T) {
	t.Parallel()
	for name, cutting := range map[string]func(*rig, *rawClient){
		"client":   func(_ *rig, c *rawClient) { c.close() },
		"shutdown": func(r *rig, _ *rawClient) { _ = r.edge.Shutdown(t.Context()) },
	} {
		r, _, ended := eventRig(t)
		c, _ := openEvents(t, r)
		cutting(r, c)
		receive(t, ended, name+": the upstream's connection ends")
	}
	for name, c := range changes {
		var isChanged atomic.Bool
		r, say, _ := eventRig(t, func(s *setup) { s.lookup = c.lookup(&isChanged) })
		_, got := openEvents(t, r)
		isChanged.Store(true)
		if name != "revoked" { // that stream is silent
			say <- chunksOf("data: 1\n\n", 100)
		}
		n, err := got.Body.Read(make([]byte, 100))
		if isWhole := n > 0 && err == nil; isWhole != (name == "banned") {
			t.Errorf("%s: %d bytes, %v", name, n, err)
		}
	}
}

// A panic while a body passes costs its own exchange: a 500, or the end of a response that has
// begun. It is logged, and others are served.
func TestPanicWhileALongBodyPasses(t *testing.T) {
	t.Parallel()
	for _, hasBegun := range []bool{false, true} {
		var isBroken atomic.Bool
		r := newRig(t, streams, func(s *setup) {
			if hasBegun {
				s.Upstreams = []string{echoing(t)}
			}
			s.fails = func(dependency string) {
				if dependency == "lookup" && isBroken.Load() {
					panic("planted")
				}
			}
		})
		c := r.say(t, rawPost("Content-Length: "+decimal(streamed))+repeat("a", streamed/2))
		if hasBegun {
			must.Get[any](t)(c.in.Peek(1000))
		} else {
			testkit.Eventually(t, patience, "the upstream gets the beginning",
				func() bool { return r.upstream.Dials() == 1 })
		}
		isBroken.Store(true)
		c.send(repeat("a", streamed/2))
		if got, err := readAnswer(c.in, no); hasBegun && err == nil ||
			!hasBegun && (err != nil || got.Code != "internal") {
			t.Errorf("the response has begun: %t: got %d %s %v", hasBegun, got.Status, got.Code, err)
		}
		testkit.Eventually(t, patience, "the panic is logged",
			func() bool { return strings.Contains(r.log.String(), "planted") })
		isBroken.Store(false)
		r.ask(t, rawKey()).expect(t, "afterwards", "401 missing_api_key")
	}
}

// A shutdown does not wait for a stream of events that is never silent.
func TestShutdownEndsBusyEvents(t *testing.T) {
	t.Parallel()
	r := newRig(t, streams)
	r.upstream.Answer(func(c net.Conn, _ upstreamRequest) bool {
		_, err := io.WriteString(c, events("Transfer-Encoding: chunked"))
		for ; err == nil; _, err = io.WriteString(c, chunksOf("data: 1\n\n", 100)) {
			time.Sleep(10 * time.Millisecond) // the pace of the events
		}
		return false
	})
	openEvents(t, r)
	ctx, end := context.WithTimeout(t.Context(), patience)
	defer end()
	must.Do(t, r.edge.Shutdown(ctx))
}

// A client of HTTP/1.0, which keeps its connection, gets a long response until the end of the
// connection, and a reset if it breaks off.
func TestLongResponseToAnOldClient(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]string{"whole": "0\r\n\r\n", "broken": ""} {
		r := newRig(t, streams)
		r.upstream.Answer(func(c net.Conn, _ upstreamRequest) bool {
			_, _ = io.WriteString(c, says("Transfer-Encoding: chunked")+chunksOf(repeat("a", streamed), 10_000)+end)
			return false
		})
		all, err := io.ReadAll(r.say(t, rawStart("GET /v1/pets HTTP/1.0", "Connection: keep-alive")).in)
		isWhole := err == nil && strings.HasSuffix(string(all), repeat("a", streamed))
		must.Equal(t, isWhole, name == "whole", "%s: %d bytes, %v", name, len(all), err)
	}
}

// A client that does not read stops its upstream, and is cut in the time that a client has to take
// a response.
func TestSlowReaderStopsItsUpstream(t *testing.T) {
	t.Parallel()
	r := newRig(t, streams, func(s *setup) { s.WriteTimeout = time.Second })
	sent := make(chan int, 1)
	r.upstream.Answer(func(c net.Conn, _ upstreamRequest) bool {
		_, err := io.WriteString(c, says("Content-Length: 1073741824"))
		total := 0
		for part := make([]byte, 64<<10); err == nil; total += len(part) {
			_, err = c.Write(part)
		}
		sent <- total
		return false
	})
	r.say(t, rawGet())
	const kernels = 32 << 20 // what sockets may hold
	if total := receive(t, sent, "the client is cut"); total > kernels {
		t.Errorf("the upstream sent %d bytes to a client that reads nothing", total)
	}
	testkit.Eventually(t, patience, "nothing held",
		func() bool { return r.metric(t, "petgate_gateway_connections") == 0 })
}

// echoing returns an upstream that sends its response while it reads the request.
func echoing(t *testing.T) (url string) {
	t.Helper()
	service := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		_, _ = io.Copy(w, r.Body)
	}))
	service.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	service.Start()
	t.Cleanup(func() {
		service.CloseClientConnections()
		service.Close()
	})
	return service.URL
}

// An upstream may send its long response while it reads the request.
func TestBothBodiesPassAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, streams, func(s *setup) { s.Upstreams, s.BodyBytesMax = []string{echoing(t)}, 16<<20 })
	body := namedBody("echo ", 16<<20)
	c := r.say(t, rawPost("Content-Length: "+decimal(len(body))))
	c.send(body)
	got := must.Get[*http.Response](t)(http.ReadResponse(c.in, nil))
	if all, err := io.ReadAll(got.Body); err != nil || string(all) != body {
		t.Errorf("%d bytes came back, %v", len(all), err)
	}
}

// bodyClients read large bodies at the same time.
var bodyClients = testkit.Size(3, 12)

// edgeSizes are lengths of bodies at which the gateway takes a buffer of another kind, one byte
// less and one more.
var edgeSizes = []int{
	1, 8<<10 - 1, 8 << 10, 64<<10 - 1, 64 << 10, 64<<10 + 1,
	128<<10 - 1, 128 << 10, 128<<10 + 1, 256<<10 - 1, 256 << 10, 256<<10 + 1,
}

// framings are the ways in which the upstream of these tests ends a body. There is one more: cut,
// in the middle.
var framings = []string{"length", "chunks", "close"}

// askBody is a request for a body that no other request gets.
func askBody(framing string, size, client, n int) (request, body string) {
	name := fmt.Sprintf("%s-%d-%d-%d", framing, size, client, n)
	return rawGet("X-Request-Id: " + name), namedBody(name, size)
}

func namedBody(name string, size int) string { return repeat(name+" ", size/len(name)+1)[:size] }

// answerBody answers with the body that the request's ID names.
func answerBody(c net.Conn, r upstreamRequest) bool {
	name := strings.Join(r.Fields["x-request-id"], "")
	framing, rest, _ := strings.Cut(name, "-")
	var size int
	_, _ = fmt.Sscanf(rest, "%d-", &size)
	body := namedBody(name, size)
	head := "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	switch framing {
	case "length", "cut":
		head += "Content-Length: " + decimal(size) + "\r\n\r\n"
		if framing == "cut" {
			body = body[:size/2]
		} else if r.Nth%2 == 0 {
			body += says("Content-Length: 4") + "evil" // a second response, which is nobody's
		}
	case "chunks":
		head += "Transfer-Encoding: chunked\r\n\r\n"
		first, rest := body[:(size+2)/3], body[(size+2)/3:]
		body = hexadecimal(len(first)) + "\r\n" + first + "\r\n"
		if rest != "" {
			body += hexadecimal(len(rest)) + "\r\n" + rest + "\r\n"
		}
		body += "0\r\n\r\n"
	case "close":
		head += "\r\n"
	}
	_, err := io.WriteString(c, head+body)
	return err == nil && framing != "close" && framing != "cut"
}

// Every client gets exactly its own bodies, whether it sends its requests at once or one after the
// other, also if others go away in the middle of a body, and if the upstream ends others there or
// sends more than it was asked for.
func TestLargeBodiesAreExact(t *testing.T) {
	t.Parallel()
	// A client waits while others read.
	r := newRig(t, func(s *setup) { s.UpstreamConnsMax, s.WriteTimeout = 128, time.Minute })
	r.upstream.Answer(answerBody)
	var running sync.WaitGroup
	for n := range bodyClients {
		client, early := r.say(t, ""), r.say(t, "")
		running.Go(func() {
			var requests, bodies []string
			for i, size := range edgeSizes {
				request, body := askBody(framings[(i+n)%len(framings)], size, n, i)
				requests, bodies = append(requests, request), append(bodies, body)
			}
			if isPipelined := n%2 == 0; isPipelined {
				requests = append([]string{strings.Join(requests, "")}, make([]string, len(bodies)-1)...)
			}
			for i, want := range bodies {
				// Each has its time: a slow machine needs longer than that for all of them.
				got, err := client.try(requests[i])
				if err != nil || got.Status != 200 || got.Body != want {
					t.Errorf("client %d: got %d with %d bytes, %q, %v, want %d bytes, %q", n, got.Status, len(got.Body),
						clip(got.Body), err, len(want), clip(want))
					return
				}
			}
			request, _ := askBody([]string{"length", "cut"}[n%2], 250_000, n, 0)
			_, _ = io.WriteString(early.conn, request)
			if _, err := io.ReadFull(early.in, make([]byte, 1000)); err != nil {
				t.Errorf("client %d: %v", n, err)
			}
			early.close()
		})
	}
	running.Wait()
}

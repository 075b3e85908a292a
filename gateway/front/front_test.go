package front

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"petgate/gateway/http1"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

// rig is a server that answers with the method and the target.
type rig struct {
	*Server
	address string
	log     testkit.Output
}

// newRig serves until the test ends. change may be nil.
func newRig(t testing.TB, change func(*Config)) *rig {
	t.Helper()
	limits := http1.Limits{
		TargetBytesMax: 1000, FieldBytesMax: 1000, FieldsMax: 10, BodyBytesMax: 1 << 20, BodyStepBytes: 1000,
		Heads: http1.NewBudget(1 << 20), Bodies: http1.NewBudget(1 << 20),
	}
	r := &rig{}
	cfg := Config{
		HTTP: http1.Settings{
			Limits:   limits,
			Timeouts: http1.Timeouts{Read: patience, Write: patience, Idle: patience},
			Buffers:  http1.NewBuffers(&limits),
		},
		ConnectionsMax: 100, Handler: echo,
		Log: slog.New(slog.NewTextHandler(&r.log, nil)), Metrics: prometheus.NewRegistry(),
	}
	if change != nil {
		change(&cfg)
	}
	ln := must.Get[net.Listener](t)(net.Listen("tcp", ":0")) // for IPv4 and IPv6
	r.Server, r.address = New(cfg), fmt.Sprintf("127.0.0.1:%d", ln.Addr().(*net.TCPAddr).Port)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := r.Serve(ln); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := r.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		serving.Wait()
		must.Equal(t, limits.Bodies.Used()+limits.Heads.Used(), 0, "bytes that are not given back")
	})
	return r
}

// echo reads the rest of the body, and answers with the method, the target and the length of the
// body.
func echo(c *Call) {
	if c.Err == nil && !c.Body.IsComplete() {
		c.Err = c.Conn.ReadBody(&c.Request, &c.Body, 1<<20)
	}
	if peer := c.Conn.Peer.String(); peer != "127.0.0.1" {
		panic("the peer is " + peer)
	}
	c.Response.Status = http.StatusOK
	c.Response.Body = fmt.Appendf(nil, "%s %s %d", c.Request.Method, c.Request.Target, len(c.Body.Bytes))
	if c.Err != nil {
		c.Response.Status, c.Response.Body = http.StatusBadRequest, []byte(c.Err.Error())
	}
	c.MadeAt = time.Now()
}

// client is a connection to the server.
type client struct {
	net.Conn
	in *bufio.Reader
}

func (r *rig) dial(t *testing.T) *client {
	t.Helper()
	c := must.Get[net.Conn](t)(net.Dial("tcp", r.address))
	t.Cleanup(func() { _ = c.Close() })
	must.Do(t, c.SetDeadline(time.Now().Add(patience)))
	return &client{c, bufio.NewReader(c)}
}

// read reads the response to a method.
func (c *client) read(method string) (got *http.Response, body string, err error) {
	got, err = http.ReadResponse(c.in, &http.Request{Method: method})
	if err != nil {
		return nil, "", err
	}
	text, err := io.ReadAll(got.Body)
	return got, string(text), err
}

// ask sends a request and reads its response.
func (c *client) ask(request string) (got *http.Response, body string, err error) {
	if _, err := io.WriteString(c, request); err != nil {
		return nil, "", err
	}
	method, _, _ := strings.Cut(request, " ")
	return c.read(method)
}

func get(lines ...string) string {
	return strings.Join(append([]string{"GET /a?b HTTP/1.1", "Host: a"}, lines...), "\r\n") + "\r\n\r\n"
}

func post(lines ...string) string { return strings.Replace(get(lines...), "GET", "POST", 1) }

// What a connection does after a response, and what a response to HEAD has. The corpus of package
// edge has more.
func TestResponses(t *testing.T) {
	r := newRig(t, nil)
	for request, want := range map[string]string{
		get():                                    "10 bytes: GET /a?b 0",
		get("Connection: close"):                 "10 bytes, close: GET /a?b 0",
		strings.Replace(get(), "GET", "HEAD", 1): "11 bytes: ",
		post("Content-Length: 2") + "{}":         "11 bytes: POST /a?b 2",
		strings.Replace(get(), "1.1", "1.0", 1):  "10 bytes, close: GET /a?b 0",

		strings.Replace(get("Connection: keep-alive"), "1.1", "1.0", 1): "10 bytes, keep-alive: GET /a?b 0",
	} {
		c := r.dial(t)
		got, body, err := c.ask(request)
		if err != nil {
			t.Fatalf("%q: %v", request, err)
		}
		text := fmt.Sprintf("%d bytes", got.ContentLength)
		if field := got.Header.Get("Connection"); field != "" {
			text += ", " + field
		} else if got.Close {
			text += ", close"
		}
		must.Equal(t, text+": "+body, want, "%q", request)
		if _, _, err := c.ask(get()); (err == nil) != !got.Close {
			t.Errorf("%q: the next request: %v", request, err)
		}
	}
}

// A request that has begun to arrive when the server is shut down is still read and answered. A
// connection between two requests ends at once, and a new one is waited for.
func TestShutdownWaitsForWhatHasBegun(t *testing.T) {
	r := newRig(t, nil)
	sending, idle, fresh := r.dial(t), r.dial(t), r.dial(t)
	for _, c := range []*client{sending, idle} {
		must.First[*http.Response](t)(c.ask(get()))
	}
	must.Get[int](t)(io.WriteString(sending, post("Content-Length: 2", "Expect: 100-continue")))
	if line, err := sending.in.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("%q, %v", line, err)
	}
	testkit.Eventually(t, patience, "three connections", func() bool { return r.held.Load() == 3 })
	over, end := context.WithCancel(t.Context())
	end()
	must.Equal(t, r.Shutdown(over), context.Canceled, "a shutdown without time")
	ended := make(chan error, 1)
	go func() { ended <- r.Shutdown(t.Context()) }()
	if n, err := idle.in.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the idle connection: %d bytes, %v", n, err)
	}
	if got, _, err := fresh.ask(get()); err != nil || !got.Close {
		t.Errorf("the new connection: %v, %v", got, err)
	}
	_, _ = sending.in.Discard(len("\r\n"))
	if got, body, err := sending.ask("{}"); err != nil || !got.Close || body != "POST /a?b 2" {
		t.Errorf("what had begun: %v %s, %v", got, body, err)
	}
	must.Do(t, <-ended)
}

// Clients that send requests ahead, again and again, lose no response to a shutdown: each gets
// whole responses, and then the end of the connection. What came after the last one is not served.
func TestShutdownCutsNoPipeline(t *testing.T) {
	const rounds, clients, ahead = 20, 12, 5
	for range rounds {
		r := newRig(t, nil)
		var reading, started sync.WaitGroup
		for range clients {
			c := r.dial(t)
			started.Add(1)
			reading.Go(func() {
				defer c.Close()
				for n := 0; ; n++ {
					if n%ahead == 0 {
						_, _ = io.WriteString(c, strings.Repeat(get(), ahead)) // fails if the server has ended it
					}
					if _, err := c.in.Peek(1); err == io.EOF {
						return
					}
					if _, _, err := c.read(http.MethodGet); err != nil {
						t.Errorf("after %d responses: %v", n, err)
						return
					}
					if n == 0 {
						started.Done()
					}
				}
			})
		}
		started.Wait()
		must.Do(t, r.Shutdown(t.Context()))
		reading.Wait()
	}
}

// A client that does not begin the TLS handshake is disconnected after the read timeout, also if
// its connection is above the maximum and would only get a refusal.
func TestSilentHandshake(t *testing.T) {
	certified := httptest.NewTLSServer(nil)
	certified.Close()
	r := newRig(t, func(c *Config) {
		c.TLS, c.ConnectionsMax = &tls.Config{Certificates: certified.TLS.Certificates}, 1
		c.HTTP.Timeouts.Read = 500 * time.Millisecond
	})
	for i, c := range []*client{r.dial(t), r.dial(t)} {
		if _, err := io.Copy(io.Discard, c); os.IsTimeout(err) {
			t.Errorf("connection %d is held for a client that says nothing", i)
		}
	}
}

// A response, 100 (Continue), and the last response of a connection have the whole write timeout,
// also after a silence that is longer than that. A server that stops for longer than the write
// timeout loses a response, so a few tries are allowed.
func TestWriteAfterSilence(t *testing.T) {
	const timeout = 50 * time.Millisecond
	for name, c := range map[string]struct {
		request, want string
		drains        bool
	}{
		"continue":             {post("Expect: 100-continue", "Content-Length: 5"), "HTTP/1.1 100 Continue\r\n", false},
		"the client closes":    {get("Connection: close"), "HTTP/1.1 200 OK\r\n", false},
		"malformed":            {"GET /a\x01 HTTP/1.1\r\n\r\n", "HTTP/1.1 400 Bad Request\r\n", false},
		"the server drains":    {get(), "HTTP/1.1 200 OK\r\n", true},
		"one more of the same": {get(), "HTTP/1.1 200 OK\r\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Eventually(t, patience, "the response", func() bool {
				r := newRig(t, func(c *Config) { c.HTTP.Timeouts.Write = timeout })
				client := r.dial(t)
				if _, _, err := client.ask(get()); err != nil {
					return false
				}
				time.Sleep(3 * timeout) // the silence is the test
				if c.drains {
					r.Drain()
				}
				_, _ = io.WriteString(client, c.request)
				line, _ := client.in.ReadString('\n')
				return line == c.want
			})
		})
	}
}

// A connection whose client still sends something after the last response lingers: a reset could
// reach the client before it has read the response.
func TestRestAfterTheLastResponse(t *testing.T) {
	r := newRig(t, nil)
	for request, rest := range map[string]string{
		"GET / HTTP/2.0\r\n\r\n": strings.Repeat("a", 40_000), // nothing after it is parsed
		// An old client ends a body with a line end.
		strings.Replace(post("Content-Length: 2"), "1.1", "1.0", 1) + "{}": "\r\n",
	} {
		try := func() error {
			c := r.dial(t)
			if _, _, err := c.ask(request); err != nil {
				return err
			}
			if n, err := c.in.Read(make([]byte, 1)); err != io.EOF {
				return fmt.Errorf("after the response: %d bytes, %w", n, err)
			}
			for _, part := range []string{rest[:1], rest[1:]} { // a reset that the first part causes fails the second
				if _, err := io.WriteString(c, part); err != nil {
					return fmt.Errorf("the rest: %w", err)
				}
			}
			return nil
		}
		const short = "a try that takes less than half of the second for which the server lingers"
		testkit.Eventually(t, patience, short, func() bool {
			began := time.Now()
			err := try()
			if err != nil && time.Since(began) < time.Second/2 {
				t.Fatalf("%q: %v", request, err)
			}
			return err == nil
		})
	}
}

// Connections that linger after a refusal take no place from others, also if they are more than the
// connections that may be held.
func TestLingeringTakesNoPlace(t *testing.T) {
	const most = 10
	r := newRig(t, func(c *Config) { c.ConnectionsMax = most })
	testkit.Eventually(t, patience, "a client that is served while others linger", func() bool {
		for range 2 * most {
			must.First[*http.Response](t)(r.dial(t).ask("GET / HTTP/2.0\r\n\r\n"))
		}
		got, _, err := r.dial(t).ask(get())
		return err == nil && got.StatusCode == http.StatusOK && r.http.Lingering.Used() > most
	})
}

// Past the connections that get a refusal, connections are closed without a response, and take no
// place.
func TestTooManyToRefuse(t *testing.T) {
	r := newRig(t, nil)
	others := int64(r.cfg.ConnectionsMax + RefusedMax)
	r.held.Add(others)
	defer r.held.Add(1 - others)
	for range 2 {
		if got, err := r.dial(t).in.Peek(1); err != io.EOF {
			t.Errorf("past the bound: %q, %v", got, err)
		}
	}
	r.held.Add(-1)
	if got, body, err := r.dial(t).ask(get()); err != nil || got.StatusCode != http.StatusBadRequest ||
		body != errTooManyConns.Error() {
		t.Errorf("within the bound: %q, %v", body, err)
	}
	must.Equal(t, testutil.ToFloat64(r.shed), 2, "connections that are counted")
}

// A panic ends its connection, and nothing else. The memory for the body is given back.
func TestPanicEndsItsConnection(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Handler = func(c *Call) {
			if string(c.Request.Method) == http.MethodPost {
				panic("planted")
			}
			echo(c)
		}
	})
	for range 3 {
		if _, _, err := r.dial(t).ask(post("Content-Length: 8000") + strings.Repeat("a", 8000)); err == nil {
			t.Error("a panic is answered")
		}
	}
	if _, _, err := r.dial(t).ask(get()); err != nil || !strings.Contains(r.log.String(), "planted") {
		t.Errorf("afterwards: %v; the log has %s", err, &r.log)
	}
}

package upstream

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"petgate/gateway/http1"
	"petgate/shared/core/id"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// patience is how long a test waits for something that must happen, and the time that an exchange
// may take.
const patience = time.Minute

const (
	ok        = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"
	closing   = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n[]"
	forbidden = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\n{}"
	missing   = "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}"
	failing   = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\n{}"
	hang      = "hang" // no response, and the connection stays
	dead      = ""     // no response, and the connection ends
)

// instance is an upstream that gives one answer to every request.
type instance struct {
	ln net.Listener

	mu       sync.Mutex
	answer   func(nth int) string // nth counts the requests of the connection, from 1
	conns    []net.Conn
	requests int
}

func newInstance(t *testing.T, answers ...string) *instance {
	ln, _ := listen(t)
	s := &instance{ln: ln}
	s.answerWith(answers...)
	t.Cleanup(s.hangUp)
	serve(t, ln, s.serve)
	return s
}

// serve serves connections until the test ends, and closes each afterwards.
func serve(t *testing.T, ln net.Listener, f func(net.Conn)) {
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				f(c)
			}()
		}
	}()
}

func listen(t *testing.T) (ln net.Listener, url string) {
	t.Helper()
	ln = must.Get[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	return ln, "http://" + ln.Addr().String()
}

// answerWith sets the answers to the first, second and so on request of a connection. The last one
// is for all further requests.
func (s *instance) answerWith(answers ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = func(nth int) string { return answers[min(nth, len(answers))-1] }
}

func (s *instance) serve(c net.Conn) {
	s.mu.Lock()
	s.conns = append(s.conns, c)
	s.mu.Unlock()
	in := bufio.NewReader(c)
	for nth := 1; ; nth++ {
		request, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, request.Body)
		s.mu.Lock()
		s.requests++
		answer := s.answer(nth)
		s.mu.Unlock()
		if answer == hang {
			continue
		}
		_, _ = io.WriteString(c, answer)
		if answer != ok && answer != forbidden {
			return
		}
	}
}

func (s *instance) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		_ = c.Close()
	}
}

// seen returns how many connections and requests there were, and resets the requests.
func (s *instance) seen() (dials, requests int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dials, requests = len(s.conns), s.requests
	s.requests = 0
	return dials, requests
}

func newPool(t *testing.T, log io.Writer, change func(*Config), instances ...*instance) *Pool {
	cfg := Config{
		Timeout: patience, DialTimeout: patience, IdleTimeout: time.Minute, ConnsMax: 4, UpstreamConnsPerTenant: 2,
		HeaderBytesMax: 4096, BodyBytesMax: 4096,
		Log: slog.New(slog.NewJSONHandler(log, nil)),
	}
	for _, s := range instances {
		cfg.URLs = append(cfg.URLs, "http://"+s.ln.Addr().String())
	}
	if change != nil {
		change(&cfg)
	}
	p := must.Get[*Pool](t)(New(cfg))
	t.Cleanup(p.CloseIdle)
	return p
}

// get is the source of a request without a body.
type get struct{}

func (get) Head(host string) []byte { return []byte("GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n") }
func (get) More() ([]byte, error)   { panic("there is no body") }
func (get) Stop()                   {}

func (p *Pool) ask(tenant byte, mayRepeat bool) error {
	r := &Request{Tenant: id.Tenant{tenant}, Source: get{}, MayRepeat: mayRepeat, At: time.Now()}
	if err := p.Enter(r); err != nil {
		return err
	}
	defer r.Leave()
	return p.Send(r, &http1.Response{})
}

// Three requests to one instance: how the last one ends, and how many connections and requests the
// instance saw.
func TestSend(t *testing.T) {
	f := func(name string, mayRepeat bool, wantErr error, wantDials, wantRequests int, answers ...string) {
		t.Helper()
		s := newInstance(t, answers...)
		p := newPool(t, io.Discard, nil, s)
		var err error
		for range 3 {
			err = p.ask(1, mayRepeat)
		}
		if stats := p.Stats(time.Now())[0]; stats.Open != stats.Idle || stats.Open > 1 {
			t.Errorf("%s: between requests: %+v", name, stats)
		}
		dials, requests := s.seen()
		if !errors.Is(err, wantErr) || dials != wantDials || requests != wantRequests {
			t.Errorf("%s: %v, %d dials, %d requests", name, err, dials, requests)
		}
	}
	f("connections are used again", false, nil, 1, 3, ok)
	f("unless the instance says that it closes them", false, nil, 3, 3, closing)
	f("a response without an end", false, ErrBroken, 3, 3, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n[]")
	f("the instance does not accept the gateway", false, ErrRefused, 1, 3, forbidden)
	f("a new connection dies: no second attempt", true, ErrBroken, 3, 3, dead)
	f("a used connection dies: a GET has a second attempt", true, nil, 3, 5, ok, dead)
	f("a used connection dies: a POST has none", false, nil, 2, 3, ok, dead)
}

// The error says whether an instance may have carried out the request, also if a second attempt
// sent nothing or failed.
func TestErrorSaysWhetherItWasSent(t *testing.T) {
	f := func(name string, mayRepeat, isDown bool, want error, answers ...string) {
		t.Helper()
		s := newInstance(t, ok)
		p := newPool(t, io.Discard, nil, s)
		must.Do(t, p.ask(1, true))
		// The next request is the second one of its connection, or the first one of a new one.
		s.answerWith(answers...)
		if isDown {
			_ = s.ln.Close()
		}
		if len(answers) == 1 {
			p.CloseIdle()
		}
		if err := p.ask(1, mayRepeat); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	f("no connection", false, true, ErrUnreachable, ok)
	f("a used connection dies", false, false, ErrBroken, ok, dead)
	f("a used connection dies, then no connection", true, true, ErrBroken, ok, dead)
	f("a used connection dies, then the instance fails", true, false, ErrBroken, failing, dead)
	f("a used connection dies, then the instance finds nothing", true, false, nil, missing, dead)
	f("the instance fails", true, false, nil, failing)
}

// A used connection that dies is counted and logged if the request is not repeated. It does not
// eject the instance.
func TestDeadConnectionIsCounted(t *testing.T) {
	f := func(name string, mayRepeat bool, want int64) {
		t.Helper()
		var log testkit.Output
		s := newInstance(t, ok, dead)
		p := newPool(t, &log, nil, s)
		for range failuresToEject {
			p.CloseIdle()
			must.Do(t, p.ask(1, true))
			_ = p.ask(1, mayRepeat)
		}
		if stats := p.Stats(time.Now())[0]; stats.Failures != want || stats.Ejections != 0 ||
			p.retries.Load() != failuresToEject-want {
			t.Errorf("%s: %+v, want %d failures, no ejection, and a second attempt of all others", name, stats, want)
		}
		if n := strings.Count(log.String(), s.ln.Addr().String()); (n > 0) != (want > 0) || n == failuresToEject {
			t.Errorf("%s: the log says %q", name, log.String())
		}
	}
	f("not repeated", false, failuresToEject)
	f("repeated", true, 0)
}

// Idle connections are closed if the instance has closed them or if they have been idle for too
// long, before they carry a request, and also when no further request comes.
func TestIdleConnectionsAreSwept(t *testing.T) {
	for name, change := range map[string]func(*Config){"closed": nil, "old": func(c *Config) { c.IdleTimeout = 0 }} {
		s := newInstance(t, ok)
		p := newPool(t, io.Discard, change, s)
		must.Do(t, p.ask(1, true))
		must.Do(t, p.ask(1, true))
		dials, _ := s.seen()
		must.Equal(t, dials == 1, change == nil, "%s: two requests over one connection", name)
		h := p.hosts[0]
		idle := func() int { h.mu.Lock(); defer h.mu.Unlock(); return len(h.idle) }
		use := func(before time.Duration) {
			h.mu.Lock()
			defer h.mu.Unlock()
			for _, c := range h.idle { // the sweep may have been faster
				c.usedAt = time.Now().Add(-before)
			}
		}
		if change == nil {
			use(sweepEvery)
			h.closeStale()
			must.Equal(t, idle(), 1, "good connections")
			s.hangUp()
		}
		use(-sweepEvery / 2) // the next sweep leaves it to the one after it
		testkit.Eventually(t, patience, "no idle connection", func() bool { return idle() == 0 })
		must.Do(t, p.ask(1, false))
		s.hangUp()
		testkit.Eventually(t, patience, "no idle connection again", func() bool { return idle() == 0 })
		must.Do(t, p.ask(1, false))
	}
}

// A request that the only instance that is in has no slot for goes to one that is out.
func TestFullInstance(t *testing.T) {
	in, out := newInstance(t, hang), newInstance(t, ok)
	p := newPool(t, io.Discard, nil, in, out)
	p.judge(p.hosts[1], errIll)
	done := make(chan error)
	for n := range byte(4) {
		go func() { done <- p.ask(n/2, false) }()
	}
	testkit.Eventually(t, patience, "no free slot", func() bool {
		p.holdings.Lock()
		defer p.holdings.Unlock()
		return p.hosts[0].inFlight == 4
	})
	must.Do(t, p.ask(3, false))
	p.judge(p.hosts[1], nil)
	p.hosts[1].eject()
	must.Equal(t, p.ask(3, false), ErrOverloaded, "the other instance has failed requests")
	p.judge(p.hosts[1], errIll)
	out.answerWith(forbidden)
	must.Equal(t, p.ask(3, false), ErrRefused, "the other instance does not accept the gateway")
	_ = out.ln.Close()
	p.CloseIdle()
	if err := p.ask(3, false); !errors.Is(err, ErrUnreachable) {
		t.Errorf("the other instance is gone: %v", err)
	}
	in.hangUp()
	for range 4 {
		<-done
	}
}

// An instance that fails, refuses the gateway or says that it closes gets no requests for a while,
// if there is another one. Then it gets them again.
func TestEjection(t *testing.T) {
	for name, c := range map[string]struct {
		answer    string
		failedMax int // while requests go to both
	}{"fails": {dead, 2 * failuresToEject}, "closes": {closing, 0}, "refuses": {forbidden, 0}} {
		var log testkit.Output
		ill, well := newInstance(t, ok), newInstance(t, ok)
		p := newPool(t, &log, nil, ill, well)
		ask := func(n int) (failed int) {
			for range n {
				if p.ask(1, false) != nil {
					failed++
				}
			}
			return failed
		}
		must.Equal(t, ask(50), 0, "%s: failed although both are well", name)
		ill.answerWith(c.answer)
		if failed := ask(50); failed > c.failedMax {
			t.Errorf("%s: %d of 50 failed, want at most %d", name, failed, c.failedMax)
		}
		problems := strings.Join(p.Problems(), "\n")
		must.Equal(t, strings.Contains(problems, ill.ln.Addr().String()+" responded with 401"), name == "refuses",
			"%s: %s", name, problems)
		must.Equal(t, strings.Contains(problems, "the last requests to "+ill.ln.Addr().String()+" failed"),
			name == "fails", "%s: %s", name, problems)
		stats := p.Stats(time.Now())
		isOut := func(s Stats) bool { return s.IsEjected && s.Ejections > 0 }
		if !isOut(stats[0]) || stats[0].Failures > 0 != (name != "closes") ||
			stats[1].IsEjected || stats[1].Ejections+stats[1].Failures != 0 {
			t.Errorf("%s: the first was not ejected, or the second was: %+v", name, stats)
		}
		if says := log.String(); name != "closes" && (!strings.Contains(says, ill.ln.Addr().String()) ||
			strings.Contains(says, "GATEWAY_UPSTREAM_SECRET") != (name == "refuses")) {
			t.Errorf("%s: the log says %s", name, says)
		}
		ill.seen()
		ask(20)
		if _, requests := ill.seen(); requests > 0 {
			t.Errorf("%s: it got %d requests after it was ejected", name, requests)
		}

		ill.answerWith(ok)
		p.hosts[0].outUntil.Store(1) // its time is over
		if failed := ask(50); failed > 1 {
			t.Errorf("%s: %d of 50 failed after the recovery", name, failed)
		}
		if _, requests := ill.seen(); requests == 0 || len(p.Problems()) > 0 {
			t.Errorf("%s: it got %d requests, and %q", name, requests, p.Problems())
		}

		ill.answerWith(dead)
		well.answerWith(dead)
		ask(50)
		well.answerWith(ok)
		testkit.Eventually(t, patience, "a response although all are ejected", func() bool { return ask(1) == 0 })
		p.judge(p.hosts[0], errIll)
		if problems := p.Problems(); len(problems) != 1 ||
			!strings.HasPrefix(problems[0], "the check of "+ill.ln.Addr().String()) {
			t.Errorf("%s: requests and checks fail: %q", name, problems)
		}
	}
}

// Failures that are not in a row eject no instance.
func TestRareFailures(t *testing.T) {
	in := newInstance(t, ok)
	p := newPool(t, io.Discard, nil, in)
	for range 2 * failuresToEject {
		for _, answer := range []string{forbidden, ok} {
			in.answerWith(answer)
			must.Equal(t, p.ask(1, false) == nil, answer == ok, "%q", answer)
		}
	}
	stats := p.Stats(time.Now())[0]
	must.Equal(t, fmt.Sprint(stats.Failures, stats.Ejections), fmt.Sprint(2*failuresToEject, 0),
		"failures and ejections")
	in.answerWith(forbidden)
	for range 2*failuresToEject - 1 { // the count begins again after an ejection
		must.Equal(t, p.ask(1, false), ErrRefused, "an instance that does not accept the gateway")
	}
	must.Equal(t, p.Stats(time.Now())[0].Ejections, 1, "ejections after %d failures", 2*failuresToEject-1)
}

// An instance that closes each new connection is dialed at most once for each request.
func TestInstanceThatHangsUp(t *testing.T) {
	for _, greeting := range []string{"", "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"} {
		ln, url := listen(t)
		dials := make(chan bool, 1000)
		serve(t, ln, func(c net.Conn) {
			dials <- true
			_, _ = io.WriteString(c, greeting)
		})
		p := newPool(t, io.Discard, func(c *Config) { c.URLs = []string{url} })
		const requests = 50
		for range requests {
			if err := p.ask(1, true); err == nil && greeting == "" {
				t.Error("a response came from nowhere")
			}
		}
		must.Equal(t, len(dials) <= requests, true, "at most a dial for each request")
	}
}

// halfSent is the source of a request whose body breaks off after the response has begun.
type halfSent struct{ begun chan struct{} }

func (halfSent) Head(host string) []byte {
	return []byte("POST / HTTP/1.1\r\nHost: " + host + "\r\nTransfer-Encoding: chunked\r\n\r\n")
}

func (h halfSent) More() ([]byte, error) {
	<-h.begun
	return nil, io.ErrUnexpectedEOF
}
func (halfSent) Stop() {}

// A client that breaks off its request does not count as a failure of the instance, whether that is
// responding already or not.
func TestBrokenRequestEjectsNoInstance(t *testing.T) {
	ln, url := listen(t)
	var responds atomic.Bool
	serve(t, ln, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1024))
		if responds.Load() {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"+strings.Repeat("a", 100_000))
		}
		<-t.Context().Done()
	})
	p := newPool(t, io.Discard, func(c *Config) { c.URLs, c.BodyBytesMax = []string{url}, 1<<20 })
	for n := range 2 * failuresToEject {
		source, want := halfSent{make(chan struct{})}, ErrBroken
		responds.Store(n%2 == 0)
		if n%2 != 0 {
			want = ErrCut
			close(source.begun)
		}
		r := &Request{Source: source, Body: []byte("a"), HasMore: true, IsChunked: true, At: time.Now()}
		must.Do(t, p.Enter(r))
		var response http1.Response
		err := p.Send(r, &response)
		if want == ErrBroken {
			close(source.begun)
		}
		for err == nil {
			err = r.Next(&response, patience)
		}
		if !errors.Is(err, want) || want == ErrBroken && response.Body.IsComplete() {
			t.Errorf("the response ended with %v", err)
		}
		r.Leave()
	}
	if s := p.Stats(time.Now())[0]; s.Failures != 0 || s.Ejections != 0 {
		t.Errorf("%+v", s)
	}
}

// A connection is kept after a long response, unless the instance says that it is the last one. One
// that breaks off counts as a failure.
func TestConnectionAfterALongResponse(t *testing.T) {
	for fields, kept := range map[string]int64{
		"Content-Length: 100000": 1, "Connection: close\r\nContent-Length: 100000": 0, "Content-Length: 100001": 0,
	} {
		s := newInstance(t, "HTTP/1.1 200 OK\r\n"+fields+"\r\n\r\n"+strings.Repeat("a", 100_000))
		p := newPool(t, io.Discard, func(c *Config) { c.BodyBytesMax = 1 << 20 }, s)
		r := &Request{Source: get{}, At: time.Now()}
		must.Do(t, p.Enter(r))
		var response http1.Response
		must.Do(t, p.Send(r, &response))
		var err error
		for err == nil && !response.Body.IsComplete() {
			err = r.Next(&response, patience)
		}
		r.Leave()
		want := fmt.Sprint(nil, kept, kept, 0)
		if fields == "Content-Length: 100001" {
			want = fmt.Sprint(ErrBroken, 0, 0, 1)
		}
		stats := p.Stats(time.Now())[0]
		must.Equal(t, fmt.Sprint(err, stats.Idle, stats.Open, stats.Failures), want,
			"error, connections and failures after %q", fields)
	}
}

// twoParts is the source of a long body that ends after one further part.
type twoParts struct {
	halfSent
	isSent bool
}

func (s *twoParts) More() ([]byte, error) {
	if s.isSent {
		return nil, io.EOF
	}
	s.isSent = true
	return []byte("b"), nil
}

// An instance that responds with 401 to a long body has got parts of it, so no other instance gets
// the rest.
func TestLongBodyIsSentToOneInstance(t *testing.T) {
	refusing, other := newInstance(t, forbidden), newInstance(t, ok)
	p := newPool(t, io.Discard, nil, refusing, other)
	p.hosts[1].inFlight++ // so the refusing one is chosen
	r := &Request{Source: &twoParts{}, Body: []byte("a"), HasMore: true, IsChunked: true, At: time.Now()}
	must.Do(t, p.Enter(r))
	defer r.Leave()
	must.Equal(t, p.Send(r, &http1.Response{}), ErrRefused, "the response")
	_, first := refusing.seen()
	if _, second := other.seen(); first != 1 || second != 0 {
		t.Errorf("%d requests arrived, and %d at the other instance", first, second)
	}
}

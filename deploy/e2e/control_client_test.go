package e2e_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"petgate/shared/testkit/fleet"
)

// answerWithin bounds the wait for an answer on a machine that is busy with other tests.
const answerWithin = 20 * time.Second

// unlimited is a tenant whose quotas no test uses up.
var unlimited = []string{"--minute", "1000000000", "--day", "1000000000"}

// fixedUpstream answers every request with an empty list, whatever becomes of databases.
func fixedUpstream(t testing.TB) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "[]")
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// client is one keep-alive connection, made when it is first needed.
type client struct {
	addr string
	conn net.Conn
	in   *bufio.Reader
}

func newClient(p *fleet.Program) *client { return &client{addr: strings.TrimPrefix(p.URL, "http://")} }

// answer is what a client reads of one response.
type answer struct {
	status int
	head   string // the lines of the header section
	body   string
}

// code is the refusal's, empty for an answer that is none.
func (a answer) code() string {
	_, rest, _ := strings.Cut(a.body, `"code":"`)
	code, _, _ := strings.Cut(rest, `"`)
	return code
}

func (a answer) header(name string) string {
	for line := range strings.Lines(a.head) {
		if field, value, ok := strings.Cut(line, ": "); ok && strings.EqualFold(field, name) {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// get lists pets with a token and further header lines.
func (c *client) get(token string, lines ...string) (answer, error) {
	return c.do("GET /v1/pets", token, lines...)
}

func (c *client) do(methodAndTarget, token string, lines ...string) (answer, error) {
	var request strings.Builder
	fmt.Fprintf(&request, "%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n", methodAndTarget, c.addr, token)
	for _, line := range lines {
		request.WriteString(line + "\r\n")
	}
	request.WriteString("\r\n")
	err := c.write(request.String())
	if err != nil {
		return answer{}, err
	}
	a, err := c.read()
	if err != nil || strings.EqualFold(a.header("Connection"), "close") {
		c.close()
	}
	return a, err
}

func (c *client) write(text string) error {
	if c.conn == nil {
		conn, err := net.DialTimeout("tcp", c.addr, answerWithin)
		if err != nil {
			return err
		}
		c.conn, c.in = conn, bufio.NewReaderSize(conn, 64<<10)
	}
	_ = c.conn.SetDeadline(time.Now().Add(answerWithin))
	if _, err := io.WriteString(c.conn, text); err != nil {
		c.close()
		return err
	}
	return nil
}

// read reads a response with a Content-Length, which all of them have.
func (c *client) read() (answer, error) {
	var a answer
	var head strings.Builder
	length := -1
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return a, err
		}
		if len(line) == len("\r\n") {
			break
		}
		head.Write(line)
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			length, _ = strconv.Atoi(string(bytes.TrimSpace(value)))
		}
	}
	a.head = head.String()
	if _, err := fmt.Sscanf(a.head, "HTTP/1.1 %d ", &a.status); err != nil || length < 0 {
		return a, fmt.Errorf("no response to keep a connection for: %q", a.head)
	}
	body := make([]byte, length)
	_, err := io.ReadFull(c.in, body)
	a.body = string(body)
	return a, err
}

func (c *client) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// ask sends one request on a connection of its own; a request without an answer ends the test.
func ask(t testing.TB, p *fleet.Program, token string, lines ...string) answer {
	t.Helper()
	c := newClient(p)
	defer c.close()
	a, err := c.get(token, lines...)
	if err != nil {
		t.Fatalf("%s: %v", p.ID, err)
	}
	return a
}

// want asks, and fails the test unless the answer has the status and, for a refusal, the code.
func want(t testing.TB, p *fleet.Program, token string, status int, code string, lines ...string) answer {
	t.Helper()
	a := ask(t, p, token, lines...)
	if a.status != status || a.code() != code {
		t.Errorf("%s answers %d %q, want %d %q", p.ID, a.status, a.code(), status, code)
	}
	return a
}

// load asks gateways again and again, each from several connections, until it is stopped. The test may change the token
// meanwhile.
type load struct {
	token atomic.Pointer[string]

	stop    chan struct{}
	workers sync.WaitGroup

	mu    sync.Mutex
	shots []shot
}

// shot is one request of a load.
type shot struct {
	gateway *fleet.Program
	token   string
	started time.Time
	status  int // 0: no answer
	err     error
}

// startLoad begins with one request every so often from each of the connections to each gateway.
func startLoad(t testing.TB, token string, connections int, every time.Duration, gateways ...*fleet.Program) *load {
	t.Helper()
	l := &load{stop: make(chan struct{})}
	l.token.Store(&token)
	for _, gateway := range gateways {
		for range connections {
			l.workers.Go(func() { l.work(gateway, every) })
		}
	}
	t.Cleanup(func() { l.end() })
	return l
}

func (l *load) work(gateway *fleet.Program, every time.Duration) {
	c := newClient(gateway)
	defer c.close()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
		}
		s := shot{gateway: gateway, token: *l.token.Load(), started: time.Now()}
		a, err := c.get(s.token)
		s.status, s.err = a.status, err
		l.mu.Lock()
		l.shots = append(l.shots, s)
		l.mu.Unlock()
	}
}

// since returns the answered requests with a token that started after an instant, by gateway and status.
func (l *load) since(token string, after time.Time) map[*fleet.Program]map[int]int {
	counts := map[*fleet.Program]map[int]int{}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.shots {
		if s.token == token && s.started.After(after) {
			if counts[s.gateway] == nil {
				counts[s.gateway] = map[int]int{}
			}
			counts[s.gateway][s.status]++
		}
	}
	return counts
}

// take returns and forgets what was shot so far.
func (l *load) take() []shot {
	l.mu.Lock()
	defer l.mu.Unlock()
	shots := l.shots
	l.shots = nil
	return shots
}

// end stops the load, once all that is under way is answered, and returns what was shot.
func (l *load) end() []shot {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.workers.Wait()
	return l.take()
}

package fleet

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ReplyWithin bounds one exchange. It is longer than any timeout of the product, even on a machine
// that is busy with other tests.
const ReplyWithin = time.Minute

// Unlimited are the flags of a tenant whose quotas no test uses up.
var Unlimited = []string{"--plan", "enterprise", "--minute", "1000000000", "--day", "1000000000"}

// FixedUpstream starts an upstream that answers every request with an empty list, and returns its
// URL.
func FixedUpstream(t testing.TB) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "[]")
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// Client is an HTTP/1.1 client with one connection. It connects when it has a request to send, and
// keeps the connection until a reply says otherwise. It sends exactly the bytes that it is given.
//
// It is not net/http's client, which repeats a request if its connection is closed. That would hide
// faults.
type Client struct {
	Addr string      // host:port
	From string      // the address to call from; empty is any
	TLS  *tls.Config // nil is plain TCP
	Conn net.Conn    // nil while there is none

	in *bufio.Reader
}

// Reply is a response that was read to its end, or the failure to get one.
type Reply struct {
	Status int // 0: there was no response
	Header http.Header
	Body   string // without a response: why
	Close  bool   // the response ends the connection

	At   time.Time // when the exchange ended
	Took time.Duration
}

// Connect connects unless there is a connection.
func (c *Client) Connect() error {
	if c.Conn != nil {
		return nil
	}
	dialer := &net.Dialer{Timeout: ReplyWithin}
	if c.From != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(c.From)}
	}
	conn, err := dialer.Dial("tcp", c.Addr)
	if err != nil {
		return err
	}
	if c.TLS != nil {
		conn = tls.Client(conn, c.TLS)
	}
	c.Conn, c.in = conn, bufio.NewReader(conn)
	return nil
}

// Do sends a request and reads its response. If the request cannot be sent completely, Do still
// reads the response: a server may refuse a large request early and close the connection.
func (c *Client) Do(request string) (Reply, error) {
	began := time.Now()
	if err := c.Connect(); err != nil {
		return failed(began, err)
	}
	_ = c.Conn.SetDeadline(began.Add(ReplyWithin))
	_, sendErr := io.WriteString(c.Conn, request)
	reply, err := c.Read()
	reply.At = time.Now()
	reply.Took = reply.At.Sub(began)
	if err != nil && sendErr != nil {
		return failed(began, sendErr)
	}
	return reply, err
}

// Send sends bytes without waiting for a response.
func (c *Client) Send(request string) error {
	if err := c.Connect(); err != nil {
		return err
	}
	_ = c.Conn.SetDeadline(time.Now().Add(ReplyWithin))
	if _, err := io.WriteString(c.Conn, request); err != nil {
		c.Close()
		return err
	}
	return nil
}

// Read reads the next response.
func (c *Client) Read() (Reply, error) {
	response, err := http.ReadResponse(c.in, nil)
	if err != nil {
		c.Close()
		return failed(time.Now(), err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil || response.Close {
		c.Close()
	}
	if err != nil {
		return failed(time.Now(), err)
	}
	return Reply{
		Status: response.StatusCode,
		Header: response.Header,
		Body:   string(body),
		Close:  response.Close,
		At:     time.Now(),
	}, nil
}

func failed(began time.Time, err error) (Reply, error) {
	now := time.Now()
	return Reply{Body: err.Error(), At: now, Took: now.Sub(began)}, err
}

// Must is Do for a request that has to be answered.
func (c *Client) Must(t testing.TB, request string) Reply {
	t.Helper()
	reply, err := c.Do(request)
	if err != nil {
		t.Fatalf("%s did not answer: %v", c.Addr, err)
	}
	return reply
}

// Close closes the connection, if there is one.
func (c *Client) Close() {
	if c.Conn != nil {
		_ = c.Conn.Close()
	}
	c.Conn, c.in = nil, nil
}

// Code is the code of a refusal, empty for any other reply.
func (r Reply) Code() string {
	var body struct{ Code string }
	if r.Status >= 400 {
		_ = json.Unmarshal([]byte(r.Body), &body) // a body that is not JSON has no code
	}
	return body.Code
}

// RetryAfter is the Retry-After field, 0 without one.
func (r Reply) RetryAfter() time.Duration {
	seconds, _ := strconv.Atoi(r.Header.Get("Retry-After"))
	return time.Duration(seconds) * time.Second
}

func (r Reply) String() string { return fmt.Sprintf("%d %s", r.Status, r.Body) }

// Request returns a request with a token, such as Request("GET /v1/pets", token, "", "X-Request-Id:
// 1").
func Request(methodAndTarget, token, body string, fields ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s HTTP/1.1\r\nHost: pets.example\r\nAuthorization: Bearer %s\r\n", methodAndTarget, token)
	for _, field := range fields {
		b.WriteString(field + "\r\n")
	}
	if body != "" {
		fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	b.WriteString("\r\n" + body)
	return b.String()
}

// GetPets returns a request for a short list of pets.
func GetPets(token string, fields ...string) string {
	return Request("GET /v1/pets?limit=1", token, "", fields...)
}

// PostPet returns a request that creates a pet.
func PostPet(token, name string, fields ...string) string {
	return Request("POST /v1/pets", token, fmt.Sprintf(`{"name":%q,"categoryId":1}`, name), fields...)
}

// Client returns a client of the program.
func (p *Program) Client() *Client { return &Client{Addr: p.Addr()} }

// Addr is where the program serves, as host:port.
func (p *Program) Addr() string { return strings.TrimPrefix(p.URL, "http://") }

// idleMax is how long Ask keeps an idle connection: much shorter than a gateway does, which may
// close it as a request arrives.
const idleMax = 20 * time.Second

// Ask lists pets with a token. Concurrent calls use different connections, which later calls use
// again. Without a response the reply's status is 0.
func (p *Program) Ask(token string, fields ...string) Reply {
	c := p.idleClient()
	reply, _ := c.Do(GetPets(token, fields...)) // a failed exchange is a reply with status 0
	c.used = reply.At
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Process == c.of {
		p.idle = append(p.idle, c)
	} else {
		c.Close()
	}
	return reply
}

// idleClient returns a client that no other call uses.
func (p *Program) idleClient() *pooled {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 {
		c := p.idle[n-1]
		p.idle = p.idle[:n-1]
		if time.Since(c.used) > idleMax {
			c.Close()
		}
		return c
	}
	return &pooled{Client: p.Client(), of: p.Process}
}

// MustAsk is Ask for a request that has to be answered.
func (p *Program) MustAsk(t testing.TB, token string, fields ...string) Reply {
	t.Helper()
	reply := p.Ask(token, fields...)
	if reply.Status == 0 {
		t.Fatalf("%s did not answer: %s", p.ID, reply.Body)
	}
	return reply
}

// Want asks, and fails the test unless the reply has the status and, for a refusal, the code.
func (p *Program) Want(t testing.TB, token string, status int, code string, fields ...string) Reply {
	t.Helper()
	reply := p.MustAsk(t, token, fields...)
	if reply.Status != status || reply.Code() != code {
		t.Errorf("%s answers %d %q, want %d %q", p.ID, reply.Status, reply.Code(), status, code)
	}
	return reply
}

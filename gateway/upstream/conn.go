package upstream

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"petgate/gateway/http1"
	"petgate/shared/socket"
)

// conn is a connection to an instance. It belongs to one exchange at a time.
type conn struct {
	net.Conn  // over TLS, if the instance has it
	below     *below
	reader    http1.Reader
	host      *host
	isUsed    bool        // it has carried an exchange
	hasBegun  bool        // part of the current response has arrived
	isStopped atomic.Bool // no more of the current request is sent
	usedAt    time.Time   // when its last exchange began
}

// below is the socket, also of a connection over TLS.
type below struct {
	*socket.Conn
	isProbed bool // Read does not wait
}

// Read reads what has arrived.
func (b *below) Read(p []byte) (int, error) {
	if b.isProbed && b.Check() == nil {
		return 0, os.ErrDeadlineExceeded // package tls takes this as temporary
	}
	return b.Conn.Read(p)
}

// newConn returns a connection over dialed. With TLS, the handshake follows.
func newConn(dialed net.Conn, h *host) *conn {
	c := &conn{below: &below{Conn: socket.New(dialed)}, host: h}
	c.below.Slack = socket.UsualSlack
	c.Conn = c.below.Conn
	if h.tls != nil {
		c.Conn = tls.Client(c.below, h.tls)
	}
	c.reader = http1.NewReader(c, h.pool.cfg.HeaderBytesMax)
	h.open.Add(1)
	return c
}

// Close closes the connection. It is called once. It does not end a TLS connection in form: that
// could wait for the instance.
func (c *conn) Close() error {
	c.host.open.Add(-1)
	return c.below.Close()
}

// Read records that a response has begun.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.hasBegun = c.hasBegun || n > 0
	return n, err
}

// reset prepares c for the next exchange. The last one began at now.
func (c *conn) reset(now time.Time) {
	c.reader.Discard()
	c.hasBegun, c.isUsed, c.usedAt = false, true, now
	c.isStopped.Store(false)
}

// check returns socket.ErrStale if the connection is closed or has data of a response. It does not
// wait. Over TLS, it reads what the instance has sent for the connection itself, such as tickets.
func (c *conn) check() error {
	if c.host.tls == nil {
		return c.below.Check()
	}
	c.below.isProbed = true
	_, err := c.Conn.Read(make([]byte, 1))
	c.below.isProbed = false
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return socket.ErrStale
	}
	return nil
}

// exchange sends a request and reads its response. It sends nothing if the upstream has closed the
// connection, because a POST would be lost. It also sends nothing if the upstream has sent bytes
// without a request, because they would be read as the response. Its error wraps errStale, errDied
// or an error of Send.
func (c *conn) exchange(request *Request, response *http1.Response) error {
	err := c.carry(request, response)
	kind := ErrBroken
	switch {
	case err == nil, errors.Is(err, ErrCut):
		return err
	case errors.Is(err, socket.ErrStale) && c.isUsed:
		kind = errStale
	case errors.Is(err, socket.ErrStale):
		kind = ErrUnreachable
	case isTimeout(err):
		kind = ErrTimeout
	case c.isUsed && !c.hasBegun:
		kind = errDied
	}
	return fmt.Errorf("%w: %w", kind, err)
}

// Why a connection that has served before has no response.
var (
	errStale = errors.New("it had closed the connection") // nothing was sent
	errDied  = errors.New("it closed a used connection")  // without a byte of a response
)

func isTimeout(err error) bool {
	t := net.Error(nil)
	return errors.As(err, &t) && t.Timeout()
}

// carry sends the body while it reads the response: an upstream may respond before it has the whole
// body, and then read no further. That response is valid, but the connection is not used again. If
// the response is long, carry reads its beginning, and both bodies go on.
func (c *conn) carry(request *Request, response *http1.Response) error {
	if err := c.begin(request); err != nil {
		return err
	}
	if len(request.Body) == 0 {
		return c.reader.ReadResponse(response, &c.host.pool.limits, request.IsHead)
	}
	request.sent = make(chan error, 1)
	go func() { request.sent <- c.send(request) }()
	err := c.reader.ReadResponse(response, &c.host.pool.limits, request.IsHead)
	if err == nil && !response.Body.IsComplete() && len(request.sent) == 0 {
		return nil
	}
	return c.endSending(request, response, err)
}

// begin sends the head of a request, unless the connection is closed or has data.
func (c *conn) begin(request *Request) error {
	head := request.Source.Head(c.host.name)
	if len(request.Body) == 0 && c.host.tls == nil {
		return c.below.Ask(head)
	}
	if err := c.check(); err != nil {
		return err
	}
	_, err := c.Write(head)
	return err
}

// endSending ends the sending of the body, of which the rest is not needed. err is why the response
// cannot be read; nil: it was.
func (c *conn) endSending(request *Request, response *http1.Response, err error) error {
	if request.sent == nil {
		return err
	}
	if len(request.sent) == 0 {
		c.isStopped.Store(true)
		_ = c.SetWriteDeadline(time.Unix(1, 0))
		if request.HasMore {
			request.Source.Stop()
		}
	}
	notSent := <-request.sent
	request.sent = nil
	response.IsReusable = response.IsReusable && notSent == nil
	if errors.Is(notSent, ErrCut) {
		return notSent
	}
	return err
}

// send sends the body. If the source of a long one fails, the connection ends before the request
// does, and so does the exchange.
func (c *conn) send(r *Request) error {
	if !r.HasMore {
		_, err := c.Conn.Write(r.Body)
		return err
	}
	to := http1.PartWriter{To: bufio.NewWriter(c.Conn), IsChunked: r.IsChunked}
	for part := r.Body; ; {
		// Each part may take as long as an exchange, and so may the response after the last one.
		if err := c.SetDeadline(time.Now().Add(c.host.pool.cfg.Timeout)); err != nil {
			return err
		}
		if c.isStopped.Load() {
			return errStopped
		}
		if err := to.Write(part); err != nil {
			return err
		}
		switch next, err := r.Source.More(); {
		case err == io.EOF:
			return to.End()
		case c.isStopped.Load():
			return errStopped
		case err != nil:
			_ = c.below.Close()
			return fmt.Errorf("%w: %w", ErrCut, err)
		default:
			part = next
		}
	}
}

var errStopped = errors.New("upstream: the rest of the body is not needed")

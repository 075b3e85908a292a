package upstream

import (
	"errors"
	"net"
	"time"

	"petgate/gateway/http1"
	"petgate/shared/socket"
)

// conn is a connection to an instance. It belongs to one exchange at a time.
type conn struct {
	*socket.Conn
	reader   http1.Reader
	host     *host
	isUsed   bool      // it has carried an exchange
	hasBegun bool      // part of the current response has arrived
	usedAt   time.Time // when its last exchange began
}

func newConn(dialed net.Conn, h *host) *conn {
	c := &conn{Conn: socket.New(dialed), host: h}
	c.reader = http1.NewReader(c, h.pool.cfg.HeaderBytesMax)
	h.open.Add(1)
	return c
}

// Close closes the connection. It is called once.
func (c *conn) Close() error {
	c.host.open.Add(-1)
	return c.Conn.Close()
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
}

// exchange sends a request and reads its response. It sends nothing if the upstream has closed the connection, because a
// POST would be lost. It also sends nothing if the upstream has sent bytes without a request, because they would be read
// as the response.
func (c *conn) exchange(request *Request, response *http1.Response) (_ outcome, err error) {
	switch err = c.carry(request, response); {
	case err == nil:
		return answered, nil
	case errors.Is(err, socket.ErrStale) && c.isUsed:
		return stale, err
	case errors.Is(err, socket.ErrStale):
		return unconnected, err
	case isTimeout(err):
		return late, err
	case c.isUsed && !c.hasBegun:
		return died, err
	default:
		return broken, err
	}
}

func isTimeout(err error) bool {
	t := net.Error(nil)
	return errors.As(err, &t) && t.Timeout()
}

// carry sends the body while it reads the response: an upstream may respond before it has the whole body, and then read no
// further. That response is valid, but the connection is not used again.
func (c *conn) carry(request *Request, response *http1.Response) error {
	if err := c.Check(); err != nil {
		return err
	}
	if _, err := c.Write(request.Head); err != nil {
		return err
	}
	if len(request.Body) == 0 {
		return c.reader.ReadResponse(response, &c.host.pool.limits, request.IsHead)
	}
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(request.Body)
		sent <- err
	}()
	err := c.reader.ReadResponse(response, &c.host.pool.limits, request.IsHead)
	_ = c.SetWriteDeadline(time.Now()) // the rest of the body is not needed
	if notSent := <-sent; notSent != nil {
		response.IsReusable = false
	}
	return err
}

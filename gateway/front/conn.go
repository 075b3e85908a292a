package front

import (
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"petgate/gateway/http1"
	"petgate/shared/socket"
)

// Conn is a client's connection. One goroutine serves it.
type Conn struct {
	http1.Conn
	Peer  netip.Addr
	IsTLS bool

	// Own is what the handler keeps with the connection; nil until it sets it. Closed is called
	// when no more requests are read.
	Own interface{ Closed() }

	server *Server
	held   *heldConn
	call   *Call // what is being read, answered or written; nil between two requests
	place  place
	membership

	acceptedAt time.Time
	isUsed     atomic.Bool // a response was made
}

// sendBufferBytes is how much response data the kernel holds for a client that does not read. By
// default the kernel would hold up to some megabytes.
const sendBufferBytes = 128 << 10

func (s *Server) newConn(accepted *socket.Conn) *Conn {
	c := &Conn{server: s, acceptedAt: time.Now()}
	if peer, ok := accepted.RemoteAddr().(*net.TCPAddr); ok {
		c.Peer = peer.AddrPort().Addr().Unmap()
	}
	if tcp, ok := accepted.Conn.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(sendBufferBytes)
	}
	accepted.Slack = socket.UsualSlack
	c.held = &heldConn{Conn: accepted, client: c}
	conn := net.Conn(c.held)
	if s.cfg.TLS != nil {
		// The handshake is done by the first read, in the connection's own goroutine.
		_ = conn.SetDeadline(c.acceptedAt.Add(s.http.Timeouts.Read))
		conn, c.IsTLS = tls.Server(conn, s.cfg.TLS), true
	}
	c.Init(conn, &s.http, c)
	s.crowd.put(c, &s.crowd.strangers)
	return c
}

// heldConn counts as a held connection until it lingers or is closed.
type heldConn struct {
	*socket.Conn
	client  *Conn
	leaving sync.Once
}

func (h *heldConn) Close() error {
	err := h.Conn.Close()
	h.client.Lingers()
	return err
}

// Lingers gives back the connection's place: refused connections that linger must not take the
// places of others. Package http1 calls it.
func (c *Conn) Lingers() {
	c.held.leaving.Do(func() {
		s := c.server
		s.crowd.remove(c)
		if c.isOwned {
			s.crowd.tenants.Return(c.owner)
		}
		s.held.Add(-1)
	})
}

// serve is the life of the connection. Past the maximum of connections, it only refuses. A panic
// while a request is read ends only this connection.
func (c *Conn) serve(isPastMax bool) {
	defer func() {
		c.leave()
		if panicked := recover(); panicked != nil {
			c.server.cfg.Log.Error("panic while reading", "panic", panicked, "stack", string(debug.Stack()))
			c.free()
			c.held.cut()
		}
	}()
	switch {
	case isPastMax:
		c.refuse()
	default:
		for c.read() && c.answer() {
			c.free()
		}
		c.free()
	}
	c.leave()
	_ = c.Close()
}

// refuse answers the first request without reading it.
func (c *Conn) refuse() {
	c.begin()
	if c.Begin() {
		c.call.Err = errTooManyConns
		c.answer()
	}
	c.free()
}

// leave tells the handler that the connection has ended.
func (c *Conn) leave() {
	if c.Own != nil {
		c.Own.Closed()
		c.Own = nil
	}
}

// begin takes a Call. A slow client holds no memory but the bytes of its head before that.
func (c *Conn) begin() {
	c.call = c.server.calls.Get().(*Call)
	c.call.Conn = c
}

// free gives the Call back.
func (c *Conn) free() {
	if c.call != nil {
		c.call.reset()
		c.server.calls.Put(c.call)
		c.call = nil
	}
}

// EarlyBytesMax is how much of a body is read before the handler is called. Most bodies are
// smaller. The handler reads the rest.
const EarlyBytesMax = 16 << 10

// read blocks until the head of a request, and usually its body, has arrived. It returns false if
// the connection has ended. Until it returns, the connection can be closed to make room.
func (c *Conn) read() bool {
	err := c.Await()
	c.endHead()
	if err == io.EOF {
		return false
	}
	c.begin()
	q, body := &c.call.Request, &c.call.Body
	if err == nil {
		err = c.ReadHead(q, body)
	}
	if err == nil && !q.AwaitsContinue && !c.server.http.Limits.Bodies.IsTight() {
		err = c.ReadBody(q, body, EarlyBytesMax)
	}
	c.call.Err = err
	return c.Begin()
}

// answer has a response made, and writes it. It returns false if the connection ends.
func (c *Conn) answer() bool {
	call, s := c.call, c.server
	call.At = time.Now()
	s.cfg.Handler(call)
	c.isUsed.Store(true)
	c.touch(call.MadeAt)
	rest := call.Response.Rest
	closes := call.Response.Closes || call.Request.Closes || call.Err != nil || !call.Body.IsComplete() ||
		c.IsEnding() ||
		s.draining.Load() ||
		rest != nil && call.Response.Length < 0 && call.Request.Version == 0
	if rest != nil {
		return c.answerInParts(closes)
	}
	if closes {
		c.Finish(call.MadeAt, call.isLast())
	} else {
		c.Next(call.MadeAt)
	}
	call.Body.Reset() // a client that reads slowly holds no memory for bodies
	return call.write(closes) == nil && !closes
}

// answerInParts writes a response whose body is still arriving. Meanwhile the connection counts as
// serving its request.
func (c *Conn) answerInParts(closes bool) bool {
	call := c.call
	if !closes { // the body of the request has been sent
		call.Body.Reset()
	}
	err := func() error {
		defer call.Response.Rest.End()
		return call.write(closes)
	}()
	if err != nil {
		c.held.cut()
		return false
	}
	if closes {
		c.Finish(time.Now(), call.isLast())
	} else {
		c.Next(time.Now())
	}
	return !closes
}

// Ends reports whether the client has gone, or the server shuts down. It is for a time in which
// nothing is read.
func (c *Conn) Ends() bool {
	_ = c.held.SetReadDeadline(time.Time{})
	return c.ServerEnds() || c.held.HasEnded()
}

// ServerEnds reports whether the server shuts down.
func (c *Conn) ServerEnds() bool { return c.server.isClosed.Load() }

// cut makes the kernel end the connection with a reset, also if the client has not read everything.
func (h *heldConn) cut() {
	if tcp, ok := h.Conn.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = h.Close()
}

// newWithin is how long a connection without a request is not considered unused: its client may
// have just sent one.
const newWithin = 5 * time.Second

// closeIdle closes the connection if no request has begun.
func (c *Conn) closeIdle() {
	if c.isUsed.Load() || time.Since(c.acceptedAt) >= newWithin {
		c.CloseIdle()
	}
}

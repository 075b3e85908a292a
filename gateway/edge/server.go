package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"petgate/gateway/http1"
	"petgate/gateway/upstream"
	"petgate/shared/socket"
)

// How fasthttp is used: it accepts connections, runs a goroutine for each, and writes responses. It does not read what
// clients send, because its parser is tolerant on purpose, and a difference between two parsers allows request smuggling.
//
//	client          clientConn                fasthttp                 Edge
//	──────          ──────────                ────────                 ────
//	   ── bytes ──►  1 reads the request
//	                   with http1, strictly
//	                 2 passes a canned
//	                   "GET / HTTP/1.1" ───►  3 parses that line
//	                                            and calls ──────────►  4 serve: the stages, on the
//	                                                                     exchange that 1 has filled
//	   ◄── bytes ─────────────────────────── 5 writes the response ◄──

// refusedMax is how many connections past ConnectionsMax get a 503; the rest are closed without a response.
const refusedMax = 1024

// sendBufferBytes is how much response data the kernel holds for a client that does not read. By default the kernel would
// hold up to some megabytes.
const sendBufferBytes = 128 << 10

// writeBufferBytes is how much of a response is collected for one system call.
const writeBufferBytes = 8 << 10

func (e *Edge) newServer() *fasthttp.Server {
	return &fasthttp.Server{
		Handler: e.serve,
		Logger:  serverLog{e.log},

		// Never reached, because the listener has a lower limit. Above Concurrency, fasthttp would respond in plain text.
		Concurrency: e.cfg.ConnectionsMax + refusedMax + 1,

		// fasthttp's timeouts are not set, because http1.Conn sets the deadlines.
		ReadBufferSize:  256, // fasthttp reads only canned requests
		WriteBufferSize: writeBufferBytes,

		ReduceMemoryUsage:             true, // no buffers for idle connections
		CloseOnShutdown:               true,
		DisableHeaderNamesNormalizing: true, // names are written unchanged
		NoDefaultServerHeader:         true,
		NoDefaultContentType:          true,
		SecureErrorLogMessage:         true,
	}
}

// serverLog receives fasthttp's log lines: failures of connections.
type serverLog struct{ log *slog.Logger }

func (l serverLog) Printf(format string, args ...any) {
	l.log.Debug("connection", "detail", fmt.Sprintf(format, args...))
}

// Serve serves ln until Shutdown, or until ln fails. It may be called for several listeners.
func (e *Edge) Serve(ln net.Listener) error {
	retrying := &socket.Listener{Listener: ln, Log: e.log, Failed: e.metrics.acceptFailures.Inc}
	return e.server.Serve(&listener{retrying, e})
}

// listener turns each connection into a clientConn. Connections above ConnectionsMax get a refusal; connections above
// ConnectionsMax + refusedMax are closed without a response.
type listener struct {
	net.Listener
	edge *Edge
}

var errTooManyConns = errors.New("edge: too many connections")

func (l *listener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		e := l.edge
		held := e.connections.Add(1)
		if e.crowd.makeRoom(held, int64(e.cfg.ConnectionsMax)) {
			held--
		}
		if held > int64(e.cfg.ConnectionsMax+refusedMax) {
			e.connections.Add(-1)
			e.metrics.shed.Inc()
			_ = accepted.Close()
			continue
		}
		c := e.newClientConn(accepted)
		if held > int64(e.cfg.ConnectionsMax) {
			c.refuse(errTooManyConns)
		}
		return c, nil
	}
}

// clientConn is a client's connection as fasthttp sees it.
type clientConn struct {
	http1.Conn
	edge  *Edge
	held  *heldConn
	peer  netip.Addr
	isTLS bool

	place place
	membership

	exchange *exchange // for the request that is being read or served; nil between requests
	out      []byte    // what fasthttp reads next
}

func (e *Edge) newClientConn(accepted net.Conn) *clientConn {
	c := &clientConn{edge: e}
	if addr, err := netip.ParseAddrPort(accepted.RemoteAddr().String()); err == nil {
		c.peer = addr.Addr().Unmap()
	}
	if tcp, ok := accepted.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(sendBufferBytes)
	}
	c.held = &heldConn{Timed: socket.NewTimed(accepted, e.slack), client: c}
	e.crowd.put(c, &e.crowd.strangers)
	conn := net.Conn(c.held)
	if e.cfg.TLS != nil {
		// The first read or write does the handshake, in the connection's own goroutine.
		_ = conn.SetDeadline(time.Now().Add(e.cfg.ReadTimeout))
		conn, c.isTLS = tls.Server(conn, e.cfg.TLS), true
	}
	c.Init(conn, &e.http, c)
	return c
}

// heldConn counts as a held connection until it is closed.
type heldConn struct {
	*socket.Timed
	client  *clientConn
	closing sync.Once
}

func (c *heldConn) Close() (err error) {
	c.closing.Do(func() {
		err = c.Timed.Close()
		e := c.client.edge
		e.crowd.remove(c.client)
		if c.client.isOwned {
			e.crowd.tenants.Return(c.client.owner)
		}
		e.connections.Add(-1)
	})
	return err
}

// fasthttp reads canned requests instead of what the client sent. It must know whether the response may have content: HEAD
// stays HEAD, and any other method becomes GET. It must also tell HTTP/1.0 clients that a connection stays open.
var (
	cannedGet       = []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	cannedHead      = []byte("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
	cannedGetClose  = []byte("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	cannedHeadClose = []byte("HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	cannedGetOld    = []byte("GET / HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n")
	cannedHeadOld   = []byte("HEAD / HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n")
)

func canned(q *http1.Request) []byte {
	isHead := string(q.Method) == http.MethodHead
	switch {
	case q.Closes && isHead:
		return cannedHeadClose
	case q.Closes:
		return cannedGetClose
	case q.Version == 0 && isHead:
		return cannedHeadOld
	case q.Version == 0:
		return cannedGetOld
	case isHead:
		return cannedHead
	}
	return cannedGet
}

// Read gives fasthttp a canned request when the client's next request has arrived, or cannot be read. A panic ends only
// this connection.
func (c *clientConn) Read(p []byte) (n int, err error) {
	if len(c.out) == 0 {
		defer func() {
			if panicked := recover(); panicked != nil {
				c.edge.log.Error("panic while reading", "panic", panicked, "stack", string(debug.Stack()))
				c.Finish(time.Now(), false)
				if c.exchange != nil {
					c.edge.exchanges.put(c.exchange)
					c.exchange = nil
				}
				err = io.ErrUnexpectedEOF
			}
		}()
		if err := c.readRequest(); err != nil {
			return 0, err
		}
	}
	n = copy(p, c.out)
	c.out = c.out[n:]
	return n, nil
}

// readRequest blocks until the head of a request, and usually its body, has arrived. The stage receive reads the rest of a
// large body. readRequest returns io.EOF if no request has begun. An exchange is only taken when the head has arrived, so
// a slow client holds no memory but the bytes of its head. Until readRequest returns, the connection can be closed to make room.
func (c *clientConn) readRequest() error {
	err := c.Await()
	c.endHead()
	if err == io.EOF {
		return err
	}
	x := c.edge.exchanges.get(c)
	c.exchange = x
	if err == nil {
		err = c.ReadHead(&x.request, &x.body)
	}
	if err == nil && !x.request.AwaitsContinue && !c.edge.http.Limits.Bodies.IsTight() {
		err = c.ReadBody(&x.request, &x.body, earlyBytesMax)
	}
	if !c.Begin() {
		c.exchange = nil
		c.edge.exchanges.put(x)
		return io.EOF
	}
	if err != nil {
		c.refuse(err)
	} else {
		c.out = canned(&x.request)
	}
	return nil
}

// refuse marks the request, so that accept refuses it. It is the connection's last request: no further bytes are parsed.
func (c *clientConn) refuse(err error) {
	if c.exchange == nil {
		c.exchange = c.edge.exchanges.get(c)
	}
	c.exchange.unreadable = err
	c.exchange.request.Closes = true
	c.out = canned(&c.exchange.request)
	c.Finish(time.Now(), false)
}

// Refusing returns the addresses of the upstreams whose last response said that they do not accept this gateway.
func (e *Edge) Refusing() []string { return e.upstreams.Refusing() }

// CheckUpstreams asks the upstreams for their health until ctx ends. It must be called at most once.
func (e *Edge) CheckUpstreams(ctx context.Context) { e.upstreams.Check(ctx) }

// Failing returns the upstreams whose checks fail.
func (e *Edge) Failing() []upstream.Failing { return e.upstreams.Failing() }

// Drain closes each connection after its next response. Listeners stay open, so that a load balancer can move away first.
func (e *Edge) Drain() { e.draining.Store(true) }

// Shutdown closes the listeners and unused connections, waits until every request has its response, and stops what New
// started. It stops waiting when ctx ends.
func (e *Edge) Shutdown(ctx context.Context) error {
	e.Drain()
	err := e.server.ShutdownWithContext(ctx)
	e.upstreams.CloseIdle()
	if e.accessLog != nil {
		e.accessLog.close()
	}
	return err
}

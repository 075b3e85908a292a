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
	"petgate/shared/socket"
)

// How fasthttp is used. It accepts connections, runs a goroutine for each, and writes responses: it does that well. It does not
// read what clients send, because its parser is tolerant on purpose, and requests are smuggled where two parsers differ.
//
//	client          clientConn                fasthttp                 Edge
//	──────          ──────────                ────────                 ────
//	   ── bytes ──►  1 reads the request
//	                   with http1, strictly
//	                 2 hands on a canned
//	                   "GET / HTTP/1.1" ───►  3 parses those words
//	                                            and calls ──────────►  4 serve: the stages, on the
//	                                                                     exchange that 1 has filled
//	   ◄── bytes ─────────────────────────── 5 writes the response ◄──

// crowdedTenths of ConnectionsMax are held when each new connection costs a stranger its own.
const crowdedTenths = 9

// refusedMax is how many connections past ConnectionsMax get a 503; the rest are closed without a response.
const refusedMax = 1024

// sendBufferBytes is how much of its responses the kernel holds for a client that does not read them. By default, the kernel
// would go up to some megabytes.
const sendBufferBytes = 128 << 10

func (e *Edge) newServer() *fasthttp.Server {
	return &fasthttp.Server{
		Handler: e.serve,
		Logger:  serverLog{e.log},

		// Not reached: fasthttp answers what exceeds it in plain text. The listener caps first.
		Concurrency: e.cfg.ConnectionsMax + refusedMax + 1,

		// Not its timeouts: http1.Conn has them.
		ReadBufferSize:  256, // canned requests are all that it reads
		WriteBufferSize: 8 << 10,

		ReduceMemoryUsage:             true, // no buffers for idle connections
		CloseOnShutdown:               true,
		DisableHeaderNamesNormalizing: true, // names are copied as they are
		NoDefaultServerHeader:         true,
		NoDefaultContentType:          true,
		SecureErrorLogMessage:         true,
	}
}

// serverLog takes what fasthttp logs: failures of connections.
type serverLog struct{ log *slog.Logger }

func (l serverLog) Printf(format string, args ...any) {
	l.log.Debug("connection", "detail", fmt.Sprintf(format, args...))
}

// Serve serves ln until Shutdown, or until ln fails. It may be called for several listeners.
func (e *Edge) Serve(ln net.Listener) error {
	retrying := &socket.Listener{Listener: ln, Log: e.log, Failed: e.metrics.acceptFailures.Inc}
	return e.server.Serve(&listener{retrying, e})
}

// listener makes a clientConn of each connection, and refuses those that are too many: with a response while that is cheap.
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
		if held > int64(e.cfg.ConnectionsMax)*crowdedTenths/10 {
			if c := e.strangers.oldest(); c != nil {
				_ = c.held.Close()
				e.metrics.evicted.Inc()
				held--
			}
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

	stranger      // guarded by edge.strangers
	isKnown  bool // a valid key has been seen

	exchange *exchange // of the request that is being read or served; nil between requests
	out      []byte    // what fasthttp is to read next
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
	e.strangers.touch(c)
	conn := net.Conn(c.held)
	if e.cfg.TLS != nil {
		// The handshake comes with the first read or write, in the connection's own goroutine.
		_ = conn.SetDeadline(time.Now().Add(e.cfg.ReadTimeout))
		conn, c.isTLS = tls.Server(conn, e.cfg.TLS), true
	}
	c.Init(conn, &e.http)
	return c
}

// heldConn counts among the connections that are held until it is closed.
type heldConn struct {
	*socket.Timed
	client  *clientConn
	closing sync.Once
}

func (c *heldConn) Close() (err error) {
	c.closing.Do(func() {
		err = c.Timed.Close()
		c.client.edge.strangers.remove(c.client)
		c.client.edge.connections.Add(-1)
	})
	return err
}

// metKey keeps the place of c among the strangers, after a request that had a valid key or had none.
func (c *clientConn) metKey(isValid bool) {
	switch {
	case c.isKnown:
	case isValid:
		c.isKnown = true
		c.edge.strangers.remove(c)
	default:
		c.edge.strangers.touch(c)
	}
}

// Canned requests are what fasthttp reads instead of what the client sent. It needs to know whether the response may have
// content: HEAD stays HEAD, and any other method is GET to it. It has to tell HTTP/1.0 clients that a connection stays open.
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

// Read gives fasthttp a canned request when the client's next one is there, or cannot be read. A panic ends this connection only.
func (c *clientConn) Read(p []byte) (n int, err error) {
	if len(c.out) == 0 {
		defer func() {
			if panicked := recover(); panicked != nil {
				c.edge.log.Error("panic while reading", "panic", panicked, "stack", string(debug.Stack()))
				c.Finish(time.Now())
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

// readRequest blocks until a request is there: its head, and a small body. The stage receive reads the rest of a large one. It
// returns io.EOF where no request has begun. An exchange begins when its head is there: a slow client holds what it has sent and
// nothing else.
func (c *clientConn) readRequest() error {
	err := c.Await()
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
	if err != nil {
		c.refuse(err)
	} else {
		c.out = canned(&x.request)
	}
	return nil
}

// refuse makes the request one that accept refuses, and the last one of the connection: what follows on it is never looked at.
func (c *clientConn) refuse(err error) {
	if c.exchange == nil {
		c.exchange = c.edge.exchanges.get(c)
	}
	c.exchange.unreadable = err
	c.exchange.request.Closes = true
	c.out = canned(&c.exchange.request)
	c.Finish(time.Now())
}

// Drain ends each connection with its next response. Listeners go on, so a load balancer can move away first.
func (e *Edge) Drain() { e.draining.Store(true) }

// Shutdown closes the listeners and unused connections, waits until every request has its response, and frees what New
// started. After ctx it gives up waiting.
func (e *Edge) Shutdown(ctx context.Context) error {
	e.Drain()
	err := e.server.ShutdownWithContext(ctx)
	e.upstreams.CloseIdle()
	if e.accessLog != nil {
		e.accessLog.close()
	}
	return err
}

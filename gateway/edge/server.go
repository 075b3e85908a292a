package edge

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/valyala/fasthttp"

	"petgate/shared/socket"
)

// refusedMax is how many connections past ConnectionsMax are told that they are too many; the rest are closed.
const refusedMax = 1024

// sendBufferBytes is how much of its answers the kernel holds for a client that does not read them; it would go up to some
// megabytes.
const sendBufferBytes = 128 << 10

func (e *Edge) newServer() *fasthttp.Server {
	return &fasthttp.Server{
		Handler: e.serve,
		Logger:  serverLog{e.log},

		// Not reached: fasthttp answers what exceeds it in plain text. The listener caps first.
		Concurrency: e.cfg.ConnectionsMax + refusedMax + 1,

		// Not its timeouts: wire has them.
		ReadBufferSize:  256, // all it reads is what wire tells it
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
func (e *Edge) Serve(ln net.Listener) error { return e.server.Serve(&listener{ln, e}) }

// listener makes a wire of each connection, and refuses those that are too many: with our answer while that is affordable.
type listener struct {
	net.Listener
	edge *Edge
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		e := l.edge
		held := e.connections.Add(1)
		if held > int64(e.cfg.ConnectionsMax+refusedMax) {
			e.connections.Add(-1)
			e.metrics.shed.Inc()
			_ = c.Close()
			continue
		}
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetWriteBuffer(sendBufferBytes)
		}
		c = socket.New(c)
		if e.cfg.TLS != nil {
			// The handshake comes with the first read, or write, in the connection's own goroutine.
			_ = c.SetDeadline(time.Now().Add(e.cfg.ReadTimeout))
			c = tls.Server(c, e.cfg.TLS)
		}
		w := newWire(c, e)
		if held > int64(e.cfg.ConnectionsMax) {
			w.refuse(refusal{reason: overloaded})
		}
		return w, nil
	}
}

// Drain ends each connection with its next answer. Listeners go on, so that whoever balances load can move away first.
func (e *Edge) Drain() { e.draining.Store(true) }

// Shutdown closes the listeners and unused connections, waits until every request has its answer, and frees what New
// started. After ctx it gives up waiting.
func (e *Edge) Shutdown(ctx context.Context) error {
	e.Drain()
	err := e.server.ShutdownWithContext(ctx)
	for _, u := range e.upstreams {
		u.closeIdle()
	}
	if e.accessLog != nil {
		e.accessLog.close()
	}
	return err
}

// ejected counts upstreams that get nothing for now.
func (e *Edge) ejected(now time.Time) (n int) {
	for _, u := range e.upstreams {
		if u.ejectedUntil.Load() > now.UnixMilli() {
			n++
		}
	}
	return n
}

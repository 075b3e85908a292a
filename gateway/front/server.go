// Package front holds the connections of clients. For each request, it calls the handler with a
// Call, and it writes the response.
//
//	client           Conn                                      handler
//	──────           ────                                      ───────
//	   ── bytes ──►   1 http1 reads the request, strictly
//	                  2 the Call has it            ──────────►  3 makes the Response
//	   ◄── bytes ──   4 it writes the response     ◄───────
//
// fasthttp writes the status, date and framing of responses. It does not read what clients send:
// its parser is tolerant on purpose, and a difference between two parsers allows request smuggling.
//
// When connections or the memory for heads run out, some connections must leave: see crowd.
package front

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"petgate/gateway/http1"
	"petgate/gateway/share"
	"petgate/shared/socket"
)

// Config is the configuration of a server. TLS may be nil.
type Config struct {
	HTTP           http1.Settings // without MakeRoom
	ConnectionsMax int            // how many connections are held
	TLS            *tls.Config
	Handler        func(*Call) // makes the response; it must not panic
	Log            *slog.Logger
	Metrics        prometheus.Registerer
}

// RefusedMax is how many connections past ConnectionsMax get a refusal. Further ones are closed
// without a response.
const RefusedMax = 1024

// LingeringMax is how many connections linger, besides those that are held. Further ones are closed
// at once.
const LingeringMax = 256

// errTooManyConns is the error of a Call whose request was not read: its connection is past
// ConnectionsMax.
var errTooManyConns = errors.New("front: too many connections")

// Server serves clients. Its methods are safe for concurrent use.
type Server struct {
	cfg   Config
	http  http1.Settings
	crowd crowd
	calls sync.Pool // *Call

	held     atomic.Int64 // connections
	draining atomic.Bool
	isClosed atomic.Bool // by Shutdown

	mu        sync.Mutex
	listeners []net.Listener

	acceptFailures, evicted, shed prometheus.Counter
}

// New returns a server that is ready to serve.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, http: cfg.HTTP}
	s.http.MakeRoom = func() bool { return s.crowd.evict(&s.crowd.slow) }
	s.http.Lingering = http1.NewBudget(LingeringMax)
	s.calls.New = func() any { return &Call{Response: Response{Length: -1}} }
	s.crowd.tenants = share.New(cfg.ConnectionsMax)
	make := promauto.With(cfg.Metrics)
	counter := func(name, help string) prometheus.Counter {
		return make.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	s.acceptFailures = counter("petgate_gateway_accept_failures_total",
		"Connections that could not be accepted, for example for lack of file descriptors.")
	s.evicted = counter("petgate_gateway_connections_evicted_total",
		"Connections closed to make room for others: first those without a valid key, then idle ones.")
	s.shed = counter("petgate_gateway_connections_shed_total",
		"Connections closed without a response, because there were too many to answer.")
	gauge := func(name, help string, value func() int64) {
		make.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
	}
	gauge("petgate_gateway_connections", "Connections held by clients.", s.held.Load)
	gauge("petgate_gateway_head_bytes",
		"Memory in use for heads that are arriving and have more than 512 bytes, in bytes.", s.http.Limits.Heads.Used)
	gauge("petgate_gateway_body_bytes", "Memory in use for the bodies of requests, in bytes.",
		s.http.Limits.Bodies.Used)
	return s
}

// Serve serves ln until Shutdown, or until ln fails. It may be called for several listeners.
func (s *Server) Serve(ln net.Listener) error {
	s.mu.Lock()
	s.listeners = append(s.listeners, ln)
	s.mu.Unlock()
	if s.isClosed.Load() {
		return ln.Close()
	}
	retrying := &socket.Listener{Listener: ln, Log: s.cfg.Log, Failed: s.acceptFailures.Inc}
	for {
		accepted, err := retrying.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		held := s.held.Add(1)
		if s.crowd.makeRoom(held, int64(s.cfg.ConnectionsMax)) {
			held--
		}
		if held > int64(s.cfg.ConnectionsMax+RefusedMax) {
			s.held.Add(-1)
			s.shed.Inc()
			_ = accepted.Close()
			continue
		}
		// Not newConn before the goroutine starts: other connections wait to be accepted.
		go func() { s.newConn(accepted.(*socket.Conn)).serve(held > int64(s.cfg.ConnectionsMax)) }()
	}
}

// Drain closes each connection after its next response. Listeners stay open, so that a load
// balancer can move away first.
func (s *Server) Drain() { s.draining.Store(true) }

// shutdownEvery is how often Shutdown looks for connections that no longer serve a request.
const shutdownEvery = 20 * time.Millisecond

// Shutdown closes the listeners and unused connections, and waits until every request has its
// response. It stops waiting when ctx ends.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Drain()
	s.mu.Lock()
	s.isClosed.Store(true)
	for _, ln := range s.listeners {
		_ = ln.Close()
	}
	s.mu.Unlock()
	again := time.NewTicker(shutdownEvery)
	defer again.Stop()
	for {
		for _, c := range s.crowd.all() {
			c.closeIdle()
		}
		if s.held.Load() == 0 && s.http.Lingering.Used() == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-again.C:
		}
	}
}

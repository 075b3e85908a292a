package testkit

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// Proxy is a TCP proxy that breaks on command. Tests put it between a program and its database,
// Redis or upstream.
type Proxy struct {
	Addr string // host:port; it never changes

	target string // host:port or unix:/path

	mu        sync.Mutex
	listener  net.Listener // nil after Kill
	conns     map[*net.TCPConn]net.Conn
	latency   time.Duration
	blackHole bool
	deaf      bool          // LoseAnswers
	changed   chan struct{} // closed and replaced when blackHole ends
	accepted  int
	trips     int
	cut       Cut
}

// Cut is where a proxy ends a connection, once.
type Cut struct {
	Trip      int  // the round trip, counted as RoundTrips does; 0: none
	Delivered bool // it ends instead of the answer, and not before the message
	ForEver   bool // the proxy refuses connections afterwards, as after Kill
}

// CutAt sets where the proxy ends the next connection. IsCut reports whether it has.
func (p *Proxy) CutAt(c Cut) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = c
}

// IsCut reports whether the connection was ended where CutAt said.
func (p *Proxy) IsCut() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cut.Trip == 0
}

// NewProxy returns a healthy proxy to target, host:port or unix:/path. It ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	p := &Proxy{
		Addr: loopback(FreePort(t)), target: target,
		conns: make(map[*net.TCPConn]net.Conn), changed: make(chan struct{}),
	}
	if err := p.listen(); err != nil {
		t.Fatalf("testkit: proxy: %v", err)
	}
	t.Cleanup(func() {
		p.Kill()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.endBlackHole() // releases what waits
	})
	return p
}

func (p *Proxy) listen() error {
	ln, err := net.Listen("tcp", p.Addr)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.listener = ln
	p.mu.Unlock()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go p.serve(conn.(*net.TCPConn))
		}
	}()
	return nil
}

func (p *Proxy) serve(client *net.TCPConn) {
	defer client.Close()
	p.mu.Lock()
	network, addr := "tcp", p.target
	p.mu.Unlock()
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		network, addr = "unix", path
	}
	server, err := net.DialTimeout(network, addr, 5*time.Second)
	if err != nil {
		_ = client.SetLinger(0)
		return
	}
	defer server.Close()

	p.mu.Lock()
	if p.listener == nil {
		p.mu.Unlock()
		return
	}
	p.conns[client] = server
	p.accepted++
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.conns, client)
		p.mu.Unlock()
	}()

	var both sync.WaitGroup
	asked := false // guarded by mu
	both.Go(func() { p.copy(server, client, func() bool { return p.passes(&asked, true) }) })
	both.Go(func() { p.copy(client, server, func() bool { return p.passes(&asked, false) }) })
	both.Wait()
}

// passes reports whether data is passed on. It counts the data of a client that follows data of its
// server, or is the first.
func (p *Proxy) passes(asked *bool, byClient bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if byClient && !*asked {
		p.trips++
	}
	*asked = byClient
	if p.cut.Trip == p.trips && p.cut.Delivered != byClient {
		if p.cut.ForEver && p.listener != nil {
			_ = p.listener.Close()
			p.listener = nil
		}
		p.cut = Cut{}
		return false
	}
	return byClient || !p.deaf
}

// copy passes bytes on until one side closes or passes returns false, then closes the other. It
// calls passes before it passes on data.
func (p *Proxy) copy(dst, src net.Conn, passes func() bool) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := src.Read(buffer)
		if n > 0 {
			p.hold()
			if !passes() {
				err = net.ErrClosed
			} else if _, writeErr := dst.Write(buffer[:n]); writeErr != nil {
				err = writeErr
			}
		}
		if err != nil {
			if half, ok := dst.(interface{ CloseWrite() error }); ok && err == io.EOF {
				_ = half.CloseWrite()
				return
			}
			_ = dst.Close()
			_ = src.Close()
			return
		}
	}
}

// hold delays data by the latency and until a black hole ends.
func (p *Proxy) hold() {
	p.mu.Lock()
	latency := p.latency
	p.mu.Unlock()
	if latency > 0 {
		time.Sleep(latency)
	}
	for {
		p.mu.Lock()
		held, changed := p.blackHole, p.changed
		p.mu.Unlock()
		if !held {
			return
		}
		<-changed
	}
}

// Kill resets all connections and refuses new ones.
func (p *Proxy) Kill() {
	p.mu.Lock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	p.mu.Unlock()
	p.Reset()
}

// BlackHole keeps connections open and accepts new ones, but passes no data on in either direction
// until Restore.
func (p *Proxy) BlackHole() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blackHole = true
}

// LoseAnswers delivers what clients send, and ends a connection instead of passing an answer on,
// until Restore.
func (p *Proxy) LoseAnswers() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf = true
}

// Latency delays data in each direction by d. 0 means no delay.
func (p *Proxy) Latency(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = d
}

// Reset ends all current connections with a RST. New ones are served.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for client, server := range p.conns {
		_ = client.SetLinger(0)
		_ = client.Close()
		if tcp, ok := server.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = server.Close()
	}
}

// Restore makes the proxy healthy again. Data that a black hole has held back is passed on.
func (p *Proxy) Restore(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	p.latency, p.deaf = 0, false
	p.endBlackHole()
	down := p.listener == nil
	p.mu.Unlock()
	if !down {
		return
	}
	var err error
	// A process that a test has just started has the old listener until it becomes its program.
	listens := func() bool {
		err = p.listen()
		return err == nil
	}
	if !Await(startWithin, listens) {
		t.Fatalf("testkit: restore the proxy: %v", err)
	}
}

// endBlackHole must be called with mu held.
func (p *Proxy) endBlackHole() {
	p.blackHole = false
	close(p.changed)
	p.changed = make(chan struct{})
}

// MoveTo breaks all connections. New ones go to another target.
func (p *Proxy) MoveTo(target string) {
	p.mu.Lock()
	p.target = target
	p.mu.Unlock()
	p.Reset()
}

// Accepted returns how many connections the proxy has passed on.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// RoundTrips returns how often clients have begun to send: at first, and after each answer.
func (p *Proxy) RoundTrips() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trips
}

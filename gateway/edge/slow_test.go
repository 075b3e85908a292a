package edge_test

import (
	"fmt"
	"io"
	"math"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"petgate/shared/testkit"
)

// Sizes of the slow tests.
var (
	slowClients  = testkit.Size[int64](100, 800)
	slowReaders  = testkit.Size[int64](20, 800)
	honestRounds = testkit.Size(300, 2000)

	// In full size they are the product's own timeouts: the default of GATEWAY_READ_TIMEOUT, and 0, which selects the edge's default.
	slowReadTimeout  = testkit.Size(time.Second, 4*time.Second)
	slowWriteTimeout = testkit.Size(time.Second, 0)

	// What a connection may cost in heap and stacks. Reduced tests have the race detector, which adds to it.
	slowBytesMax = testkit.Size[int64](24<<10, 13<<10)
)

// goneWithin is how long a client may be slow before the server has closed its connection.
const goneWithin = 10 * time.Second

// gauge is a listener that counts the connections that the server holds now, and those that it has ever accepted.
type gauge struct {
	net.Listener
	open, accepted atomic.Int64
}

type gaugedConn struct {
	*net.TCPConn // with all its methods, so that the server treats it like a connection without a gauge
	gauge        *gauge
	once         sync.Once
}

func (g *gauge) Accept() (net.Conn, error) {
	c, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	g.open.Add(1)
	g.accepted.Add(1)
	return &gaugedConn{TCPConn: c.(*net.TCPConn), gauge: g}, nil
}

func (c *gaugedConn) Close() error {
	c.once.Do(func() { c.gauge.open.Add(-1) })
	return c.TCPConn.Close()
}

func newSlowRig(t *testing.T, readTimeout time.Duration) (*rig, *gauge) {
	held := &gauge{}
	return newRig(t, func(s *setup) {
		s.ReadTimeout, s.WriteTimeout, s.IdleTimeout = readTimeout, slowWriteTimeout, 0
		s.UpstreamTimeout, s.BodyBytesMax = 10*time.Second, 1<<20
		s.UpstreamConnsMax, s.TenantConnsMax = 1024, 1024 // all slow clients belong to one tenant, and each has to get its large answers
		s.listen = func(ln net.Listener) net.Listener { held.Listener = ln; return held }
	}), held
}

// honest sends one request after the other until it is stopped, and returns the latencies.
func honest(t *testing.T, r *rig, stop <-chan struct{}) []time.Duration {
	client := r.dial(t)
	var took []time.Duration
	for {
		select {
		case <-stop:
			client.close()
			return took
		default:
		}
		began := time.Now()
		got, err := client.try(rawGet())
		if err != nil || got.Status != 200 {
			t.Errorf("the honest client got %d %v", got.Status, err)
			return took
		}
		took = append(took, time.Since(began))
	}
}

func p99(took []time.Duration) time.Duration {
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}

// normal is the honest client's p99 when nobody else is there.
func normal(t *testing.T, r *rig) time.Duration {
	client := r.dial(t)
	took := make([]time.Duration, honestRounds)
	for i := range took {
		began := time.Now()
		client.ask(t, rawGet())
		took[i] = time.Since(began)
	}
	client.close()
	return p99(took)
}

// memory returns what heap and stacks of this process use. It collects garbage until that frees nothing more: pools and the
// stacks of goroutines that have ended need several collections.
func memory() int64 {
	for last := int64(math.MaxInt64); ; {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		used := int64(m.HeapAlloc + m.StackInuse)
		if used > last-32<<10 {
			return used
		}
		last = used
	}
}

func closeAll(conns []net.Conn) {
	for _, c := range conns {
		if c != nil {
			_ = c.Close()
		}
	}
}

// raiseFileLimit makes room for n descriptors. If it cannot, the test fails and says what to do.
func raiseFileLimit(t *testing.T, n uint64) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Cur >= n {
		return
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: max(n, limit.Max)}); err != nil {
		t.Fatalf("this test needs %d file descriptors: ulimit -n %d (%v)", n, n, err)
	}
}

// TestSlowClients opens many slow connections of a kind beside an honest client. The slow ones are gone in time, and the
// honest one is served throughout.
func TestSlowClients(t *testing.T) {
	raiseFileLimit(t, uint64(4*slowClients+1000))
	for _, kind := range []struct {
		name  string
		begin string // what a slow client says at once
		drip  string // and then again and again; "" = nothing, and it reads nothing either
		count int64
	}{
		{"headers", "GET /v1/pets HTTP/1.1\r\nHost: a\r\nX-Slow: ", "a", slowClients},
		{"body", rawPost("Content-Length: 100000") + "{", "a", slowClients},
		{"chunks", rawChunked(""), "1\r\na\r\n", slowClients},
		{"readers", repeat(rawTarget("/v1/pets?large"), 64), "", slowReaders},
	} {
		t.Run(kind.name, func(t *testing.T) {
			each := int64(0)
			if kind.drip != "" { // not for slow readers: the memory for their responses changes until the kernel takes no more of these
				each = memoryOf(t, kind.begin, kind.count)
			}
			r, held := newSlowRig(t, slowReadTimeout)
			large := says("Content-Length: "+decimal(64<<10)) + repeat("a", 64<<10)
			r.upstream.Answer(func(c net.Conn, request upstreamRequest) bool {
				if request.Target != "/v1/pets?large" {
					return plainAnswer(c, request)
				}
				_, err := io.WriteString(c, large)
				return err == nil
			})
			alone := normal(t, r)
			testkit.Eventually(t, patience, "an empty server", func() bool { return held.open.Load() == 0 })
			clients := openSlow(t, r, held, kind.begin, kind.count)
			defer closeAll(clients)
			began := time.Now()
			r.upstream.Seen()
			stop, done := make(chan struct{}), make(chan []time.Duration)
			go func() { done <- honest(t, r, stop) }()
			go drip(clients, kind.drip, stop)
			testkit.Eventually(t, goneWithin+patience, "their end", func() bool { return held.open.Load() <= 1 })
			took := time.Since(began)
			close(stop)
			beside := p99(<-done)
			if took > goneWithin {
				t.Errorf("the slow clients were gone after %v", took)
			}
			if each > slowBytesMax {
				t.Errorf("a slow connection costs %d bytes, want at most %d", each, slowBytesMax)
			}
			fmt.Printf("figure: %d slow %s: gone after %.1f s; honest p99 %v, alone %v\n", kind.count, kind.name,
				took.Seconds(), beside.Round(time.Microsecond), alone.Round(time.Microsecond))
			if kind.drip != "" {
				fmt.Printf("figure: a connection with slow %s costs %d bytes\n", kind.name, each)
			}
		})
	}
}

// openSlow opens slow connections, says the beginning on each, and waits until the server has accepted all of them.
func openSlow(t *testing.T, r *rig, held *gauge, begin string, count int64) []net.Conn {
	t.Helper()
	accepted := held.accepted.Load()
	clients := make([]net.Conn, count)
	for i := range clients {
		clients[i] = dialSlow(t, r.address)
		if _, err := io.WriteString(clients[i], begin); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, patience, "all slow clients", func() bool { return held.accepted.Load() == accepted+count })
	return clients
}

// memoryOf returns what a slow connection costs, the client's end included. The read timeout is so long that no connection ends while
// the memory is measured.
func memoryOf(t *testing.T, begin string, count int64) int64 {
	t.Helper()
	r, held := newSlowRig(t, time.Hour)
	normal(t, r)
	testkit.Eventually(t, patience, "an empty server", func() bool { return held.open.Load() == 0 })
	before := memory()
	defer closeAll(openSlow(t, r, held, begin, count))
	used := memory() - before
	if open := held.open.Load(); open != count {
		t.Errorf("the server holds %d connections, want %d", open, count)
	}
	return used / count
}

// dialSlow connects with a small receive buffer, so that the server soon notices a client that does not read.
func dialSlow(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	return c
}

// drip says a little more on every connection, ten times a second, until stopped.
func drip(clients []net.Conn, what string, stop <-chan struct{}) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			for _, c := range clients {
				_, _ = io.WriteString(c, what) // to one that is gone, it fails
			}
		}
	}
}

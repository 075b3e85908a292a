//go:build !race

// The race detector makes pools forget at random, so that allocations say nothing.

package edge_test

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"petgate/gateway/edge"
	"petgate/shared/core/ban"
	"petgate/shared/testkit"
	"petgate/shared/trace"
)

// How many allocations the whole process may make for one request. Every request costs one: the byte with which fasthttp waits for
// it. An admitted request costs one more for its path, which the router takes as a string. A refusal whose message counts strikes
// costs one more for the message. The client and the upstream of these tests allocate nothing.
const (
	admittedAllocsMax = 2
	refusedAllocsMax  = 1
	struckAllocsMax   = 2
)

func TestAllocations(t *testing.T) {
	f := func(name, request string, allocsMax float64) {
		t.Helper()
		for _, tracer := range []*trace.Tracer{nil, newTracer(t, "0")} {
			client := newQuietClient(t, newQuietEdge(t, tracer), request)
			for range 100 { // pools and buffers are filled first
				client.ask(t)
			}
			got := testing.AllocsPerRun(500, func() { client.ask(t) })
			t.Logf("%s: %v allocations, with traces: %t", name, got, tracer != nil)
			if got > allocsMax {
				t.Errorf("%s: %v allocations, want at most %v; with traces: %t", name, got, allocsMax, tracer != nil)
			}
		}
	}
	f("admitted", rawGet(), admittedAllocsMax)
	f("over the quota", rawKey("Authorization: Bearer "+usedUpToken), struckAllocsMax)
	f("banned", rawKey("Authorization: Bearer "+bannedToken), refusedAllocsMax)
	f("unknown key", rawKey("Authorization: Bearer "+unknownToken), refusedAllocsMax)
	f("no key", rawKey(), refusedAllocsMax)
	f("in a client's trace", rawGet(sampledField), admittedAllocsMax)
}

// newQuietEdge serves on a socket, with an upstream that answers from one buffer.
func newQuietEdge(t testing.TB, tracer *trace.Tracer) net.Addr {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	upstream, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := upstream.Accept()
			if err != nil {
				return
			}
			go answerQuietly(c)
		}
	}()
	var s setup
	newRig(t, func(own *setup) {
		own.AccessLog, own.Tracer = io.Discard, tracer
		s = *own
	})
	s.Upstreams = []string{"http://" + upstream.Addr().String()}
	s.Metrics = prometheus.NewRegistry()
	s.ReadTimeout, s.BanRule = time.Minute, ban.Product
	e, err := edge.New(s.Config, s.Deps)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- e.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := contextFor(patience)
		defer cancel()
		if err := e.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		_ = upstream.Close()
	})
	return ln.Addr()
}

func answerQuietly(c net.Conn) {
	defer c.Close()
	answer := []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1200\r\n\r\n" + repeat("x", 1200))
	buf := make([]byte, 4096)
	for {
		if _, err := c.Read(buf); err != nil {
			return
		}
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}

// quietClient asks the same thing again and again.
type quietClient struct {
	net.Conn
	request, buf []byte
}

func newQuietClient(t testing.TB, address net.Addr, request string) *quietClient {
	c, err := net.Dial("tcp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &quietClient{Conn: c, request: []byte(request), buf: make([]byte, 8192)}
}

var (
	headEnd    = []byte("\r\n\r\n")
	lengthName = []byte("Content-Length: ")
)

func (c *quietClient) ask(t testing.TB) {
	if _, err := c.Write(c.request); err != nil {
		t.Fatal(err)
	}
	for n := 0; ; {
		got, err := c.Read(c.buf[n:])
		if err != nil {
			t.Fatal(err)
		}
		n += got
		head := bytes.Index(c.buf[:n], headEnd)
		at := bytes.Index(c.buf[:n], lengthName)
		if head < 0 || at < 0 {
			continue
		}
		length := 0
		for _, digit := range c.buf[at+len(lengthName) : head] {
			if digit < '0' || digit > '9' {
				break
			}
			length = length*10 + int(digit-'0')
		}
		if n == head+len(headEnd)+length {
			return
		}
	}
}

// BenchmarkServe also reports processor time, which other programs on the machine change less than time.
func BenchmarkServe(b *testing.B) {
	f := func(name, request string, tracer *trace.Tracer) {
		b.Run(name, func(b *testing.B) {
			client := newQuietClient(b, newQuietEdge(b, tracer), request)
			client.ask(b)
			b.ReportAllocs()
			before := processorTime(b)
			for b.Loop() {
				client.ask(b)
			}
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
	admitted := rawGet("User-Agent: wrk")
	f("admitted", admitted, nil)
	f("admitted, traces at ratio 0", admitted, newTracer(b, "0"))
	f("admitted, traces at 1 %", admitted, newTracer(b, "0.01"))
	f("refused", rawKey("Authorization: Bearer "+usedUpToken), nil)
	f("keyless", rawKey(), nil)
}

// processorTime is that of the whole process.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// newTracer returns a tracer with a collector.
func newTracer(t testing.TB, ratio string) *trace.Tracer {
	t.Helper()
	tracer, err := trace.Open(trace.Config{
		Settings: trace.Settings{Endpoint: testkit.StartCollector(t).URL, Ratio: ratio}, Program: "gateway",
		Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tracer.Close(trace.CloseMax) })
	return tracer
}

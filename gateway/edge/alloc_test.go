//go:build !race

// The race detector makes pools forget at random, so that allocations say nothing.

package edge_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"

	"petgate/gateway/http1"
	"petgate/shared/core/ban"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
	"petgate/shared/trace"
)

// How many allocations the whole process may make for one request. A path with parameters costs
// one, because the router takes it as a string, and so does a refusal whose message counts strikes,
// for the message. The client and the upstream of these tests allocate nothing.
const (
	admittedAllocsMax = 0
	refusedAllocsMax  = 0
	struckAllocsMax   = 1
	searchedAllocsMax = 1
	joinedAllocsMax   = 10 // of a list in 80 lines: not one a line
)

func TestAllocations(t *testing.T) {
	f := func(name, request string, allocsMax float64) {
		t.Helper()
		traces := newTracer(t, testkit.StartCollector(t), "0")
		defer traces.Close(trace.CloseMax)
		for _, tracer := range []*trace.Tracer{nil, traces} {
			client := newQuietClient(t, newQuietEdge(t, tracer, smallAnswer), request)
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
	f("over the quota", rawBearer(usedUpToken), struckAllocsMax)
	f("banned", rawBearer(bannedToken), refusedAllocsMax)
	f("unknown key", rawBearer(unknownToken), refusedAllocsMax)
	f("no key", rawKey(), refusedAllocsMax)
	f("in a client's trace", rawGet(sampledField), admittedAllocsMax)
	f("a list in many lines", rawGet(repeat("X-Forwarded-For: 192.0.2.1\r\n", 79)+"X-Forwarded-For: 192.0.2.1"),
		joinedAllocsMax)
	f("a path with a parameter", strings.Replace(rawGet(), "/v1/pets", "/v1/pets/1", 1), searchedAllocsMax)
}

// How many bytes answers of the tests' upstream have, and bodies of their clients.
const (
	smallAnswer  = 1200
	mediumAnswer = 30_000
	largeAnswer  = 100_000
	largeBody    = 64 << 10
)

// largeAllocBytesMax is how many bytes the whole process may allocate for one request with a large
// body or a large answer: much less than either of them has.
const largeAllocBytesMax = 16 << 10

// The memory for large bodies and answers is used again, although most responses are small.
func TestLargeBodiesAreNotAllocated(t *testing.T) {
	f := func(name, request string, answerBytes ...int) {
		t.Helper()
		client := newQuietClient(t, newQuietEdge(t, nil, answerBytes...), request)
		for range 100 {
			client.ask(t)
		}
		const rounds = 200
		before := allocated()
		for range rounds {
			client.ask(t)
		}
		got := (allocated() - before) / rounds
		t.Logf("%s: %d bytes allocated for a request", name, got)
		if got > largeAllocBytesMax {
			t.Errorf("%s: %d bytes allocated for a request, want at most %d", name, got, largeAllocBytesMax)
		}
	}
	f("a medium answer", rawGet(), mediumAnswer)
	f("a large answer", rawGet(), largeAnswer)
	f("medium and small answers in turn", rawGet(), mediumAnswer, smallAnswer)
	f("large and small answers in turn", rawGet(), largeAnswer, smallAnswer)
	f("a large body", rawPost(fmt.Sprintf("Content-Length: %d", largeBody))+repeat("x", largeBody), smallAnswer)
}

// allocated is how many bytes the process has allocated since its start.
func allocated() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.TotalAlloc
}

// newQuietEdge has an upstream that answers from one buffer.
func newQuietEdge(t testing.TB, tracer *trace.Tracer, answerBytes ...int) (address string) {
	upstream := must.Get[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { _ = upstream.Close() })
	go func() {
		for {
			c, err := upstream.Accept()
			if err != nil {
				return
			}
			go answerQuietly(c, answerBytes)
		}
	}()
	return newRig(t, func(s *setup) {
		s.AccessLog, s.Tracer, s.Upstreams = io.Discard, tracer, []string{"http://" + upstream.Addr().String()}
		s.BanRule, s.BodyBytesMax, s.ResponseBytesMax = ban.Product, largeBody, 2*largeAnswer
	}).address
}

// answerQuietly answers with bodies of these sizes in turn.
func answerQuietly(c net.Conn, sizes []int) {
	defer c.Close()
	answers := make([][]byte, len(sizes))
	for i, size := range sizes {
		answers[i] = fmt.Appendf(nil,
			"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", size,
			repeat("x", size))
	}
	buf := make([]byte, messageBytesMax)
	for n := 0; readQuietly(c, buf) == nil; n++ {
		if _, err := c.Write(answers[n%len(answers)]); err != nil {
			return
		}
	}
}

// quietClient asks the same thing again and again.
type quietClient struct {
	net.Conn
	request, buf []byte
}

func newQuietClient(t testing.TB, address, request string) *quietClient {
	c := must.Get[net.Conn](t)(net.Dial("tcp", address))
	t.Cleanup(func() { _ = c.Close() })
	return &quietClient{Conn: c, request: []byte(request), buf: make([]byte, messageBytesMax)}
}

var (
	headEnd    = []byte("\r\n\r\n")
	lengthName = []byte("Content-Length: ")
)

func (c *quietClient) ask(t testing.TB) {
	must.Get[int](t)(c.Write(c.request))
	must.Do(t, readQuietly(c, c.buf))
}

// messageBytesMax is more than any message of these tests has.
const messageBytesMax = 128 << 10

// readQuietly reads one message into buf.
func readQuietly(c net.Conn, buf []byte) error {
	for n := 0; !isWhole(buf[:n]); {
		got, err := c.Read(buf[n:])
		if err != nil {
			return err
		}
		n += got
	}
	return nil
}

func isWhole(message []byte) bool {
	head := bytes.Index(message, headEnd)
	if head < 0 {
		return false
	}
	_, length, _ := bytes.Cut(message[:head], lengthName)
	length, _, _ = bytes.Cut(length, headEnd[:2])
	n, _ := http1.ParseDigits(length)
	return len(message) == head+len(headEnd)+int(n)
}

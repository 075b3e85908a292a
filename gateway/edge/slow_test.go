package edge_test

import (
	"fmt"
	"io"
	"math"
	"net"
	"runtime"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// Sizes of the slow tests.
var (
	slowClients = testkit.Size(100, 800)
	slowReaders = testkit.Size(20, 800)

	// In full size they are the product's own timeouts: the default of GATEWAY_READ_TIMEOUT, and 0, which selects the edge's default.
	slowReadTimeout  = testkit.Size(time.Second, 4*time.Second)
	slowWriteTimeout = testkit.Size(time.Second, 0)

	// What a connection may cost in heap and stacks. Reduced tests have the race detector, which adds to it.
	slowBytesMax = testkit.Size[int64](24<<10, 13<<10)
)

// goneWithin is how long a client may be slow before the server has closed its connection.
const goneWithin = 10 * time.Second

// newSlowRig also returns the number of connections that the server holds.
func newSlowRig(t *testing.T, readTimeout time.Duration) (r *rig, held func() int) {
	r = newRig(t, func(s *setup) {
		s.ReadTimeout, s.WriteTimeout, s.UpstreamTimeout, s.BodyBytesMax = readTimeout, slowWriteTimeout, patience, 1<<20
		s.UpstreamConnsMax, s.TenantConnsMax = 1024, 1024 // all slow clients belong to one tenant, and each has to get its large answers
	})
	large := says("Content-Length: "+decimal(64<<10)) + repeat("a", 64<<10)
	r.upstream.Answer(func(c net.Conn, request upstreamRequest) bool {
		if request.Target != "/v1/pets?large" {
			return plainAnswer(c, request)
		}
		_, err := io.WriteString(c, large)
		return err == nil
	})
	return r, func() int { return int(r.metric(t, "petgate_gateway_connections")) }
}

// TestSlowClients opens many slow connections of a kind beside an honest client. The slow ones are gone in time, and the
// honest one is served throughout.
func TestSlowClients(t *testing.T) {
	for _, kind := range []struct {
		name  string
		begin string // what a slow client says at once
		drip  string // and then again and again; "" = nothing, and it reads nothing either
		count int
	}{
		{"headers", "GET /v1/pets HTTP/1.1\r\nHost: a\r\nX-Slow: ", "a", slowClients},
		{"body", rawPost("Content-Length: 100000") + "{", "a", slowClients},
		{"chunks", rawChunked(""), "1\r\na\r\n", slowClients},
		{"readers", repeat(rawTarget("/v1/pets?large"), 64), "", slowReaders},
	} {
		t.Run(kind.name, func(t *testing.T) {
			if kind.drip != "" { // not for slow readers: the memory for their responses changes until the kernel takes no more of these
				if each := memoryOf(t, kind.begin, kind.count); each > slowBytesMax {
					t.Errorf("a slow connection costs %d bytes, want at most %d", each, slowBytesMax)
				}
			}
			r, held := newSlowRig(t, slowReadTimeout)
			clients, honest := r.openSlow(t, kind.begin, kind.count)
			began, pace := time.Now(), time.NewTicker(50*time.Millisecond)
			defer pace.Stop()
			for held() > 1 {
				<-pace.C
				for _, c := range clients {
					_, _ = io.WriteString(c, kind.drip) // to one that is gone, it fails
				}
				honest.ask(t, rawGet()).expect(t, "the honest client", "200")
				if took := time.Since(began); took > goneWithin {
					t.Fatalf("after %v, %d slow clients are there", took, held()-1)
				}
			}
			fmt.Printf("figure: %d slow %s: gone after %.1f s\n", kind.count, kind.name, time.Since(began).Seconds())
		})
	}
}

// openSlow opens slow connections, says the beginning on each, and returns them with an honest client. Connections are accepted in
// order, so when that one is answered, the server has accepted all of them.
func (r *rig) openSlow(t *testing.T, begin string, count int) (clients []net.Conn, honest *rawClient) {
	t.Helper()
	for range count {
		c, err := net.Dial("tcp", r.address) // without the buffer of a rawClient: its memory is measured
		must.Do(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_ = c.(*net.TCPConn).SetReadBuffer(4096) // the server soon notices a client that does not read
		must.Get[int](t)(io.WriteString(c, begin))
		clients = append(clients, c)
	}
	honest = r.dial(t)
	honest.ask(t, rawGet())
	return clients, honest
}

// memoryOf returns what a slow connection costs, the client's end included. The read timeout is so long that no connection ends while
// the memory is measured.
func memoryOf(t *testing.T, begin string, count int) int64 {
	t.Helper()
	r, held := newSlowRig(t, time.Hour)
	r.ask(t, rawGet())
	before := memory()
	r.openSlow(t, begin, count)
	used := memory() - before
	if open := held(); open != count+2 {
		t.Errorf("the server holds %d connections, want %d", open, count)
	}
	return used / int64(count)
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

package http1

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"petgate/shared/testkit/must"
)

// Another goroutine may close an idle connection or abandon one at any moment. If Begin came first,
// the request is served. Otherwise no request is served.
func TestClosedByOthers(t *testing.T) {
	const request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	serve := func(c *Conn) error {
		var q Request
		var b Body
		err := c.Await()
		if err == nil {
			err = c.ReadHead(&q, &b)
		}
		if !c.Begin() {
			return io.EOF
		}
		return err
	}
	f := func(when string, prepare func(*Conn), isClosed, isAbandoned, isReplyAbandoned, isServed bool) {
		t.Helper()
		try := func(how string, leave func(*Conn) bool, want bool) {
			t.Helper()
			c, _ := newConn(request, request)
			prepare(c)
			must.Equal(t, leave(c), want, "%s: %s", when, how)
			must.Equal(t, serve(c) == nil, isServed && !want, "%s: %s: the next request is served", when, how)
		}
		try("ended", func(c *Conn) bool { c.CloseIdle(); return c.is(ending) }, isClosed)
		try("abandoned", (*Conn).Abandon, isAbandoned)
		try("abandoned in the reply", (*Conn).AbandonReply, isReplyAbandoned)
	}
	f("idle", func(*Conn) {}, true, true, false, true)
	f("arriving", func(c *Conn) { c.move(idle, arriving) }, false, true, false, true)
	f("serving", func(c *Conn) { _ = serve(c) }, false, false, false, false)
	f("replying", func(c *Conn) { _ = serve(c); c.Next(time.Now()) }, false, false, true, true)
}

// Long heads share a budget. Above it, a head gets a buffer only if another head gives one up.
// Trailers may use only half of the budget.
func TestBuffersShareABudget(t *testing.T) {
	limits := testLimits
	size := NewBuffers(&limits).size
	limits.Heads = NewBudget(4 * size)
	p := NewBuffers(&limits)
	isFreed := false
	free := func() bool { return isFreed }
	var held []*[]byte
	for range 3 { // half of the budget, and what exceeds it
		held = append(held, p.get(nil))
	}
	must.Equal(t, p.get(nil) == nil, true, "trailers leave half")
	held = append(held, p.get(free))
	must.Equal(t, p.get(free) == nil, true, "a fifth buffer is refused")
	isFreed = true
	held = append(held, p.get(free))
	if held[4] == nil {
		t.Error("no buffer although one is about to return")
	}
	for _, b := range held {
		p.put(b)
	}
	must.Equal(t, limits.Heads.Used(), 0, "bytes that are still taken")
}

// Each phase of a request has its time: until it begins, the head, the body, each further part of a
// long body, the response and its parts.
func TestTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, client := net.Pipe()
		var sending sync.WaitGroup
		defer sending.Wait()
		defer near.Close()
		var c Conn
		c.Init(
			near,
			&Settings{
				Limits:   testLimits,
				Timeouts: Timeouts{Read: 4 * time.Second, Write: 5 * time.Second, Idle: 75 * time.Second},
			},
			nil,
		)
		sending.Go(func() {
			head := "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n"
			for _, said := range []string{head, "\r\n", "hello", "bye!"} {
				time.Sleep(3 * time.Second)
				_, _ = client.Write([]byte(said))
			}
			time.Sleep(70 * time.Second)
			_, _ = client.Write([]byte("GET"))
			_, _ = io.Copy(io.Discard, client)
		})
		var q Request
		var b Body
		must.Do(t, errors.Join(c.Await(), c.ReadHead(&q, &b), c.ReadBody(&q, &b, 5), c.ReadPart(&b)))
		must.Equal(t, string(b.Bytes), "bye!", "the last part")
		must.Equal(t, c.Begin(), true, "whether the request may have a response")
		c.Next(time.Now())
		replied := time.Now()
		must.Equal(t, KindOf(c.Await()), TimedOut, "the second head")
		must.Equal(t, time.Since(replied), 74*time.Second, "idle, and then waiting for the head")
		time.Sleep(6 * time.Second) // longer than a part may take
		c.RestartWriteTimeout()
		must.Get[int](t)(c.Write([]byte("a part")))
	})
}

// halfClosable is a stream that can also be closed for writing only. unread says that the client
// has sent something.
type halfClosable struct {
	stream
	unread               error
	isHalfOpen, isClosed bool
}

func (c *halfClosable) Close() error      { c.isClosed = true; return nil }
func (c *halfClosable) CloseWrite() error { c.isHalfOpen = true; return nil }
func (c *halfClosable) Check() error      { return c.unread }

// A connection that ends with a response lingers, so that what the client has sent after the
// request does not cut the response off. There is nothing to wait for if the client has announced
// its last request, and has sent nothing else. Lingering connections have few places, and read only
// while half of these are free.
func TestLingering(t *testing.T) {
	const request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
	for _, f := range []struct {
		name    string
		isLast  bool
		sent    string
		unread  error
		taken   int // places
		lingers bool
		reads   bool
	}{
		{"the last request", true, request, nil, 0, false, false},
		{"a request that is not the last", false, request, nil, 0, true, true},
		{"the last request, and more in the same packet", true, request + request, nil, 0, true, true},
		{"the last request, and more that was not read", true, request, io.ErrUnexpectedEOF, 0, true, true},
		{"half of the places are taken", false, request, nil, 4, true, false},
		{"all places are taken", false, request, nil, 8, false, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, under := &Conn{}, &halfClosable{unread: f.unread}
			under.pieces = [][]byte{[]byte(f.sent)}
			places := NewBudget(8)
			places.Take(f.taken)
			c.Init(under, &Settings{Limits: testLimits, Buffers: NewBuffers(&testLimits), Lingering: places}, nil)
			var q Request
			var b Body
			if err := c.Await(); err != nil || c.ReadHead(&q, &b) != nil || !c.Begin() {
				t.Fatalf("%s: %v", f.name, err)
			}
			c.Finish(time.Now(), f.isLast)
			const pieces = 100
			for range pieces {
				under.pieces = append(under.pieces, []byte(request))
			}
			var want time.Duration
			switch {
			case f.reads:
				want = pieces * lingerPause // a stream has no deadline
			case f.lingers:
				want = lingerTime
			}
			began := time.Now()
			if err := c.Close(); err != nil || !under.isClosed || under.isHalfOpen != f.lingers ||
				places.Used() != int64(f.taken) {
				t.Errorf("%s: %v, closed: %t, has lingered: %t, %d places", f.name, err, under.isClosed,
					under.isHalfOpen, places.Used())
			}
			if took, isRead := time.Since(began), len(under.pieces) == 0; isRead != f.reads || took != want {
				t.Errorf("%s: closed after %v, want %v; all was read: %t", f.name, took, want, isRead)
			}
		})
	}
}

package http1

import (
	"bytes"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Timeouts limit how long a client may take.
type Timeouts struct {
	Read  time.Duration // for a request's head, and again for its body
	Write time.Duration // to take a response
	Idle  time.Duration // to begin the next request
}

// Settings are shared by all connections of a server.
type Settings struct {
	Limits   Limits
	Timeouts Timeouts
	Buffers  *Buffers

	// MakeRoom frees a large buffer when the budget for heads is used up, and reports whether it
	// did. Conns call it from their own goroutines.
	MakeRoom func() bool

	Lingering *Budget // how many connections may linger
}

// Owner is the server's part of a connection.
type Owner interface {
	// HeadIsSlow is called when a head holds a large buffer and has not arrived at once.
	HeadIsSlow()
	// Lingers is called when the connection begins to linger. It serves no more requests.
	Lingers()
}

// Conn is a client's connection, and the only reader of its bytes. For each request, the server
// calls Await, then ReadHead, then ReadBody until the body is complete, and Next when the response
// has been made. Before it responds, it calls Begin.
//
// One goroutine at a time may use a Conn. Only CloseIdle, Abandon and AbandonReply may come from
// another one.
type Conn struct {
	net.Conn
	settings *Settings
	owner    Owner // may be nil
	reader   Reader
	state    atomic.Uint32 // a connState
	now      time.Time     // the last reading of the clock; timeouts count from it
	head     []byte        // the head that Await has found, in the buffer
	isLast   bool          // the client has said that it sends nothing after the request
	closing  sync.Once

	small [smallBytes]byte
}

// smallBytes is the whole buffer of an idle connection. Most requests fit.
const smallBytes = 512

// connState is the state of a connection.
//
//	idle ──first byte──► arriving ──Begin──► serving ──Next──► replying ──Await──► idle
//	 │                      │                   └──Finish──► ending
//	 ├──Abandon─────────────┴──Abandon──► closed ◄──AbandonReply── replying
//	 └──CloseIdle──► ending
//
// A request is served or its connection is closed by another goroutine, never both: Begin,
// CloseIdle and Abandon leave the states idle and arriving by one compare-and-swap.
type connState uint32

const (
	idle     connState = iota // between two requests
	arriving                  // a part of a request is there
	serving                   // the server makes a response
	replying                  // the response is made; the server writes it
	ending                    // no more requests are read; Close may linger
	closed                    // closed by another goroutine before Begin
)

// A connection that the server ends lingers first: a close with unread bytes sends a reset, which
// can overtake the response (RFC 9112, section 9.6). What is read and discarded meanwhile must not
// delay other clients. So there is a pause after each piece, and nothing is read while more than
// half of the places for lingering connections are taken.
const (
	lingerTime  = time.Second
	lingerBytes = 1 << 20
	lingerPause = 20 * time.Millisecond
)

// Init prepares the zero c for the connection nc.
func (c *Conn) Init(nc net.Conn, s *Settings, owner Owner) {
	c.Conn, c.settings, c.owner = nc, s, owner
	c.reader = Reader{buffer: buffer{buf: c.small[:]}, from: nc, small: c.small[:], pool: s.Buffers}
	c.finishBy(time.Now(), s.Timeouts.Read)
}

func (c *Conn) is(s connState) bool { return connState(c.state.Load()) == s }
func (c *Conn) enter(s connState)   { c.state.Store(uint32(s)) }

// move changes the state if it is the one that is expected.
func (c *Conn) move(from, to connState) bool {
	return c.state.CompareAndSwap(uint32(from), uint32(to))
}

// Abandon makes c unusable unless a request is served, and reports whether it did. Begin fails
// then. The caller closes the connection below c, and does not wait for the client.
func (c *Conn) Abandon() bool { return c.move(idle, closed) || c.move(arriving, closed) }

// AbandonReply makes c unusable while its response is written, and reports whether it did. The
// client gets a part of the response, so this is for clients that do not read. The caller closes
// the connection below c, as after Abandon.
func (c *Conn) AbandonReply() bool { return c.move(replying, closed) }

// Begin reports whether the request that has arrived, or could not be read, may have a response.
// Until the response is written, c cannot be abandoned. If it was abandoned before, Begin returns
// false.
func (c *Conn) Begin() bool {
	if c.move(arriving, serving) || c.move(idle, serving) {
		return true
	}
	c.reader.drop()
	return false
}

// Await blocks until the head of a request has arrived. It returns io.EOF if the connection ended
// or timed out before a request began. It returns another error if the head cannot be read.
func (c *Conn) Await() error {
	c.move(replying, idle)
	if c.is(ending) {
		return io.EOF
	}
	c.reader.shrink()
	err := c.awaitHead()
	if err == io.EOF {
		c.reader.drop()
	}
	return err
}

// awaitHead reads until c.head has the head of a request.
func (c *Conn) awaitHead() error {
	r := &c.reader
	var scanned int
	var hasBlank, isSlow bool
	for {
		if err := c.skipBlank(&hasBlank); err != nil {
			return err
		}
		switch head, found := r.head(&scanned); found {
		case complete:
			c.head = head
			return nil
		case broken:
			return errLineEnd
		}
		if r.Buffered() > 0 && c.move(idle, arriving) {
			c.finishBy(time.Now(), c.settings.Timeouts.Read)
		}
		if r.large != nil && !isSlow && c.owner != nil {
			isSlow = true
			c.owner.HeadIsSlow()
		}
		err := r.makeRoom(c.settings.MakeRoom)
		if err == nil {
			err = r.fill()
		}
		if err != nil {
			return c.unreadable(err)
		}
	}
}

// unreadable returns why the head of a request cannot be read.
func (c *Conn) unreadable(err error) error {
	unused := c.reader.unused()
	switch {
	case len(unused) == 0:
		if KindOf(err) == TimedOut {
			c.move(idle, ending) // Close lingers: a request may be on its way
		}
		return io.EOF
	case err == errFieldsTooLarge && bytes.IndexByte(unused, '\n') < 0:
		return errTargetTooLong
	}
	return err
}

// skipBlank skips one empty line before a request, which old clients send after a body (RFC 9112,
// section 2.2). It refuses at once bytes that cannot begin a request.
func (c *Conn) skipBlank(hasBlank *bool) error {
	r := &c.reader
	if bytes.HasPrefix(r.unused(), crlf) && !*hasBlank {
		*hasBlank = true
		r.start += len(crlf)
	}
	b := r.unused()
	if len(b) == 0 || is(b[0], tokenByte) {
		return nil
	}
	if mayBeBlank := b[0] == '\r' && !*hasBlank; !mayBeBlank {
		return errNotRequest
	}
	return nil
}

// ReadHead parses the head that Await has found and determines the framing of the body.
func (c *Conn) ReadHead(q *Request, b *Body) error {
	head := c.head
	c.head = nil
	if err := q.Read(head, &c.settings.Limits); err != nil {
		return err
	}
	c.reader.shrink()
	b.frame(q.isChunked, q.length)
	if !b.IsComplete() {
		c.finishBy(time.Now(), c.settings.Timeouts.Read)
	}
	return nil
}

const continueLine = "HTTP/1.1 100 Continue\r\n\r\n"

// ReadBody reads the body until it is complete, or until it has pauseAt bytes, at most
// PartBytesMax, and more follow. It first sends 100 (Continue) to a client that waits for it.
func (c *Conn) ReadBody(q *Request, b *Body, pauseAt int) error {
	if q.AwaitsContinue {
		q.AwaitsContinue = false
		if c.reader.Buffered() == 0 { // otherwise the client has not waited
			if _, err := io.WriteString(c, continueLine); err != nil {
				return failed(err)
			}
		}
	}
	err := c.reader.readBody(b, &c.settings.Limits, pause{pauseAt, never})
	c.reader.shrink()
	return err
}

// ReadPart replaces the part of the body that has been read by the next one, which is full unless
// it is the last one. Each part may take as long as a whole body. Another goroutine may write a
// response meanwhile.
func (c *Conn) ReadPart(b *Body) error {
	if err := c.Conn.SetReadDeadline(time.Now().Add(c.settings.Timeouts.Read)); err != nil {
		return failed(err)
	}
	if c.is(ending) {
		return errStopped
	}
	err := c.reader.readPart(b, &c.settings.Limits, never)
	c.reader.shrink()
	return err
}

// StopReading ends ReadPart, and no more requests are read. It is for another goroutine than
// ReadPart's.
func (c *Conn) StopReading() {
	c.move(serving, ending)
	_ = c.Conn.SetReadDeadline(time.Unix(1, 0))
}

// IsEnding reports whether no more requests are read.
func (c *Conn) IsEnding() bool { return c.is(ending) }

// Next prepares c for the next request. The last response was made at now, and is not written yet.
func (c *Conn) Next(now time.Time) {
	if !c.is(ending) {
		c.enter(replying)
		c.finishBy(now, c.settings.Timeouts.Idle)
	}
}

// Finish ends the connection after the current response, which was made at now: no more requests
// are read. Close lingers if the client may have sent something after the request. isLast says that
// the request was read whole, and that the client has announced that it is the last one.
func (c *Conn) Finish(now time.Time, isLast bool) {
	c.now, c.isLast = now, isLast && c.reader.Buffered() == 0
	c.reader.drop()
	c.enter(ending)
}

// finishBy makes reads fail after timeout from now.
func (c *Conn) finishBy(now time.Time, timeout time.Duration) {
	c.now = now
	_ = c.Conn.SetReadDeadline(now.Add(timeout)) // if the connection is closed, the read fails too
}

// RestartWriteTimeout gives the client the whole time again, for the next part of a response.
func (c *Conn) RestartWriteTimeout() { c.now = time.Now() }

// Write writes a response, or a part of it.
func (c *Conn) Write(p []byte) (int, error) {
	if err := c.Conn.SetWriteDeadline(c.now.Add(c.settings.Timeouts.Write)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// CloseIdle ends the connection if no part of a request has arrived since the last response. Await
// and Begin fail then, and their caller closes the connection.
func (c *Conn) CloseIdle() {
	if c.move(idle, ending) {
		_ = c.Conn.SetReadDeadline(time.Unix(1, 0)) // Await may be waiting
	}
}

// Close closes the connection. If the server has ended it, it lingers first, unless nothing more
// can come.
func (c *Conn) Close() (err error) {
	c.closing.Do(func() {
		if c.is(ending) && !(c.isLast && c.isDrained()) {
			c.linger()
		}
		err = c.Conn.Close()
	})
	return err
}

// under returns the connection, without TLS.
func (c *Conn) under() net.Conn {
	if over, ok := c.Conn.(interface{ NetConn() net.Conn }); ok {
		return over.NetConn()
	}
	return c.Conn
}

// isDrained reports whether the client is still there and has sent nothing that was not read.
func (c *Conn) isDrained() bool {
	socket, ok := c.under().(interface{ Check() error })
	return ok && socket.Check() == nil
}

// discarded has buffers for what is read after the last request.
var discarded = sync.Pool{New: func() any { return new([discardedBytes]byte) }}

const discardedBytes = 128 << 10

// linger ends the sending side, and waits for the end of the client's side. If all places are
// taken, it does nothing.
func (c *Conn) linger() {
	places := c.settings.Lingering
	if !places.Take(1) {
		return
	}
	defer places.Give(1)
	if c.owner != nil {
		c.owner.Lingers()
	}
	half, ok := c.Conn.(interface{ CloseWrite() error })
	until := time.Now().Add(lingerTime)
	if !ok || half.CloseWrite() != nil || c.Conn.SetReadDeadline(until) != nil {
		return
	}
	piece := discarded.Get().(*[discardedBytes]byte)
	defer discarded.Put(piece)
	for rest := lingerBytes; rest > 0 && !places.IsTight(); {
		n, err := c.under().Read(piece[:]) // what is discarded need not be decrypted
		if err != nil {
			return
		}
		rest -= n
		time.Sleep(lingerPause)
	}
	time.Sleep(time.Until(until))
}

package edge

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"petgate/shared/socket"
)

// wire is a client's connection, and the only reader of its bytes. It cuts the stream into requests, has head.read decide on
// each, reads the body, and then gives fasthttp a request of its own words: a method, whether the connection stays open, and
// no more. So there is one parser whose reading counts, and none of fasthttp's tolerances (bare LF, folded fields,
// Content-Length beside Transfer-Encoding, stray bytes around chunk sizes) can let a second reading in. Also, an exchange
// begins when its request is there: a slow client holds what it has sent and nothing else.
//
// A request that cannot be read is given to fasthttp too, as an empty one that closes: its exchange carries the refusal. What
// comes after it on the connection is never looked at.
//
// fasthttp reads a wire from one goroutine at a time; only Close may come from another.
type wire struct {
	net.Conn
	edge  *Edge
	peer  netip.Addr
	isTLS bool

	exchange *exchange // of the request that is being read or served; nil between requests
	out      []byte    // what fasthttp is to read next

	window // of small, or of *large
	large  *[]byte

	expects    bool        // the client waits for 100 (Continue)
	isTimed    atomic.Bool // the deadline is that of a request that has begun and is not there yet
	hasBlank   bool        // an empty line came before the request
	isFinished bool        // nothing more is read

	looked        time.Time // at the clock: the time-out of what is written next counts from it
	deadline      time.Time // for what is read next
	slack         time.Duration
	reads, writes socket.Deadline
	lingers       atomic.Bool
	closing       sync.Once

	small [smallBytes]byte
}

// smallBytes is all the buffer that an idle connection holds. Most requests fit.
const smallBytes = 512

// What fasthttp reads instead of what the client wrote. It needs to know whether the answer may have content, so HEAD stays
// HEAD; any other method is GET to it. HTTP/1.0 clients are told of a connection that stays open.
var (
	cannedGet       = []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	cannedHead      = []byte("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
	cannedGetClose  = []byte("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	cannedHeadClose = []byte("HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	cannedGetOld    = []byte("GET / HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n")
	cannedHeadOld   = []byte("HEAD / HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n")
	continueLine    = "HTTP/1.1 100 Continue\r\n\r\n"
)

// lingering bounds what is read and thrown away after a refusal: a close with unread bytes would be a reset, and could
// overtake the answer (RFC 9112, section 9.6).
const (
	lingerTime  = time.Second
	lingerBytes = 1 << 20
)

func newWire(c net.Conn, e *Edge) *wire {
	w := &wire{Conn: c, edge: e}
	w.finishBy(time.Now(), e.cfg.ReadTimeout)
	if addr, err := netip.ParseAddrPort(c.RemoteAddr().String()); err == nil {
		w.peer = addr.Addr().Unmap()
	}
	_, w.isTLS = c.(*tls.Conn)
	w.buf = w.small[:]
	return w
}

// Read gives fasthttp its version of the next request, when that is all there. It returns io.EOF where none has begun.
func (w *wire) Read(p []byte) (int, error) {
	if len(w.out) == 0 {
		if w.isFinished {
			return 0, io.EOF
		}
		w.shrink()
		w.hasBlank, w.expects = false, false
		r, err := w.readRequest()
		w.isTimed.Store(false)
		if err != nil {
			return 0, err
		}
		if r.isRefused() {
			w.refuse(r)
		} else {
			w.out = w.exchange.head.canned()
		}
	}
	n := copy(p, w.out)
	w.out = w.out[n:]
	return n, nil
}

// refuse makes the request one that is refused, and the last one of the connection.
func (w *wire) refuse(r refusal) {
	if w.exchange == nil {
		w.exchange = w.edge.exchanges.get(w)
	}
	x := w.exchange
	x.broken = r
	x.head.closes = true
	w.out = x.head.canned()
	w.isFinished = true
	w.lingers.Store(true)
}

func (h *head) canned() []byte {
	isHead := string(h.method) == http.MethodHead
	switch {
	case h.closes && isHead:
		return cannedHeadClose
	case h.closes:
		return cannedGetClose
	case h.version == 0 && isHead:
		return cannedHeadOld
	case h.version == 0:
		return cannedGetOld
	case isHead:
		return cannedHead
	}
	return cannedGet
}

// readRequest blocks until a request is there. The error is io.EOF where none has begun; any other failure refuses it.
func (w *wire) readRequest() (refusal, error) {
	block, r, err := w.readHead()
	if err != nil || r.isRefused() {
		return r, err
	}
	w.exchange = w.edge.exchanges.get(w)
	x := w.exchange
	x.block = append(x.block[:0], block...) // the buffer is needed for what follows
	h := &x.head
	if r := h.read(x.block, &w.edge.cfg); r.isRefused() {
		return r, nil
	}
	if h.isChunked || h.length > 0 {
		w.expects = h.expects
		w.time()
		return w.readBody(x), nil
	}
	return refusal{}, nil
}

// readHead reads up to the empty line.
func (w *wire) readHead() (block []byte, r refusal, err error) {
	for scanned := 0; ; {
		if r := w.skipBlank(); r.isRefused() {
			return nil, r, nil
		}
		switch block, found := w.block(&scanned); found {
		case complete:
			return block, refusal{}, nil
		case broken:
			return nil, bad(badLineEnd), nil
		}
		switch hasBegun := len(w.unused()) > 0; {
		case len(w.unused()) > w.edge.cfg.headBytesMax():
			return nil, w.tooLarge(), nil
		case hasBegun && !w.isTimed.Load():
			w.time()
		}
		if r := w.fill(); r.isRefused() {
			if len(w.unused()) == 0 {
				return nil, refusal{}, io.EOF
			}
			return nil, r, nil
		}
	}
}

const badLineEnd = "a line does not end in CRLF"

// skipBlank lets one empty line before a request pass, as clients once sent it after a body (RFC 9112, section 2.2), and
// refuses at once what cannot become a request.
func (w *wire) skipBlank() refusal {
	if bytes.HasPrefix(w.unused(), crlf) && !w.hasBlank {
		w.hasBlank = true
		w.start += len(crlf)
	}
	if b := w.unused(); len(b) > 0 && !is(b[0], tokenByte) && (b[0] != '\r' || w.hasBlank) {
		return bad("what was sent is no request")
	}
	return refusal{}
}

var crlf = []byte("\r\n")

// tooLarge is why a head that fills its buffer is refused.
func (w *wire) tooLarge() refusal {
	if bytes.IndexByte(w.unused(), '\n') < 0 {
		return refusal{reason: uriTooLong}
	}
	return refusal{reason: headersTooLarge}
}

// readBody reads what the framing says (RFC 9112, section 6.3).
func (w *wire) readBody(x *exchange) refusal {
	if x.head.isChunked {
		return w.readChunks(x)
	}
	return w.readData(x, int(x.head.length))
}

// readData appends n bytes to the body, whose room grows with what has come and not with what was announced.
func (w *wire) readData(x *exchange, n int) refusal {
	for n > 0 {
		x.body = slices.Grow(x.body, min(n, max(bodyStepBytes, len(x.body))))
		room := x.body[len(x.body):cap(x.body)]
		room = room[:min(n, len(room))]
		got := w.take(room)
		if got == 0 {
			var r refusal
			if got, r = w.receive(room); r.isRefused() {
				return r
			}
		}
		x.body = x.body[:len(x.body)+got]
		n -= got
	}
	return refusal{}
}

const bodyStepBytes = 1024

// readChunks reads the chunked coding (RFC 9112, section 7.1). Extensions are ignored, as they must be, and trailer fields
// dropped, as they may be (section 7.1.2): none of them may frame, route or authenticate (RFC 9110, section 6.5.1).
func (w *wire) readChunks(x *exchange) refusal {
	for {
		line, r := w.readLine(bad("a line of the chunked coding is too long"))
		if r.isRefused() {
			return r
		}
		size, ok := parseChunkSize(line)
		switch {
		case !ok:
			return bad("the size of a chunk is malformed")
		case size > int64(w.edge.cfg.BodyBytesMax-len(x.body)):
			return refusal{reason: bodyTooLarge}
		case size == 0:
			return w.readTrailers()
		}
		if r := w.readData(x, int(size)); r.isRefused() {
			return r
		}
		if line, r = w.readLine(bad(chunkTooLong)); r.isRefused() {
			return r
		}
		if len(line) > 0 {
			return bad(chunkTooLong)
		}
	}
}

const chunkTooLong = "a chunk is longer than its size"

func (w *wire) readTrailers() refusal {
	for count, size := 0, 0; ; count++ {
		line, r := w.readLine(refusal{reason: headersTooLarge})
		if r.isRefused() || len(line) == 0 {
			return r
		}
		if size += len(line); size > w.edge.cfg.HeaderBytesMax || count == w.edge.cfg.FieldsMax {
			return refusal{reason: headersTooLarge}
		}
		if name, _, ok := cutField(line); !ok || kindOf(name) != endToEnd {
			return bad("a trailer field is malformed, or none that may stand there")
		}
	}
}

// readLine reads a line without its CRLF. The line is valid until the next read; one that does not fit small is tooLong.
func (w *wire) readLine(tooLong refusal) ([]byte, refusal) {
	for scanned := 0; ; {
		switch line, found := w.line(&scanned); found {
		case complete:
			return line, refusal{}
		case broken:
			return nil, bad(badLineEnd)
		}
		if scanned >= smallBytes {
			return nil, tooLong
		}
		if r := w.fill(); r.isRefused() {
			return nil, r
		}
	}
}

// fill reads more into the buffer, which is enlarged for room.
func (w *wire) fill() refusal {
	if len(w.room()) == 0 {
		w.enlarge()
	}
	n, r := w.receive(w.room())
	w.end += n
	return r
}

// receive reads from the connection.
func (w *wire) receive(p []byte) (int, refusal) {
	const isBroken = "the connection ended within the request"
	if w.expects {
		w.expects = false
		if len(w.unused()) == 0 { // else the client has not waited
			if _, err := io.WriteString(w, continueLine); err != nil {
				return 0, bad(isBroken)
			}
		}
	}
	if t, changed := w.reads.Move(w.deadline, w.slack); changed {
		if err := w.Conn.SetReadDeadline(t); err != nil {
			return 0, bad(isBroken)
		}
	}
	n, err := w.Conn.Read(p)
	switch {
	case n > 0:
		return n, refusal{}
	case isTimeout(err):
		return 0, refusal{reason: requestTimeout}
	}
	return 0, bad(isBroken)
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// time gives what is read next, a head or a body, its time.
func (w *wire) time() {
	w.isTimed.Store(true)
	w.finishBy(time.Now(), w.edge.cfg.ReadTimeout)
}

// next readies w for the next request, the last one having ended just now.
func (w *wire) next(now time.Time) {
	w.exchange = nil
	w.finishBy(now, w.edge.cfg.IdleTimeout)
}

// finishBy has reads fail when timeout has passed since now.
func (w *wire) finishBy(now time.Time, timeout time.Duration) {
	w.looked, w.deadline, w.slack = now, now.Add(timeout), socket.Slack(timeout)
}

// Write writes an answer, or the line that asks a client to go on.
func (w *wire) Write(p []byte) (int, error) {
	timeout := w.edge.cfg.WriteTimeout
	if t, changed := w.writes.Move(w.looked.Add(timeout), socket.Slack(timeout)); changed {
		if err := w.Conn.SetWriteDeadline(t); err != nil {
			return 0, err
		}
	}
	return w.Conn.Write(p)
}

func (w *wire) enlarge() {
	large := w.edge.buffers.Get().(*[]byte)
	w.end = copy(*large, w.unused())
	w.start, w.large, w.buf = 0, large, *large
}

// shrink goes back to the small buffer as soon as what is left fits.
func (w *wire) shrink() {
	if w.large == nil || len(w.unused()) > len(w.small) {
		return
	}
	w.end = copy(w.small[:], w.unused())
	w.start, w.buf = 0, w.small[:]
	w.edge.buffers.Put(w.large)
	w.large = nil
}

// Close closes the connection, after it has let a refused client finish. It does nothing while a request arrives: then it is
// Shutdown that calls, to which fasthttp's view of the connection is that it is idle, and the answer will end it.
func (w *wire) Close() (err error) {
	if w.isTimed.Load() {
		return nil
	}
	w.closing.Do(func() {
		if w.lingers.Load() {
			w.linger()
		}
		err = w.Conn.Close()
		w.edge.connections.Add(-1)
	})
	return err
}

func (w *wire) linger() {
	half, ok := w.Conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil || w.Conn.SetReadDeadline(time.Now().Add(lingerTime)) != nil {
		return
	}
	for rest := lingerBytes; rest > 0; {
		n, err := w.Conn.Read(w.small[:])
		if err != nil {
			return
		}
		rest -= n
	}
}

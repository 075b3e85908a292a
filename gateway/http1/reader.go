package http1

import (
	"bytes"
	"errors"
	"io"
	"math"
	"sync"
)

// Limits bound a message.
type Limits struct {
	TargetBytesMax int     // of a request
	FieldBytesMax  int     // all header fields together, and again all trailer fields
	FieldsMax      int     // their number
	BodyBytesMax   int     // all parts together
	Heads          *Budget // for the large buffers of all connections; nil: no limit
	Bodies         *Budget // for the bodies of all connections; nil: no limit
	BodyStepBytes  int     // memory for a body grows in these steps as it arrives, not by the announced length
}

// Reader reads lines, heads and bodies from one side of a connection. It is for one goroutine at a
// time.
type Reader struct {
	buffer
	from io.Reader

	small []byte   // the first buffer
	large *[]byte  // replaces small if more is needed
	pool  *Buffers // where large comes from; nil: only small
}

// Buffers is a pool of large buffers, for heads that do not fit the small one of a connection.
type Buffers struct {
	pool   sync.Pool
	size   int
	budget *Budget
}

// NewBuffers returns a pool of buffers that hold the head of any request within the limits.
func NewBuffers(l *Limits) *Buffers {
	size := l.TargetBytesMax + l.FieldBytesMax + 4*l.FieldsMax + methodBytesMax + 64
	return &Buffers{sync.Pool{New: func() any { b := make([]byte, size); return &b }}, size, l.Heads}
}

// get returns a buffer, or nil if the budget is used up and free cannot free one. Without free, it
// leaves half of the budget to others. The freed buffer returns a little later, so the budget may
// be exceeded until then.
func (p *Buffers) get(free func() bool) *[]byte {
	if b := p.budget; b != nil {
		if free == nil && b.IsTight() {
			return nil
		}
		// The budget is taken before free is called: otherwise another head could take what free
		// releases.
		if b.used.Add(int64(p.size)) > b.most && (free == nil || !free()) {
			b.used.Add(-int64(p.size))
			return nil
		}
	}
	return p.pool.Get().(*[]byte)
}

func (p *Buffers) put(buffer *[]byte) {
	p.pool.Put(buffer)
	if p.budget != nil {
		p.budget.used.Add(-int64(p.size))
	}
}

// NewReader returns a Reader with a buffer of the given size. No line or head can be longer than
// that.
func NewReader(from io.Reader, size int) Reader {
	b := make([]byte, size)
	return Reader{buffer: buffer{buf: b}, from: from, small: b}
}

// Buffered returns how many bytes have been read from the connection but not used.
func (r *Reader) Buffered() int { return r.end - r.start }

// Discard drops the buffered bytes.
func (r *Reader) Discard() { r.start, r.end = 0, 0 }

// fill reads more into the buffer. A line or head that does not fit is too large.
func (r *Reader) fill() error {
	if err := r.makeRoom(nil); err != nil {
		return err
	}
	n, err := r.receive(r.room())
	r.end += n
	return err
}

// makeRoom replaces a small buffer that is full by a large one.
func (r *Reader) makeRoom(free func() bool) error {
	if len(r.room()) > 0 {
		return nil
	}
	if r.pool == nil || r.large != nil {
		return errFieldsTooLarge
	}
	large := r.pool.get(free)
	if large == nil {
		return errBusyHeads
	}
	r.end = copy(*large, r.unused())
	r.start, r.large, r.buf = 0, large, *large
	return nil
}

// receive reads at least one byte from the connection.
func (r *Reader) receive(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if n > 0 {
		return n, nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return 0, failed(err)
}

// drop discards the unused bytes and returns to the small buffer. Nothing more is read.
func (r *Reader) drop() {
	r.Discard()
	r.shrink()
}

// shrink returns to the small buffer if the unused bytes fit.
func (r *Reader) shrink() {
	if r.large == nil || len(r.unused()) > len(r.small) {
		return
	}
	r.end = copy(r.small, r.unused())
	r.start, r.buf = 0, r.small
	r.pool.put(r.large)
	r.large = nil
}

// readLine reads a line of at most bytesMax including its CRLF, and returns it without the CRLF.
// The result does not depend on packet boundaries. The line is valid until the next read.
func (r *Reader) readLine(bytesMax int, tooLong *Error) ([]byte, error) {
	for scanned := 0; ; {
		switch line, found := r.line(&scanned); {
		case found == broken:
			return nil, errLineEnd
		case found == complete && len(line)+len(crlf) > bytesMax, found == incomplete && len(r.unused()) >= bytesMax:
			return nil, tooLong
		case found == complete:
			return line, nil
		}
		if err := r.fill(); err != nil {
			return nil, err
		}
	}
}

var crlf = []byte("\r\n")

// Body is the content of a message. It is read in parts of at most PartBytesMax, and in steps: each
// continues where the last one paused.
type Body struct {
	Bytes []byte // the current part

	budget *Budget // from which held was taken
	held   int

	next         bodyPart
	left         int64 // bytes left of the content or of the current chunk
	passed       int64 // bytes of earlier parts
	trailers     int
	trailerBytes int
}

// PartBytesMax is the longest part of a body. A body that is not longer has one part.
const PartBytesMax = 64 << 10

// bodyPart is what comes next of a body.
type bodyPart uint8

const (
	bodyEnd   bodyPart = iota
	content            // as many bytes as Content-Length says
	chunkLine          // the line with a chunk's size
	chunkData
	chunkCRLF // after its data
	trailer
	restOfConnection // of a response that ends with its connection
)

// IsComplete reports whether all of the body has been read.
func (b *Body) IsComplete() bool { return b.next == bodyEnd }

// Size returns how many bytes have been read, with those of earlier parts.
func (b *Body) Size() int64 { return b.passed + int64(len(b.Bytes)) }

// grow makes room for at least n more bytes of a part.
func (b *Body) grow(n int) {
	if size := len(b.Bytes) + n; size > cap(b.Bytes) {
		b.Bytes = append(make([]byte, 0, max(size, min(2*cap(b.Bytes), PartBytesMax))), b.Bytes...)
	}
}

// Reset clears the body. It keeps its buffer.
func (b *Body) Reset() {
	if b.budget != nil {
		b.budget.used.Add(-int64(b.held))
	}
	*b = Body{Bytes: b.Bytes[:0]}
}

// frame begins a body with a given length, or a chunked one (RFC 9112, section 6.3).
func (b *Body) frame(isChunked bool, length int64) {
	switch {
	case isChunked:
		b.next = chunkLine
	case length > 0:
		b.next, b.left = content, length
	}
}

// chunkLineBytesMax bounds the line with a chunk's size, extensions included.
const chunkLineBytesMax = 512

// pause says where reading a body pauses before its end.
type pause struct {
	at      int // bytes of the part, when more follow
	waiting int // bytes of the part after which it does not wait for the connection
}

// never is more bytes than a body has.
const never = math.MaxInt

// readPart reads the next part of a body in place of the current one.
func (r *Reader) readPart(b *Body, l *Limits, waiting int) error {
	b.passed, b.Bytes = b.Size(), b.Bytes[:0]
	return r.readBody(b, l, pause{PartBytesMax, waiting})
}

// readBody reads until the body is complete, or until it pauses. It ignores chunk extensions,
// as RFC 9112 demands (section 7.1.1), and drops trailer fields, as it allows (section 7.1.2).
func (r *Reader) readBody(b *Body, l *Limits, p pause) error {
	for b.next != bodyEnd {
		var err error
		switch b.next {
		case content, chunkData, restOfConnection:
			if err := r.readData(b, l, p); err != nil || b.left > 0 {
				return err
			}
			if b.next == chunkData {
				b.next = chunkCRLF
			} else {
				b.next = bodyEnd
			}
			continue
		}
		if len(b.Bytes) >= p.waiting && bytes.IndexByte(r.unused(), '\n') < 0 {
			return nil
		}
		switch b.next {
		case chunkLine:
			err = r.readChunkLine(b, l)
		case chunkCRLF:
			var line []byte
			line, err = r.readLine(chunkLineBytesMax, errChunkEnd)
			if len(line) > 0 {
				err = errChunkEnd
			}
			b.next = chunkLine
		case trailer:
			err = r.readTrailer(b, l)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// isDue reports whether reading data of a body pauses.
func (r *Reader) isDue(b *Body, p pause) bool {
	return len(b.Bytes) >= p.at || len(b.Bytes) >= p.waiting && r.Buffered() == 0
}

// readData appends the rest of the content, of the chunk or of the connection to the part.
func (r *Reader) readData(b *Body, l *Limits, p pause) error {
	for b.left > 0 && !r.isDue(b, p) {
		wanted := int(min(b.left, int64(p.at-len(b.Bytes))))
		step := min(wanted, max(l.BodyStepBytes, len(b.Bytes)))
		if !b.hold(len(b.Bytes)+step, l.Bodies) {
			return errBusy
		}
		b.grow(step)
		room := b.Bytes[len(b.Bytes):cap(b.Bytes)]
		room = room[:min(wanted, len(room))]
		n := r.take(room)
		if n == 0 {
			var err error
			n, err = r.receive(room)
			if b.next == restOfConnection && errors.Is(err, io.EOF) {
				b.left = 0
				return nil
			} else if err != nil {
				return err
			}
		}
		b.Bytes = b.Bytes[:len(b.Bytes)+n]
		if b.left -= int64(n); b.Size() > int64(l.BodyBytesMax) { // it was not announced
			return errBodyTooLarge
		}
	}
	return nil
}

// hold takes the memory that n bytes need from the budget. Reset gives it back.
func (b *Body) hold(n int, budget *Budget) bool {
	if budget == nil || n <= b.held {
		return true
	}
	if !budget.Take(n - b.held) {
		return false
	}
	b.budget, b.held = budget, n
	return true
}

func (r *Reader) readChunkLine(b *Body, l *Limits) error {
	line, err := r.readLine(chunkLineBytesMax, errChunkLine)
	if err != nil {
		return err
	}
	size, ok := parseChunkSize(line)
	switch {
	case !ok:
		return errChunkSize
	case size > int64(l.BodyBytesMax)-b.Size():
		return errBodyTooLarge
	case size == 0:
		b.next = trailer
	default:
		b.next, b.left = chunkData, size
	}
	return nil
}

// readTrailer reads one trailer field, or the empty line after the last one. Trailer fields must
// not frame, route or authenticate (RFC 9110, section 6.5.1).
func (r *Reader) readTrailer(b *Body, l *Limits) error {
	line, err := r.readLine(l.FieldBytesMax+len(crlf), errFieldsTooLarge)
	if err != nil {
		return err
	}
	if len(line) == 0 {
		b.next = bodyEnd
		return nil
	}
	b.trailers++
	b.trailerBytes += len(line)
	if b.trailerBytes > l.FieldBytesMax || b.trailers > l.FieldsMax {
		return errFieldsTooLarge
	}
	if name, _, ok := cutField(line); !ok || kinds.Of(name) != endToEnd || EqualFold(name, "authorization") {
		return errTrailer
	}
	return nil
}

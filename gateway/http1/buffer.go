package http1

import "bytes"

// buffer holds bytes of a connection. The bytes from start to end have been read but not used.
type buffer struct {
	buf        []byte
	start, end int
}

func (b *buffer) unused() []byte { return b.buf[b.start:b.end] }

// room returns the free part of the buffer. It moves unused bytes to the front if needed. It
// returns nothing if they fill the buffer.
func (b *buffer) room() []byte {
	if b.start == b.end {
		b.start, b.end = 0, 0
	}
	if b.end == len(b.buf) && b.start > 0 {
		b.end = copy(b.buf, b.unused())
		b.start = 0
	}
	return b.buf[b.end:]
}

// take copies unused bytes to p.
func (b *buffer) take(p []byte) int {
	n := copy(p, b.unused())
	b.start += n
	return n
}

// found is the result of a search for the end of a line or of a head.
type found uint8

const (
	complete   found = iota
	incomplete       // more bytes are needed
	broken           // a line ends in a bare LF: some recipients take that for a line end (RFC 9112, section 2.2)
)

// line takes a line and returns it without its CRLF. The search starts at scanned, which is 0 at
// first.
func (b *buffer) line(scanned *int) ([]byte, found) {
	unused := b.unused()
	end := bytes.IndexByte(unused[*scanned:], '\n')
	if end < 0 {
		*scanned = len(unused)
		return nil, incomplete
	}
	end += *scanned
	if end == 0 || unused[end-1] != '\r' {
		return nil, broken
	}
	b.start += end + 1
	return unused[:end-1], complete
}

// head takes all lines up to and including the first empty one. The search starts at scanned, which
// is 0 at first.
func (b *buffer) head(scanned *int) ([]byte, found) {
	unused := b.unused()
	for {
		size := bytes.IndexByte(unused[*scanned:], '\n')
		if size < 0 {
			return nil, incomplete
		}
		end := *scanned + size
		if size == 0 || unused[end-1] != '\r' {
			return nil, broken
		}
		*scanned = end + 1
		if size == 1 {
			b.start += *scanned
			return unused[:*scanned], complete
		}
	}
}

// cutLine takes the first line off a head, without its CRLF. The head is one that buffer.head has
// taken: each of its lines ends in CRLF, and the last one is empty.
func cutLine(head []byte) (line, rest []byte) {
	end := bytes.IndexByte(head, '\n')
	return head[:end-1], head[end+1:]
}

package edge

import "bytes"

// window is a buffer: the bytes from start to end are read from a connection and not yet used.
type window struct {
	buf        []byte
	start, end int
}

func (w *window) unused() []byte { return w.buf[w.start:w.end] }

// room is where the next bytes go; the unused ones move for it. It is empty when they fill the buffer.
func (w *window) room() []byte {
	if w.start == w.end {
		w.start, w.end = 0, 0
	}
	if w.end == len(w.buf) && w.start > 0 {
		w.end = copy(w.buf, w.unused())
		w.start = 0
	}
	return w.buf[w.end:]
}

// take copies unused bytes to p.
func (w *window) take(p []byte) int {
	n := copy(p, w.unused())
	w.start += n
	return n
}

// found is what looking for the end of a line or of a block comes to.
type found uint8

const (
	complete   found = iota
	incomplete       // more has to be read
	broken           // a line ends in a bare LF, which RFC 9112, section 2.2, lets a recipient tolerate: two may then differ
)

// line takes a line and cuts its CRLF off. scanned is where it goes on looking, 0 at first.
func (w *window) line(scanned *int) ([]byte, found) {
	b := w.unused()
	end := bytes.IndexByte(b[*scanned:], '\n')
	if end < 0 {
		*scanned = len(b)
		return nil, incomplete
	}
	if end += *scanned; end == 0 || b[end-1] != '\r' {
		return nil, broken
	}
	w.start += end + 1
	return b[:end-1], complete
}

// block takes all lines up to and with the first empty one. scanned is where it goes on looking, 0 at first.
func (w *window) block(scanned *int) ([]byte, found) {
	b := w.unused()
	for {
		size := bytes.IndexByte(b[*scanned:], '\n')
		if size < 0 {
			return nil, incomplete
		}
		end := *scanned + size
		if size == 0 || b[end-1] != '\r' {
			return nil, broken
		}
		*scanned = end + 1
		if size == 1 {
			w.start += *scanned
			return b[:*scanned], complete
		}
	}
}

// cutLine takes a line off a block.
func cutLine(block []byte) (line, rest []byte) {
	end := bytes.IndexByte(block, '\n')
	return block[:end-1], block[end+1:]
}

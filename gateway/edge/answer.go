package edge

import (
	"errors"
	"io"
	"net/http"
	"slices"

	"petgate/shared/core/instant"
)

// answer is what an upstream said. Its slices point into its own copy of the head.
type answer struct {
	block  []byte
	fields []field  // those that are copied
	named  [][]byte // field names that Connection lists
	body   []byte

	status     int
	retryAfter int64          // seconds; 0 = not said so
	retryAt    instant.Millis // 0 = not set
	length     int64          // of the body, in an answer to HEAD too; -1 = not said
	isChunked  bool
	isReusable bool // the connection is good for another exchange
	isLast     bool // the upstream said that it closes the connection
}

func (a *answer) reset() {
	clear(a.fields)
	clear(a.named)
	*a = answer{block: a.block[:0], fields: a.fields[:0], named: a.named[:0], body: a.body[:0]}
	if cap(a.body) > pooledBytesMax {
		a.body = nil
	}
}

// errMalformed is an answer that breaks the grammar, or one that this gateway does not take.
var errMalformed = errors.New("the upstream's answer is malformed")

const interimMax = 8 // 1xx answers before the final one

// send writes a request, and waits for its answer to begin.
func (l *link) send(request []byte) error {
	n, err := l.Exchange(request, l.room())
	l.came(n)
	return err
}

// came takes up bytes of an answer that have been read into the room.
func (l *link) came(n int) {
	l.end += n
	l.hasBegun = l.hasBegun || n > 0
}

// sendLarge writes a request in two parts. The upstream may answer before it has the second.
func (l *link) sendLarge(head, body []byte) error {
	if err := l.Check(); err != nil {
		return err
	}
	if _, err := l.Write(head); err != nil {
		return err
	}
	_, err := l.Write(body)
	return err
}

// receive reads one answer to a request with that method. It is as strict as the reader of requests: where one answer ends
// decides whose answer the next one is.
func (l *link) receive(a *answer, isHead bool) error {
	for range interimMax {
		block, err := l.readBlock()
		if err != nil {
			return err
		}
		a.reset()
		a.block = append(a.block, block...)
		if err := a.read(); err != nil {
			return err
		}
		if a.status >= 200 {
			return l.readBody(a, isHead)
		}
		if a.status == 101 { // nobody asked for another protocol
			return errMalformed
		}
	}
	return errMalformed
}

func (l *link) readBlock() ([]byte, error) {
	for scanned := 0; ; {
		switch block, found := l.block(&scanned); found {
		case complete:
			return block, nil
		case broken:
			return nil, errMalformed
		}
		if err := l.fill(); err != nil {
			return nil, err
		}
	}
}

// fill reads more into the buffer. A line or head that does not fit is malformed.
func (l *link) fill() error {
	room := l.room()
	if len(room) == 0 {
		return errMalformed
	}
	n, err := l.Read(room)
	l.came(n)
	if n > 0 {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// read reads status line and fields (RFC 9112, sections 4 and 5).
func (a *answer) read() error {
	line, rest := cutLine(a.block)
	if len(line) < len("HTTP/1.1 200") || string(line[:7]) != "HTTP/1." || line[7] != '1' && line[7] != '0' || line[8] != ' ' ||
		!all(line[9:12], digitByte) || len(line) > 12 && line[12] != ' ' || !all(line[12:], valueByte) {
		return errMalformed
	}
	status, _ := parseDigits(line[9:12])
	if status < 100 || status > 599 {
		return errMalformed
	}
	a.status, a.length, a.isReusable = int(status), -1, line[7] == '1'
	isOld := line[7] == '0'
	for {
		if line, rest = cutLine(rest); len(line) == 0 {
			break
		}
		name, value, ok := cutField(line)
		if !ok {
			return errMalformed
		}
		if err := a.readField(name, value); err != nil {
			return err
		}
	}
	a.fields = dropNamed(a.fields, a.named)
	if a.isChunked && (a.length >= 0 || isOld) {
		return errMalformed
	}
	return nil
}

// readField takes in what frames the answer, and keeps what is copied.
func (a *answer) readField(name, value []byte) error {
	switch {
	case equalFold(name, "content-length"):
		n, ok := parseDigits(value)
		if !ok || a.length >= 0 {
			return errMalformed
		}
		a.length = n
	case equalFold(name, "transfer-encoding"):
		if a.isChunked || !equalFold(value, "chunked") {
			return errMalformed
		}
		a.isChunked = true
	case equalFold(name, "connection"):
		for len(value) > 0 {
			var option []byte
			switch option, value = nextElement(value); {
			case equalFold(option, "close"):
				a.isReusable, a.isLast = false, true
			case len(a.named) == namedMax:
				return errMalformed
			case len(option) > 0:
				a.named = append(a.named, option)
			}
		}
	case equalFold(name, "retry-after"):
		if n, ok := parseDigits(value); ok {
			a.retryAfter = n
		} else if t, err := http.ParseTime(string(value)); err == nil {
			a.retryAt = instant.Of(t)
		}
	case !isOurs(name):
		a.fields = append(a.fields, field{name, value})
	}
	return nil
}

// isOurs reports whether a field of an answer is hop-by-hop, or one that the gateway sets: the upstream's own is not copied.
func isOurs(name []byte) bool {
	if equalFold(name[:min(len(name), len(limitPrefix))], limitPrefix) {
		return true
	}
	for _, known := range oursByLength[min(len(name), len(oursByLength)-1)] {
		if equalFold(name, known) {
			return true
		}
	}
	return false
}

const limitPrefix = "x-ratelimit"

var oursByLength = func() (table [24][]string) {
	for _, name := range []string{
		"keep-alive", "proxy-connection", "proxy-authenticate", "te", "trailer", "upgrade", // RFC 9110, section 7.6.1
		"ratelimit", "ratelimit-policy", "x-request-id", "x-key-expires", "x-stability", "deprecation", "sunset",
		"date", "server",
	} {
		table[len(name)] = append(table[len(name)], name)
	}
	return table
}()

// readBody reads what the framing says (RFC 9112, section 6.3).
func (l *link) readBody(a *answer, isHead bool) (err error) {
	bytesMax := int64(l.upstream.cfg.UpstreamBodyBytesMax)
	switch {
	case isHead || a.status == 204 || a.status == 304:
	case a.length > bytesMax:
		return errMalformed
	case a.isChunked:
		err = l.readChunks(a, bytesMax)
	case a.length >= 0:
		err = l.readData(a, a.length)
	default:
		err = l.readToEnd(a, bytesMax)
	}
	// Bytes past the end belong to no request that was sent.
	a.isReusable = a.isReusable && len(l.unused()) == 0
	return err
}

// readData appends n bytes to the body.
func (l *link) readData(a *answer, n int64) error {
	from := len(a.body)
	a.body = slices.Grow(a.body, int(n))[:from+int(n)]
	at := from + l.take(a.body[from:])
	_, err := io.ReadFull(l.Conn, a.body[at:])
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (l *link) readChunks(a *answer, bytesMax int64) error {
	for {
		line, err := l.readLine()
		if err != nil {
			return err
		}
		size, ok := parseChunkSize(line)
		if !ok || int64(len(a.body))+size > bytesMax {
			return errMalformed
		}
		if size == 0 {
			break
		}
		if err := l.readData(a, size); err != nil {
			return err
		}
		if line, err = l.readLine(); err != nil || len(line) > 0 {
			return errors.Join(errMalformed, err)
		}
	}
	for bytes := 0; bytes < len(l.buf); {
		line, err := l.readLine() // a trailer field, which is dropped, or the end
		if err != nil || len(line) == 0 {
			return err
		}
		bytes += len(line)
	}
	return errMalformed
}

func (l *link) readLine() ([]byte, error) {
	for scanned := 0; ; {
		switch line, found := l.line(&scanned); found {
		case complete:
			return line, nil
		case broken:
			return nil, errMalformed
		}
		if err := l.fill(); err != nil {
			return nil, err
		}
	}
}

// readToEnd reads an answer that ends with the connection.
func (l *link) readToEnd(a *answer, bytesMax int64) error {
	a.isReusable = false
	a.body = append(a.body, l.unused()...)
	l.start = l.end
	for int64(len(a.body)) <= bytesMax {
		a.body = slices.Grow(a.body, 4096)
		n, err := l.Read(a.body[len(a.body):cap(a.body)])
		a.body = a.body[:len(a.body)+n]
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return errMalformed
}

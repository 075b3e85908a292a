package http1

import "bytes"

// Response is an upstream's response. Its slices point into a copy of the head that the Response
// owns.
type Response struct {
	outcome
	Body Body

	fields
	head []byte
}

// outcome is the part of a response without slices, so that clearing it is cheap.
type outcome struct {
	Status     int
	IsReusable bool // the connection can be used for another exchange
	IsLast     bool // the upstream said that it closes the connection
	isOld      bool // HTTP/1.0
}

// Reset clears the response. Slices keep their capacity; see Body.Reset.
func (p *Response) Reset() {
	p.fields.reset()
	p.Body.Reset()
	p.outcome, p.head = outcome{}, p.head[:0]
}

const interimMax = 8 // 1xx responses before the final one

// ReadResponse reads the response to one request. It is as strict as for requests: if it finds the
// wrong end of a response, the next response goes to the wrong client. Of a body that is longer
// than PartBytesMax, and of a stream of events, it reads what has arrived; ReadPart reads the rest.
func (r *Reader) ReadResponse(p *Response, l *Limits, isHead bool) error {
	for range interimMax {
		head, err := r.readResponseHead()
		if err != nil {
			return err
		}
		p.Reset()
		if err := p.read(head, l); err != nil {
			return err
		}
		if p.Status >= 200 {
			return r.readContent(p, l, isHead)
		}
		if p.Status == 101 {
			return errSwitching
		}
	}
	return errInterim
}

// readResponseHead reads up to the empty line. It refuses at once bytes that cannot begin a status
// line.
func (r *Reader) readResponseHead() ([]byte, error) {
	for scanned := 0; ; {
		start := r.unused()
		start = start[:min(len(start), len(statusLineStart))]
		if !bytes.HasPrefix(statusLineStart, start) {
			return nil, errStatusLine
		}
		switch head, found := r.head(&scanned); found {
		case complete:
			return head, nil
		case broken:
			return nil, errLineEnd
		}
		if err := r.fill(); err != nil {
			return nil, err
		}
	}
}

var statusLineStart = []byte("HTTP/1.")

// read reads status line and fields (RFC 9112, sections 4 and 5).
func (p *Response) read(head []byte, l *Limits) error {
	p.head = append(p.head[:0], head...)
	line, rest := cutLine(p.head)
	if !p.readStatusLine(line) {
		return errStatusLine
	}
	if err := p.fields.read(rest, l, func(kind, []byte) error { return nil }); err != nil {
		return err
	}
	switch {
	case p.isChunked && (p.hasLength || p.isOld):
		return errLengthAndChunk
	case p.Status == 204 && (p.isChunked || p.length > 0):
		// A 204 must have no Content-Length (RFC 9110, section 8.6) and no Transfer-Encoding (RFC
		// 9112, section 6.1). The following bytes would be read as the next response.
		return errNoBody
	}
	p.IsLast = p.closes
	p.IsReusable = !p.isOld && !p.closes
	return nil
}

// readStatusLine reads the version, a status and perhaps a reason, which is ignored.
func (p *Response) readStatusLine(line []byte) (ok bool) {
	const version, status = len("HTTP/1."), len("HTTP/1.1 ") // where they are
	const end = status + len("200")
	if len(line) < end || !bytes.HasPrefix(line, statusLineStart) || line[status-1] != ' ' {
		return false
	}
	minor, reason := line[version], line[end:]
	if minor != '0' && minor != '1' || len(reason) > 0 && reason[0] != ' ' || !all(reason, valueByte) {
		return false
	}
	n, ok := ParseDigits(line[status:end])
	p.Status, p.isOld = int(n), minor == '0'
	return ok && n >= 100 && n <= 599
}

// readContent reads the content according to the framing (RFC 9112, section 6.3).
func (r *Reader) readContent(p *Response, l *Limits, isHead bool) error {
	b := &p.Body
	switch {
	case isHead || p.Status == 204 || p.Status == 304:
		// Some upstreams send the content that such a head announces. It may arrive after the next
		// request was sent.
		p.IsReusable = p.IsReusable && p.length <= 0 && !p.isChunked
	case p.length > int64(l.BodyBytesMax):
		return errBodyTooLarge
	case p.isChunked || p.hasLength:
		b.frame(p.isChunked, p.length)
	default:
		b.next, b.left, p.IsReusable = restOfConnection, never, false
	}
	waiting := never
	if p.hasLength && b.left > PartBytesMax || !p.hasLength && p.IsEventStream() {
		waiting = 0
	}
	return p.settle(r, r.readBody(b, l, pause{PartBytesMax, waiting}))
}

// IsEventStream reports whether the content is a stream of server-sent events. Each event counts as
// soon as it has arrived.
func (p *Response) IsEventStream() bool {
	const mediaType = "text/event-stream"
	value := p.Field("content-type")
	return len(value) >= len(mediaType) && EqualFold(value[:len(mediaType)], mediaType)
}

// ReadPart replaces the part of the body that has been read by the next one: what has arrived, and
// nothing only at the end of the body. It may be called again if it timed out.
func (r *Reader) ReadPart(p *Response, l *Limits) error {
	return p.settle(r, r.readPart(&p.Body, l, 1))
}

// settle decides at the end of the body whether the connection can be used again.
func (p *Response) settle(r *Reader, err error) error {
	if p.Body.IsComplete() {
		p.IsReusable = p.IsReusable && r.Buffered() == 0 // bytes after the end belong to no request
	}
	return err
}

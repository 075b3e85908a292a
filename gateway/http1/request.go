package http1

import "bytes"

// Request is the head of a request. Its slices point into a copy of the head that the Request owns.
type Request struct {
	Method  []byte
	Target  []byte // path and query as sent, in origin form
	Path    []byte
	Host    []byte // empty in an HTTP/1.0 request without one
	Version byte   // minor version: 0, or 1 for 1 and above

	AwaitsContinue bool // the client waits for 100 (Continue) before it sends the body
	Closes         bool // the client wants the connection to end with the response

	fields
	hasHost bool
	isUnmet bool // it expects something else than 100-continue
	head    []byte
}

// Reset clears the request. Slices keep their capacity.
func (q *Request) Reset() {
	q.fields.reset()
	*q = Request{fields: q.fields, head: q.head[:0]}
}

// methodBytesMax is longer than any registered method.
const methodBytesMax = 32

// Read parses a head: all lines up to and including the empty one. After an error, the request
// still has the fields before the malformed one, or all fields if only the request line is
// malformed. The refusal needs them: for example, Origin.
func (q *Request) Read(head []byte, l *Limits) error {
	q.head = append(q.head[:0], head...)
	line, rest := cutLine(q.head)
	err := q.readRequestLine(line, l)
	if fieldsErr := q.fields.read(rest, l, q.readField); err == nil {
		err = fieldsErr
	}
	if err != nil {
		return err
	}
	return q.check(l)
}

// readRequestLine reads method, target and version, with one space between them (RFC 9112, section
// 3).
func (q *Request) readRequestLine(line []byte, l *Limits) error {
	method, rest, ok := bytes.Cut(line, []byte{' '})
	if !ok || len(method) == 0 || len(method) > methodBytesMax || !all(method, tokenByte) {
		return errRequestLine
	}
	target, version, ok := bytes.Cut(rest, []byte{' '})
	if !ok || len(target) == 0 {
		return errRequestLine
	}
	q.Method = method
	const major = "HTTP/1."
	if len(version) != len(major)+1 || string(version[:len(major)]) != major {
		return errVersion
	}
	minor := version[len(major)]
	if minor < '0' || minor > '9' {
		return errVersion
	}
	if minor > '0' {
		q.Version = 1 // a higher minor version is processed as HTTP/1.1 (RFC 9110, section 2.5)
	}
	if len(target) > l.TargetBytesMax {
		return errTargetTooLong
	}
	return q.readTarget(target)
}

// readField handles the fields that only requests have.
func (q *Request) readField(k kind, value []byte) error {
	switch k {
	case host:
		if q.hasHost || !IsHost(value) {
			return errHost
		}
		q.hasHost, q.Host = true, value
	case expect:
		q.AwaitsContinue = EqualFold(value, "100-continue")
		q.isUnmet = q.isUnmet || !q.AwaitsContinue
	}
	return nil
}

// check checks the rules that concern several fields.
func (q *Request) check(l *Limits) error {
	q.Closes = q.closes || q.Version == 0 && !q.keepsAlive
	switch {
	case q.Version == 1 && !q.hasHost:
		return errHost
	case q.isChunked && q.hasLength:
		// RFC 9112, section 6.1: a recipient that uses one field and a recipient that uses the
		// other see different requests.
		return errLengthAndChunk
	case q.isChunked && q.Version == 0:
		return errOldCoding
	case q.isUnmet:
		return errExpectation
	case q.length > int64(l.BodyBytesMax):
		return errBodyTooLarge
	}
	// RFC 9110, section 10.1.1: Expect from an HTTP/1.0 client is ignored. Without a body the
	// client does not wait.
	q.AwaitsContinue = q.AwaitsContinue && q.Version == 1 && (q.isChunked || q.length > 0)
	return nil
}

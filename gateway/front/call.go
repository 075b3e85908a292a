package front

import (
	"bufio"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"petgate/gateway/http1"
)

// Call is one request and its response. Calls are pooled: after the handler has returned, it must
// not use the Call.
type Call struct {
	Request http1.Request
	Body    http1.Body // of the request; the rest of a large one may be still to come (see Conn.ReadBody)
	Err     error      // why the request was not read whole; nil: it was
	At      time.Time  // when it was read
	Conn    *Conn

	Response Response
	MadeAt   time.Time // when the response was made: the handler sets it
	Own      Own       // what the handler keeps with a Call; nil until it sets it

	head fasthttp.ResponseHeader // what fasthttp writes: the status, the date and the framing
}

// Own is a handler's own part of a Call. The handler finds it in a later Call again.
type Own interface {
	// Reset is called when the response is written or lost, and nothing of it is used again.
	Reset()
}

// Response is a response. What it refers to stays unchanged until Own.Reset.
type Response struct {
	Status int
	http1.FieldList
	Body   []byte
	Rest   Rest  // what follows Body; nil: nothing
	Length int64 // with Rest: of the whole body; in a response to HEAD: of the content that GET would have; -1: unknown
	Closes bool  // the connection is closed
}

// Rest is the rest of a body that is written as it arrives.
type Rest interface {
	// Next returns the next part, which is unchanged until the next call. It returns io.EOF at the
	// end. After another error the connection is cut, so that the client does not take the body for
	// a whole one.
	Next() ([]byte, error)
	// End is called once, when the body is written or lost. The connection is not read until then.
	End()
}

// Reset clears the response.
func (r *Response) Reset() {
	clear(r.Fields)
	*r = Response{FieldList: http1.FieldList{Fields: r.Fields[:0], Text: r.Text[:0]}, Length: -1}
}

// IsHead reports whether the response has no content.
func (c *Call) IsHead() bool { return string(c.Request.Method) == http.MethodHead }

// isLast reports whether the request was read whole and is the last thing that the client sends. An
// old client may send a line end after a body (RFC 9112, section 2.2): then its request is not the
// last thing.
func (c *Call) isLast() bool {
	mayEndLine := c.Request.Version == 0 && c.Body.Size() > 0
	return c.Err == nil && c.Request.Closes && c.Body.IsComplete() && !mayEndLine
}

// writeBufferBytes is how much of a response is collected for one system call.
const writeBufferBytes = 8 << 10

// writers has buffers for responses that are being written: an idle connection has none.
var writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, writeBufferBytes) }}

// write writes the response. If its body is still arriving, a client that takes no part for the
// time of a whole response is cut.
func (c *Call) write(closes bool) error {
	w := writers.Get().(*bufio.Writer)
	w.Reset(c.Conn)
	defer func() {
		w.Reset(nil)
		writers.Put(w)
	}()
	from, body, length := &c.Response, http1.PartWriter{To: w}, int64(len(c.Response.Body))
	if from.Rest != nil || length == 0 && c.IsHead() {
		length = from.Length
	}
	h := &c.head
	h.SetNoDefaultContentType(true)
	h.SetStatusCode(from.Status)
	switch {
	case closes:
		h.SetConnectionClose()
	case c.Request.Version == 0:
		h.Set("Connection", "keep-alive")
	}
	switch {
	case length >= 0:
		h.SetContentLength(int(length))
	case from.Rest == nil: // the length of what HEAD does not get is unknown
	case c.Request.Version > 0:
		h.SetContentLength(-1)
		body.IsChunked = true
	default: // the end of the connection is the end of the body
		h.SetContentLength(-2)
	}
	head := h.AppendBytes(w.AvailableBuffer())
	head = http1.AppendFields(head[:len(head)-len("\r\n")], from.Fields) // before the empty line
	_, _ = w.Write(append(head, "\r\n"...))                              // Flush returns the error
	if c.IsHead() {
		return w.Flush()
	}
	for part := from.Body; ; {
		if from.Rest != nil {
			c.Conn.RestartWriteTimeout()
		}
		if err := body.Write(part); err != nil || from.Rest == nil {
			return err
		}
		switch next, err := from.Rest.Next(); {
		case err == io.EOF:
			return body.End()
		case err != nil:
			return err
		default:
			part = next
		}
	}
}

func (c *Call) reset() {
	if c.Own != nil {
		c.Own.Reset()
	}
	c.head.Reset()
	c.Request.Reset()
	c.Body.Reset()
	c.Response.Reset()
	c.Err, c.Conn = nil, nil
}

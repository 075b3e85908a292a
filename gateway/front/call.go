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

// Call is one request and its response. Calls are pooled: after the handler has returned, it must not use the Call.
type Call struct {
	Request http1.Request
	Body    http1.Body // of the request; the rest of a large one may be still to come (see Conn.ReadBody)
	Err     error      // why the request cannot be read, as far as it was; nil: it was read
	At      time.Time  // when it was read
	Conn    *Conn

	Response Response
	MadeAt   time.Time // when the response was made: the handler sets it
	Own      Own       // what the handler keeps with a Call; nil until it sets it

	rc fasthttp.RequestCtx // its response is what fasthttp writes
}

// Own is a handler's own part of a Call. The handler finds it in a later Call again.
type Own interface {
	// Reset is called when the response is written or lost, and nothing of it is used any more.
	Reset()
}

// Response is a response. What it refers to stays unchanged until Own.Reset.
type Response struct {
	Status int
	Fields []http1.Field
	Body   []byte
	Rest   Rest  // what follows Body; nil: nothing
	Length int64 // with Rest: of the whole body; in a response to HEAD: of the content that GET would have; -1: unknown
	Closes bool  // the connection is closed
}

// Rest is the rest of a body that is written as it arrives.
type Rest interface {
	// Next returns the next part, which is unchanged until the next call. It returns io.EOF at the end. After another error the
	// connection is cut, so that the client does not take the body for a whole one.
	Next() ([]byte, error)
	// End is called once, when the body is written or lost. The connection is not read until then.
	End()
}

// Add adds a field.
func (r *Response) Add(name, value []byte) {
	r.Fields = append(r.Fields, http1.Field{Name: name, Value: value})
}

// Reset clears the response.
func (r *Response) Reset() {
	clear(r.Fields)
	*r = Response{Fields: r.Fields[:0], Length: -1}
}

func newCall() *Call {
	c := &Call{}
	c.rc.Init2(nil, nil, true)
	c.Response.Reset()
	return c
}

// IsHead reports whether the response has no content.
func (c *Call) IsHead() bool { return string(c.Request.Method) == http.MethodHead }

// isLast reports whether the request was read whole and is the last thing that the client sends. An old client may send a line end
// after a body (RFC 9112, section 2.2): then its request is not the last thing.
func (c *Call) isLast() bool {
	mayEndLine := c.Request.Version == 0 && c.Body.Size() > 0
	return c.Err == nil && c.Request.Closes && c.Body.IsComplete() && !mayEndLine
}

// writeBufferBytes is how much of a response is collected for one system call.
const writeBufferBytes = 8 << 10

// writers has buffers for responses that are being written: an idle connection has none.
var writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, writeBufferBytes) }}

// write writes the response.
func (c *Call) write(closes bool) error {
	from, to := &c.Response, &c.rc.Response
	h := &to.Header
	h.DisableNormalizing() // names are written unchanged
	h.SetNoDefaultContentType(true)
	h.SetStatusCode(from.Status)
	for _, f := range from.Fields {
		h.AddBytesKV(f.Name, f.Value)
	}
	switch {
	case closes:
		h.SetConnectionClose()
	case c.Request.Version == 0:
		h.Set("Connection", "keep-alive")
	}
	w := writers.Get().(*bufio.Writer)
	w.Reset(c.Conn)
	defer func() {
		w.Reset(nil)
		writers.Put(w)
	}()
	if from.Rest != nil {
		return c.writeParts(w)
	}
	to.SkipBody = c.IsHead()
	to.SetBodyRaw(from.Body)
	if len(from.Body) == 0 && to.SkipBody && from.Length >= 0 {
		h.SetContentLength(int(from.Length))
	}
	if err := to.Write(w); err != nil {
		return err
	}
	return w.Flush()
}

// writeParts writes a response whose body is still arriving. A client that takes no part for the time of a whole response is cut.
func (c *Call) writeParts(w *bufio.Writer) error {
	from, h := &c.Response, &c.rc.Response.Header
	body := http1.PartWriter{To: w}
	switch {
	case from.Length >= 0:
		h.SetContentLength(int(from.Length))
	case c.Request.Version > 0:
		h.SetContentLength(-1)
		body.IsChunked = true
	default: // the end of the connection is the end of the body
		h.SetContentLength(-2)
	}
	if err := h.Write(w); err != nil {
		return err
	}
	for part := from.Body; ; {
		c.Conn.Continue()
		if err := body.Write(part); err != nil {
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
	c.rc.Response.Reset()
	c.Request.Reset()
	c.Body.Reset()
	c.Response.Reset()
	c.Err, c.Conn = nil, nil
}

package front

import (
	"bufio"
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
	Length int64 // in a response to HEAD without a Body: of the content that GET would have; -1: unknown
	Closes bool  // the connection is closed
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
	mayEndLine := c.Request.Version == 0 && len(c.Body.Bytes) > 0
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
	to.SkipBody = c.IsHead()
	to.SetBodyRaw(from.Body)
	if len(from.Body) == 0 && to.SkipBody && from.Length >= 0 {
		h.SetContentLength(int(from.Length))
	}
	w := writers.Get().(*bufio.Writer)
	w.Reset(c.Conn)
	err := to.Write(w)
	if err == nil {
		err = w.Flush()
	}
	w.Reset(nil)
	writers.Put(w)
	return err
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

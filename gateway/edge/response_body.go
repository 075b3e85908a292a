package edge

import (
	"bytes"

	"petgate/gateway/http1"
)

// sharedBytesMin is the size from which the body of a response becomes a responseBody. fasthttp copies a smaller one into its write
// buffer anyway.
const sharedBytesMin = writeBufferBytes

// responseBody is the body of a large response, in the buffer into which it was read from the upstream. The gateway keeps these buffers
// itself: the pool of fasthttp throws away what is much larger than its usual responses, so each large one would need new memory.
//
// fasthttp calls Close when it has written or copied all bytes, and when it drops the response. A responseBody is for one response
// only. So a second Close, or a write after Close, cannot touch a buffer that another response has.
type responseBody struct {
	bytes.Reader
	body *http1.Body // nil after Close
}

// newResponseBody takes the bytes of b.
func newResponseBody(b *http1.Body) *responseBody {
	r := &responseBody{body: b.Detach()}
	r.Reset(r.body.Bytes)
	return r
}

// Close gives the buffer to other responses.
func (r *responseBody) Close() error {
	if body := r.body; body != nil {
		r.body = nil
		r.Reset(nil)
		body.Free()
	}
	return nil
}

// bodyBytes is the length of the response's body. It must be called before the response is written.
func (x *exchange) bodyBytes() int {
	if r, ok := x.rc.Response.BodyStream().(*responseBody); ok {
		return r.Len() // Response.Body would copy it
	}
	return len(x.rc.Response.Body())
}

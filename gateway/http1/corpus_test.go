package http1

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"petgate/shared/testkit/must"
)

// testLimits are smaller than any product's: what exceeds them stays small.
var testLimits = Limits{TargetBytesMax: 200, FieldBytesMax: 400, FieldsMax: 8, BodyBytesMax: 1000, BodyStepBytes: 16}

// stream is a connection whose peer has sent everything, in the given pieces, and then closed its
// half.
type stream struct {
	net.Conn
	pieces [][]byte
	sent   bytes.Buffer
}

func (s *stream) Read(p []byte) (int, error) {
	if len(s.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.pieces[0])
	s.pieces[0] = s.pieces[0][n:]
	if len(s.pieces[0]) == 0 {
		s.pieces = s.pieces[1:]
	}
	return n, nil
}

func (s *stream) Write(p []byte) (int, error)      { return s.sent.Write(p) }
func (s *stream) Close() error                     { return nil }
func (s *stream) SetReadDeadline(time.Time) error  { return nil }
func (s *stream) SetWriteDeadline(time.Time) error { return nil }

// newConn returns a connection whose client sends these pieces.
func newConn(sent ...string) (*Conn, *stream) {
	c, s := &Conn{}, &stream{}
	for _, p := range sent {
		s.pieces = append(s.pieces, []byte(p))
	}
	c.Init(s, &Settings{Limits: testLimits, Buffers: NewBuffers(&testLimits)}, nil)
	return c, s
}

// readRequests says how the bytes are read: method, target and length of the body of each request,
// then how it ended.
func readRequests(pieces [][]byte, pauseAt int) string {
	c, s := newConn()
	s.pieces = pieces
	var text strings.Builder
	for {
		var q Request
		var b Body
		err := c.Await()
		if err == nil {
			err = c.ReadHead(&q, &b)
		}
		for err == nil && !b.IsComplete() {
			err = c.ReadBody(&q, &b, len(b.Bytes)+pauseAt)
		}
		switch {
		case err == io.EOF:
			return text.String() + "end"
		case err != nil:
			return text.String() + reasonOf(err)
		}
		fmt.Fprintf(&text, "%s %s %d", q.Method, q.Target, len(b.Bytes))
		for _, f := range q.Fields {
			if !f.IsNamed {
				fmt.Fprintf(&text, " %s=%s", f.Name, f.Value)
			}
		}
		text.WriteString("; ")
		if q.Closes {
			return text.String() + "closes"
		}
		c.Next(time.Now())
	}
}

// reasonOf says why a message was refused.
func reasonOf(err error) string {
	e, _ := errors.AsType[*Error](err)
	return e.Reason
}

const chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"

// requests are streams of a client, and how they are read. The corpus of package edge has more.
var requests = []struct{ name, bytes, read string }{
	{"nothing", "", "end"},
	{
		"one, with all characters of a target",
		"GET /-._~!$&'()*+,;=:@9/?/-._~!$&'()*+,;=:@9? HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /-._~!$&'()*+,;=:@9/?/-._~!$&'()*+,;=:@9? 0; end",
	},
	{"two", "GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n", "GET /a 0; GET /b 0; end"},
	{"an empty line first", "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / 0; end"},
	{"a length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", "POST / 5; end"},
	{"chunks", chunked + "3\r\nhel\r\n2;a=b\r\nlo\r\n0\r\nX: y\r\n\r\n", "POST / 5; end"},
	{
		"a line end after a body",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST / 5; GET /b 0; end",
	},
	{"a field", "GET / HTTP/1.1\r\nHost: a:65535\r\nX:  y z \r\n\r\n", "GET / 0 X=y z; end"},
	{"a named field", "GET / HTTP/1.1\r\nHost: a\r\nY: z\r\nX: y\r\nConnection: x\r\n\r\n", "GET / 0 Y=z; end"},
	{"close", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET", "GET / 0; closes"},
	{"a chunk line of 512 bytes", chunked + "5;" + strings.Repeat("a", 508) + "\r\nhello\r\n0\r\n\r\n", "POST / 5; end"},
	{"a chunk line of 513 bytes", chunked + "5;" + strings.Repeat("a", 509) + "\r\nhello\r\n0\r\n\r\n", "a chunk line is too long"},
	{"a long target", "GET /" + strings.Repeat("a", 200) + " HTTP/1.1\r\nHost: a\r\n\r\n", "the request target is too long"},
	{"a target without end", "GET /" + strings.Repeat("a", 4000), "the request target is too long"},
	{
		"a long field", "GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("a", 400) + "\r\n\r\n",
		"there are too many header fields, or they are too large",
	},
	{
		"many fields", "GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X: y\r\n", 9) + "\r\n",
		"there are too many header fields, or they are too large",
	},
	{
		"as many fields, and as large, as may be",
		"GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X:\r\n", 6) + "X:" + strings.Repeat("a", 379) + "\r\n\r\n",
		"GET / 0" + strings.Repeat(" X=", 7) + strings.Repeat("a", 379) + "; end",
	},
	{"a long body", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n", "the body is too large"},
	{"the end in a head", "GET / HTTP/1.1\r\nHost", "the connection ended during the message"},
	{
		"as many names in Connection as may be",
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: " + strings.Repeat("x,", namedMax) + "\r\n\r\n", "GET / 0; end",
	},
	{
		"too many names in Connection",
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: " + strings.Repeat("x,", namedMax+1) + "\r\n\r\n",
		"there are too many header fields, or they are too large",
	},
}

// Requests are read in one way, however their bytes are split and however the body is read.
func TestRequests(t *testing.T) {
	for _, c := range requests {
		for _, size := range []int{len(c.bytes) + 1, 1, 2, 7, 100, 511, 512, 513} {
			for _, pauseAt := range []int{1, 3, 1000} {
				must.Equal(t, readRequests(pieces(c.bytes, size), pauseAt), c.read,
					"%s, in pieces of %d, pausing at %d", c.name, size, pauseAt)
			}
		}
	}
	fmt.Printf("figure: count http1: %d streams of requests and %d responses\n", len(requests), len(responses))
}

func pieces(text string, size int) (all [][]byte) {
	for text != "" {
		n := min(size, len(text))
		all = append(all, []byte(text[:n]))
		text = text[n:]
	}
	return all
}

// readResponse says how the bytes are read.
func readResponse(pieces [][]byte) string {
	r := NewReader(&stream{pieces: pieces}, testLimits.FieldBytesMax)
	var p Response
	if err := r.ReadResponse(&p, &testLimits, false); err != nil {
		return reasonOf(err)
	}
	return fmt.Sprintf("%d %q reusable: %t", p.Status, p.Body.Bytes, p.IsReusable)
}

// responses are what an upstream sends, and how it is read.
var responses = []struct{ name, bytes, read string }{
	{"a length", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", `200 "[]" reusable: true`},
	{"chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n[\r\n1\r\n]\r\n0\r\n\r\n", `200 "[]" reusable: true`},
	{"until the end", "HTTP/1.1 200 OK\r\n\r\n[]", `200 "[]" reusable: false`},
	{"close", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n[]", `200 "[]" reusable: false`},
	{"204 with a length of 0", "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", `204 "" reusable: true`},
	{"304 with a length", "HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n", `304 "" reusable: false`},
	{"304 with chunks", "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n", `304 "" reusable: false`},
	{"304", "HTTP/1.1 304 Not Modified\r\n\r\n", `304 "" reusable: true`},
	{"a length in HTTP/1.0", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n[]", `200 "[]" reusable: false`},
	{
		"chunks in HTTP/1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
		"a message must not have both Transfer-Encoding and Content-Length",
	},
	{
		"204 with chunks", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
		"a response that cannot have content has a length or a transfer coding",
	},
	{"a long body", "HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n", "the body is too large"},
	{"a long head", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("a", 500), "there are too many header fields, or they are too large"},
	{"nothing", "", "the connection ended during the message"},
}

func TestResponses(t *testing.T) {
	for _, c := range responses {
		for _, size := range []int{1, 3, 64} {
			must.Equal(t, readResponse(pieces(c.bytes, size)), c.read, "%s, in pieces of %d", c.name, size)
		}
		if got := readResponse(pieces(c.bytes+"more", 4096)); strings.HasSuffix(got, "reusable: true") {
			t.Errorf("%s, with bytes behind it: read as %s", c.name, got)
		}
	}
}

// 100 (Continue) is sent once, when the body is wanted, to a client that has not sent it yet.
func TestContinue(t *testing.T) {
	const head = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
	f := func(want string, pieces ...string) {
		t.Helper()
		c, s := newConn(pieces...)
		q, b := Request{}, Body{}
		if err := errors.Join(c.Await(), c.ReadHead(&q, &b)); err != nil || !q.AwaitsContinue || s.sent.Len() > 0 {
			t.Fatalf("%v, sent %q", err, &s.sent)
		}
		if err := c.ReadBody(&q, &b, 3); err != nil || s.sent.String() != want {
			t.Errorf("%v, sent %q, want %q", err, &s.sent, want)
		}
		if err := c.ReadBody(&q, &b, 1000); err != nil || string(b.Bytes) != "hello" || s.sent.String() != want {
			t.Errorf("%v, body %q, sent %q", err, b.Bytes, &s.sent)
		}
	}
	f(continueLine, head, "hello")
	f("", head+"hel", "lo")
}

// What is against the grammar is refused with the reason. A connection that times out has another
// kind than one that ends.
func TestReasons(t *testing.T) {
	const host, te = " / HTTP/1.1\r\nHost: a\r\n", "Transfer-Encoding: chunked"
	f := func(reason string, heads ...string) {
		t.Helper()
		for _, head := range heads {
			must.Equal(t, readRequests(pieces(head+"\r\n\r\n", 7), 1), reason, "%q", head)
		}
	}
	f("the request line is malformed: it must have a method, a target and HTTP/1.1",
		"GET", "G\x00T / HTTP/1.1", "GET HTTP/1.1")
	f("the HTTP version is not supported: use HTTP/1.1 or HTTP/1.0",
		"GET / HTTP/1.:", "GET / HTTP/1./", "GET / HTTP/2.0", "GET / HTTP/1.10")
	f("CONNECT is not supported: this server is not a forward proxy", "CONNECT a:1 HTTP/1.1")
	f("the request target is malformed", "GET a HTTP/1.1", "OPTIONS * HTTP/1.1")
	f("a target in absolute form needs a path", "GET http://a HTTP/1.1")
	f("the host of the request target is malformed", "GET http://a:b:c/ HTTP/1.1")
	f("the query contains a character that must be percent-encoded", "GET /?\x80 HTTP/1.1")
	f("the path contains a character that must be percent-encoded", "GET /\x80 HTTP/1.1")
	f("the path contains an empty segment (//)", "GET //a HTTP/1.1", "GET /a//b HTTP/1.1", "GET /a// HTTP/1.1")
	f("the path contains a dot segment", "GET /./ HTTP/1.1", "GET /a/.. HTTP/1.1", "GET /a/%2E HTTP/1.1",
		"GET /%2e. HTTP/1.1")
	f("a line does not end in CRLF", "GET / HTTP/1.1\nHost: a")
	f("a header field is malformed", "GET"+host+" X: y", "GET"+host+"X : y", "GET"+host+"X: \x01", "GET"+host+"X")
	f("there must be exactly one valid Host field",
		"GET / HTTP/1.1", "GET"+host+"Host: a", "GET / HTTP/1.1\r\nHost: a b", "GET /... HTTP/1.1")
	f("there may be only one Content-Length, and it must be a whole number",
		"GET"+host+"Content-Length: 5, 5", "GET"+host+"Content-Length: 5\r\nContent-Length: 5")
	f("the only supported Transfer-Encoding is chunked", "GET"+host+"Transfer-Encoding: gzip", "GET"+host+te+"\r\n"+te)
	f("a message must not have both Transfer-Encoding and Content-Length", "GET"+host+te+"\r\nContent-Length: 5")
	f("Transfer-Encoding is not allowed in HTTP/1.0", "GET / HTTP/1.0\r\n"+te)
	f("the only supported expectation is 100-continue", "GET"+host+"Expect: 200-ok\r\nContent-Length: 2",
		"GET"+host+"Expect: 200-ok\r\nExpect: 100-continue")
	f("the size of a chunk is malformed", chunked+"g", chunked+"ffffffffffffffffff", chunked+"1;a=\x01\r\na")
	f("a chunk is longer than its size", chunked+"1\r\nab")
	f("a chunk line is too long", chunked+"1;"+strings.Repeat("a", 600))
	f("a trailer field is malformed or not allowed", chunked+"0\r\nHost: a", chunked+"0\r\nX : a")
	f("the path contains an invalid percent-encoding, or an encoded slash, backslash or control character",
		"GET /%2f HTTP/1.1", "GET /%5C HTTP/1.1", "GET /%1F HTTP/1.1", "GET /%7f HTTP/1.1", "GET /%zz HTTP/1.1",
		"GET /%4 HTTP/1.1")
	kinds := map[error]Kind{
		errField: Malformed, errTargetTooLong: TargetTooLong, errFieldsTooLarge: FieldsTooLarge,
		errBodyTooLarge: BodyTooLarge, errBusy: Busy, errBusyHeads: Busy, errExpectation: UnmetExpectation,
		failed(os.ErrDeadlineExceeded): TimedOut, failed(io.EOF): Ended, io.EOF: 0,
	}
	for err, want := range kinds {
		if got := KindOf(err); got != want || got == TimedOut && reasonOf(err) != "the message did not arrive in time" {
			t.Errorf("%v is of kind %d, want %d", err, got, want)
		}
	}
}

func TestParseDigits(t *testing.T) {
	f := func(text string, want int64, ok bool) {
		t.Helper()
		if got, gotOK := ParseDigits([]byte(text)); got != want && ok || gotOK != ok {
			t.Errorf("%q: %d %t, want %d %t", text, got, gotOK, want, ok)
		}
	}
	f("0", 0, true)
	f("007", 7, true)
	f("999999999999999999", 999999999999999999, true)
	f("1000000000000000000", 0, false)
	f("9223372036854775808", 0, false)
	f("", 0, false)
	f("+5", 0, false)
}

// FuzzRequests checks that any stream of a client is read in one way, however it is split.
func FuzzRequests(f *testing.F) {
	for _, c := range requests {
		f.Add([]byte(c.bytes), uint16(len(c.bytes)/2), uint8(3))
	}
	f.Fuzz(func(t *testing.T, stream []byte, cut uint16, pauseAt uint8) {
		at := min(int(cut), len(stream))
		whole := readRequests(pieces(string(stream), len(stream)+1), 1000)
		split := readRequests(append(pieces(string(stream[:at]), 512), pieces(string(stream[at:]), 3)...),
			1+int(pauseAt))
		must.Equal(t, split, whole, "%q, split at %d", stream, at)
	})
}

// FuzzResponses does the same for what an upstream sends.
func FuzzResponses(f *testing.F) {
	for _, c := range responses {
		f.Add([]byte(c.bytes), uint16(len(c.bytes)/2))
	}
	f.Fuzz(func(t *testing.T, stream []byte, cut uint16) {
		at := min(int(cut), len(stream))
		whole := readResponse(pieces(string(stream), len(stream)+1))
		split := readResponse(append(pieces(string(stream[:at]), 4096), pieces(string(stream[at:]), 4096)...))
		// Bytes behind the end are noticed if they came with it; those that come later are noticed
		// before the next request.
		content := func(read string) string {
			before, _, _ := strings.Cut(read, "reusable: ")
			return before
		}
		must.Equal(t, content(split), content(whole), "%q, split at %d", stream, at)
	})
}

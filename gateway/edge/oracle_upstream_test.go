package edge_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"petgate/shared/testkit/must"
)

// rawUpstream counts what really arrives. It shares no code with the gateway: it reads its socket
// by the grammar of RFC 9112, and keeps what did not follow it as Problem.
type rawUpstream struct {
	listener net.Listener

	mu      sync.Mutex
	seen    []upstreamRequest
	problem error                                           // with the last request that broke the grammar
	answer  func(c net.Conn, r upstreamRequest) (keep bool) // nil = plainAnswer
	conns   map[net.Conn]bool
	dials   int
}

// upstreamRequest is one request as the upstream read it.
type upstreamRequest struct {
	Method, Target string
	Head           string // request line and fields
	Fields         map[string][]string
	Body           string
	Nth            int // on its connection, from 1
}

func (r upstreamRequest) String() string {
	return r.Method + " " + r.Target + " " + strconv.Itoa(len(r.Body))
}

func newRawUpstream(t testing.TB) *rawUpstream {
	t.Helper()
	ln := must.Get[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	u := &rawUpstream{listener: ln, conns: map[net.Conn]bool{}}
	var accepting sync.WaitGroup
	accepting.Go(u.accept)
	t.Cleanup(func() {
		_ = ln.Close()
		u.hangUp()
		accepting.Wait()
		if err := u.Problem(); err != nil {
			t.Errorf("upstream: %v", err)
		}
	})
	return u
}

// URL is the address of this upstream, as a gateway's settings have it.
func (u *rawUpstream) URL() string { return "http://" + u.listener.Addr().String() }

// Answer sets what is written for each request from now on.
func (u *rawUpstream) Answer(f func(c net.Conn, r upstreamRequest) (keep bool)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.answer = f
}

// Seen takes the requests seen since the last call.
func (u *rawUpstream) Seen() []upstreamRequest {
	u.mu.Lock()
	defer u.mu.Unlock()
	seen := u.seen
	u.seen = nil
	return seen
}

// Problem is what was wrong with the last request that broke the grammar.
func (u *rawUpstream) Problem() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.problem
}

// Dials counts the connections accepted so far.
func (u *rawUpstream) Dials() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.dials
}

// hangUp closes every connection, as a process that is killed does.
func (u *rawUpstream) hangUp() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for c := range u.conns {
		_ = c.Close()
	}
}

func (u *rawUpstream) accept() {
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		c, err := u.listener.Accept()
		if err != nil {
			return
		}
		u.mu.Lock()
		u.conns[c] = true
		u.dials++
		u.mu.Unlock()
		serving.Go(func() {
			u.serve(c)
			u.mu.Lock()
			delete(u.conns, c)
			u.mu.Unlock()
		})
	}
}

func (u *rawUpstream) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	for nth := 1; ; nth++ {
		r, err := readUpstreamRequest(in)
		if err != nil {
			if malformed := (malformedError{}); errors.As(err, &malformed) {
				u.mu.Lock()
				u.problem = err
				u.mu.Unlock()
			}
			return
		}
		r.Nth = nth
		u.mu.Lock()
		u.seen = append(u.seen, r)
		answer := u.answer
		u.mu.Unlock()
		if answer == nil {
			answer = plainAnswer
		}
		if !answer(c, r) {
			return
		}
	}
}

// plainAnswer is what a healthy service says.
func plainAnswer(c net.Conn, r upstreamRequest) bool {
	status, body := "200 OK", "[]"
	if r.Method == "POST" {
		status, body = "201 Created", "{}"
	}
	head := "HTTP/1.1 " + status + "\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n"
	if r.Method == "HEAD" {
		body = ""
	}
	return saying(head+body)(c, r)
}

// saying returns an answer to every request.
func saying(text string) func(net.Conn, upstreamRequest) bool {
	return func(c net.Conn, _ upstreamRequest) bool {
		_, err := io.WriteString(c, text)
		return err == nil
	}
}

// malformedError is a request that breaks the grammar; other errors are those of the connection.
type malformedError struct{ text string }

func (e malformedError) Error() string { return e.text }

func malformed(format string, args ...any) error { return malformedError{fmt.Sprintf(format, args...)} }

var (
	requestLine  = regexp.MustCompile(`^([A-Z]+) (/[!-~]*) HTTP/1\.1$`)
	fieldLine    = regexp.MustCompile("^([!#$%&'*+.^_`|~0-9A-Za-z-]+): ?([^\\x00-\\x08\\x0a-\\x1f\\x7f]*)$")
	chunkLine    = regexp.MustCompile(`^[0-9a-fA-F]{1,8}$`)
	lengthDigits = regexp.MustCompile(`^[0-9]{1,12}$`)
)

func readUpstreamRequest(in *bufio.Reader) (r upstreamRequest, err error) {
	line, err := readLine(in)
	if err != nil {
		return r, err
	}
	r.Head = line + "\r\n"
	parts := requestLine.FindStringSubmatch(line)
	if parts == nil {
		return r, malformed("request line %q", line)
	}
	r.Method, r.Target = parts[1], parts[2]
	var text string
	if r.Fields, text, err = readFields(in); err != nil {
		return r, err
	}
	r.Head += text
	if len(r.Fields["host"]) != 1 {
		return r, malformed("%d Host fields in %q", len(r.Fields["host"]), r.Head)
	}
	r.Body, err = readContent(in, r.Fields["content-length"], r.Fields["transfer-encoding"], r.Head)
	return r, err
}

// readFields reads field lines up to the empty one. It returns the values by name, and the lines.
func readFields(in *bufio.Reader) (fields map[string][]string, text string, err error) {
	fields = map[string][]string{}
	for {
		line, err := readLine(in)
		if err != nil || line == "" {
			return fields, text, err
		}
		parts := fieldLine.FindStringSubmatch(line)
		if parts == nil {
			return fields, text, malformed("field line %q", line)
		}
		name := strings.ToLower(parts[1])
		fields[name], text = append(fields[name], parts[2]), text+line+"\r\n"
	}
}

// readContent reads content by its framing fields, of which there may be one.
func readContent(in *bufio.Reader, lengths, codings []string, head string) (string, error) {
	switch {
	case len(lengths)+len(codings) == 0:
		return "", nil
	case len(lengths)+len(codings) > 1:
		return "", malformed("ambiguous framing: %q", head)
	case len(lengths) == 1:
		if !lengthDigits.MatchString(lengths[0]) {
			return "", malformed("length %q", lengths[0])
		}
		n, _ := strconv.Atoi(lengths[0])
		return readBytes(in, n)
	case codings[0] != "chunked":
		return "", malformed("coding %q", codings[0])
	}
	var body strings.Builder
	for {
		line, err := readLine(in)
		if err != nil {
			return body.String(), err
		}
		if !chunkLine.MatchString(line) {
			return "", malformed("chunk size %q", line)
		}
		n, _ := strconv.ParseInt(line, 16, 64)
		chunk, err := readBytes(in, int(n)+2)
		if err != nil {
			return body.String() + chunk, err
		}
		if !strings.HasSuffix(chunk, "\r\n") {
			return "", malformed("chunk %q", chunk)
		}
		if n == 0 {
			return body.String(), nil
		}
		body.WriteString(chunk[:n])
	}
}

func readBytes(in *bufio.Reader, n int) (string, error) {
	var b strings.Builder
	if _, err := io.CopyN(&b, in, int64(n)); err == io.EOF {
		return b.String(), io.ErrUnexpectedEOF
	} else if err != nil {
		return b.String(), err
	}
	return b.String(), nil
}

// readLine reads a line that ends in CRLF and has no other CR.
func readLine(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	text, found := strings.CutSuffix(line, "\r\n")
	if !found || strings.Contains(text, "\r") {
		return "", malformed("line %q", line)
	}
	return text, nil
}

// texts shows requests as verdicts do.
func texts(requests []upstreamRequest) []string {
	all := slices.Grow([]string(nil), len(requests))
	for _, r := range requests {
		all = append(all, r.String())
	}
	return all
}

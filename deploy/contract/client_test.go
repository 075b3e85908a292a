package contract_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// answerWithin bounds the wait for an answer: longer than the slowest timeout that a test provokes.
const answerWithin = 20 * time.Second

// request is what a test sends, to the byte where it matters.
type request struct {
	token  string
	method string   // the operation's own when empty
	target string   // likewise
	query  string   // appended to the target
	header []string // further lines
	body   string   // the operation's own when empty
	cut    bool     // half of the body never comes
}

// send writes a request for an operation on a connection of its own and reads the one answer.
func send(t testing.TB, base, what string, o operation, r request) answer {
	t.Helper()
	a := answer{what: what + " " + o.id, operation: o}
	if r.method == "" {
		r.method = o.method
	}
	if r.target == "" {
		r.target = o.target
	}
	if r.body == "" {
		r.body = o.body
	}
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.DialTimeout("tcp", u.Host, answerWithin)
	if err != nil {
		t.Fatalf("%s: %v", a.what, err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(answerWithin)); err != nil {
		t.Fatal(err)
	}

	var b strings.Builder
	fmt.Fprintf(&b, "%s %s%s HTTP/1.1\r\nHost: %s\r\n", r.method, r.target, r.query, u.Host)
	if r.token != "" {
		fmt.Fprintf(&b, "Authorization: Bearer %s\r\n", r.token)
	}
	for _, line := range r.header {
		b.WriteString(line + "\r\n")
	}
	if r.cut {
		r.body += "      "
	}
	if r.body != "" && !strings.Contains(b.String(), "Content-Length:") {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(r.body))
	}
	if r.body != "" && !strings.Contains(b.String(), "Content-Type:") {
		b.WriteString("Content-Type: application/json\r\n")
	}
	b.WriteString("\r\n")
	if r.cut {
		r.body = r.body[:len(r.body)/2]
	}
	b.WriteString(r.body)
	// An answer may come, and the connection be closed, before all of a large request is written.
	_, _ = io.WriteString(conn, b.String())

	method := r.method
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%s: no answer: %v", a.what, err)
	}
	defer response.Body.Close()
	if a.body, err = io.ReadAll(response.Body); err != nil {
		t.Fatalf("%s: body of the answer: %v", a.what, err)
	}
	a.status, a.header = response.StatusCode, response.Header
	return a
}

package contract_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"petgate/shared/testkit/fleet"
)

// request is what a test sends. Where it matters, the test sets every byte.
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
	c := &fleet.Client{Addr: strings.TrimPrefix(base, "http://")}
	defer c.Close()
	reply, err := c.Do(r.text(o))
	if err != nil {
		t.Fatalf("%s %s: %v", what, o.id, err)
	}
	return answer{what: what + " " + o.id, operation: o, status: reply.Status, code: reply.Code(), header: reply.Header, body: []byte(reply.Body)}
}

// text is the request as it is sent.
func (r request) text(o operation) string {
	r.method, r.target, r.body = cmp.Or(r.method, o.method), cmp.Or(r.target, o.target), cmp.Or(r.body, o.body)
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s%s HTTP/1.1\r\nHost: pets.example\r\n", r.method, r.target, r.query)
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
	return b.String() + r.body
}

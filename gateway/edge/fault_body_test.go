package edge_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"petgate/shared/testkit"
)

// bodyClients read large bodies at the same time.
var bodyClients = testkit.Size(3, 12)

// edgeSizes are lengths of bodies at which the gateway takes a buffer of another kind, one byte less and one more.
var edgeSizes = []int{
	1, 8<<10 - 1, 8 << 10, 64<<10 - 1, 64 << 10, 64<<10 + 1, 128<<10 - 1, 128 << 10, 128<<10 + 1, 256<<10 - 1, 256 << 10, 256<<10 + 1,
}

// framings are the ways in which the upstream of these tests ends a body.
var framings = []string{"length", "chunks", "close"}

// askBody is a request for a body that no other request gets.
func askBody(framing string, size, client, n int) (request, body string) {
	name := fmt.Sprintf("%s-%d-%d-%d", framing, size, client, n)
	return rawGet("X-Request-Id: " + name), namedBody(name, size)
}

func namedBody(name string, size int) string { return repeat(name+" ", size/len(name)+1)[:size] }

// answerBody answers with the body that the request's ID names.
func answerBody(c net.Conn, r upstreamRequest) bool {
	name := strings.Join(r.Fields["x-request-id"], "")
	framing, rest, _ := strings.Cut(name, "-")
	var size int
	_, _ = fmt.Sscanf(rest, "%d-", &size)
	body := namedBody(name, size)
	head := "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	switch framing {
	case "length":
		head += "Content-Length: " + decimal(size) + "\r\n\r\n"
	case "chunks":
		head += "Transfer-Encoding: chunked\r\n\r\n"
		first, rest := body[:(size+2)/3], body[(size+2)/3:]
		body = hexadecimal(len(first)) + "\r\n" + first + "\r\n"
		if rest != "" {
			body += hexadecimal(len(rest)) + "\r\n" + rest + "\r\n"
		}
		body += "0\r\n\r\n"
	case "close":
		head += "\r\n"
	}
	_, err := io.WriteString(c, head+body)
	return err == nil && framing != "close"
}

func newBodiesRig(t *testing.T) *rig {
	r := newRig(t, func(s *setup) { s.UpstreamConnsMax, s.WriteTimeout = 128, time.Minute }) // a client waits while others read
	r.upstream.Answer(answerBody)
	return r
}

// Every client gets exactly its own bodies, whether it sends its requests at once or one after the other, and also if others go away in
// the middle of a body.
func TestLargeBodiesAreExact(t *testing.T) {
	t.Parallel()
	r := newBodiesRig(t)
	var clients sync.WaitGroup
	for client := range bodyClients {
		clients.Go(func() {
			var requests, bodies []string
			for n, size := range edgeSizes {
				request, body := askBody(framings[(n+client)%len(framings)], size, client, n)
				requests, bodies = append(requests, request), append(bodies, body)
			}
			if err := readBodies(r, requests, bodies, client%2 == 0); err != nil {
				t.Errorf("client %d: %v", client, err)
			}
			if err := leaveEarly(r, client); err != nil {
				t.Errorf("client %d: %v", client, err)
			}
		})
	}
	clients.Wait()
}

func readBodies(r *rig, requests, bodies []string, isPipelined bool) error {
	c, err := net.Dial("tcp", r.address)
	if err != nil {
		return err
	}
	defer c.Close()
	if isPipelined {
		if _, err := io.WriteString(c, strings.Join(requests, "")); err != nil {
			return err
		}
	}
	in := bufio.NewReader(c)
	for n, want := range bodies {
		_ = c.SetDeadline(time.Now().Add(patience)) // for this response: a slow machine needs longer than that for all of them
		if !isPipelined {
			if _, err := io.WriteString(c, requests[n]); err != nil {
				return err
			}
		}
		if err := readBody(in, want); err != nil {
			return err
		}
	}
	return nil
}

func readBody(in *bufio.Reader, want string) error {
	got, err := readAnswer(in, no)
	if err == nil && (got.Status != 200 || got.Body != want) {
		err = fmt.Errorf("got %d with %d bytes, %q, want %d bytes, %q", got.Status, len(got.Body), clip(got.Body), len(want), clip(want))
	}
	return err
}

// leaveEarly closes a connection after the first bytes of its response.
func leaveEarly(r *rig, client int) error {
	c, err := net.Dial("tcp", r.address)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	request, _ := askBody("length", 250_000, client, 0)
	if _, err := io.WriteString(c, request); err != nil {
		return err
	}
	_, err = io.ReadFull(c, make([]byte, 1000))
	return err
}

package edge_test

import (
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

// Every client gets exactly its own bodies, whether it sends its requests at once or one after the other, and also if others go away in
// the middle of a body.
func TestLargeBodiesAreExact(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(s *setup) { s.UpstreamConnsMax, s.WriteTimeout = 128, time.Minute }) // a client waits while others read
	r.upstream.Answer(answerBody)
	var running sync.WaitGroup
	for n := range bodyClients {
		client, early := r.say(t, ""), r.say(t, "")
		running.Go(func() {
			var requests, bodies []string
			for i, size := range edgeSizes {
				request, body := askBody(framings[(i+n)%len(framings)], size, n, i)
				requests, bodies = append(requests, request), append(bodies, body)
			}
			isPipelined := n%2 == 0
			if isPipelined {
				requests = append([]string{strings.Join(requests, "")}, make([]string, len(bodies)-1)...)
			}
			for i, want := range bodies {
				got, err := client.try(requests[i]) // each has its time: a slow machine needs longer than that for all of them
				if err != nil || got.Status != 200 || got.Body != want {
					t.Errorf("client %d: got %d with %d bytes, %q, %v, want %d bytes, %q", n, got.Status, len(got.Body), clip(got.Body), err, len(want), clip(want))
					return
				}
			}
			request, _ := askBody("length", 250_000, n, 0)
			_, _ = io.WriteString(early.conn, request)
			if _, err := io.ReadFull(early.in, make([]byte, 1000)); err != nil {
				t.Errorf("client %d: %v", n, err)
			}
			early.close()
		})
	}
	running.Wait()
}

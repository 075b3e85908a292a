package edge_test

import (
	"fmt"
	"io"
	"testing"
	"time"

	"petgate/shared/testkit"
)

// The last response of a connection has the whole write timeout, also if the connection was silent for longer than that, or if
// the upstream took longer. During a drain, every response is the last one of its connection. A gateway that stops for longer than
// the write timeout loses a response, so a few tries are allowed.
func TestLastResponseIsWritten(t *testing.T) {
	const writeTimeout = 50 * time.Millisecond
	for _, c := range []struct {
		why, request string
		status       int
		drains       bool
	}{
		{"the client closes", rawGet("Connection: close"), 200, false},
		{"the request is malformed", rawTarget("/v1/pets/.."), 400, false},
		{"the gateway drains", rawGet(), 200, true},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()
			testkit.Eventually(t, patience, "the last response", func() bool {
				r := newRig(t, func(s *setup) { s.WriteTimeout, s.ReadTimeout = writeTimeout, patience })
				client := r.dial(t)
				if _, err := client.try(rawGet()); err != nil {
					return false
				}
				time.Sleep(3 * writeTimeout) // the silence is the test
				if c.drains {
					r.edge.Drain()
				}
				got, err := client.try(c.request)
				if err == nil && (got.Status != c.status || !got.Closes) {
					t.Errorf("got %d, closes %t", got.Status, got.Closes)
				}
				return err == nil
			})
		})
	}
}

// A connection whose client still sends something after the last response lingers: a reset could reach the client before it has
// read the response.
func TestRestAfterTheLastResponse(t *testing.T) {
	r := newRig(t, func(s *setup) { s.ReadTimeout = patience })
	for _, c := range []struct {
		why, request, rest string
		status             int
	}{
		{
			"the body is refused when its beginning is there",
			rawBare("POST /v1/pets HTTP/1.1", "Host: a", "Connection: close", "Content-Length: 60000") + repeat("a", 16<<10),
			repeat("a", 60_000-16<<10), 401,
		},
		{
			"an old client ends a body with a line end",
			rawStart("POST /v1/pets HTTP/1.0", "Content-Type: application/json", "Content-Length: 2") + "{}", "\r\n", 201,
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			try := func() error {
				client := r.say(t, c.request)
				if err := client.conn.SetDeadline(time.Now().Add(patience)); err != nil {
					return err
				}
				if got, err := readAnswer(client.in, no); err != nil || got.Status != c.status {
					return fmt.Errorf("got %d, %v", got.Status, err)
				}
				if n, err := client.in.Read(make([]byte, 1)); err != io.EOF {
					return fmt.Errorf("after the response: %d bytes, %v", n, err)
				}
				for _, part := range []string{c.rest[:1], c.rest[1:]} { // a reset that the first part causes fails the second
					if _, err := io.WriteString(client.conn, part); err != nil {
						return fmt.Errorf("the rest of what the client sends: %w", err)
					}
				}
				if n, err := client.in.Read(make([]byte, 1)); err != io.EOF {
					return fmt.Errorf("after the rest: %d bytes, %v", n, err)
				}
				return nil
			}
			testkit.Eventually(t, patience, "a try that takes less than half of the second for which the gateway lingers", func() bool {
				began := time.Now()
				err := try()
				if err != nil && time.Since(began) < time.Second/2 {
					t.Fatal(err)
				}
				return err == nil
			})
		})
	}
}

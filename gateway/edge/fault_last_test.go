package edge_test

import (
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

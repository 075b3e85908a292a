package edge_test

import (
	"testing"
	"time"
)

// The last response of a connection has the whole write timeout, also if the connection was silent for longer than that, or if
// the upstream took longer. During a drain, every response is the last one of its connection.
func TestLastResponseIsWritten(t *testing.T) {
	const writeTimeout = 50 * time.Millisecond
	r := newRig(t, func(s *setup) { s.WriteTimeout, s.ReadTimeout = writeTimeout, patience })
	closing, malformed, draining := r.dial(t), r.dial(t), r.dial(t)
	for _, client := range []*rawClient{closing, malformed, draining} {
		client.ask(t, rawGet())
	}
	time.Sleep(3 * writeTimeout) // the silence is the test
	if got, err := closing.try(rawGet("Connection: close")); err != nil || got.Status != 200 {
		t.Errorf("the client closes: got %d %v", got.Status, err)
	}
	if got, err := malformed.try(rawTarget("/v1/pets/..")); err != nil || got.Status != 400 {
		t.Errorf("the request is malformed: got %d %v", got.Status, err)
	}
	r.edge.Drain()
	if got, err := draining.try(rawGet()); err != nil || got.Status != 200 || !got.Closes {
		t.Errorf("the gateway drains: got %d, closes %t, %v", got.Status, got.Closes, err)
	}
}

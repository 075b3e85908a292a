package edge_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A stage that panics costs its own exchange: a 500 by the contract and one line in each log. Everyone else is served.
func TestPanic(t *testing.T) {
	for name, request := range map[string]string{
		"lookup": rawGet(), "fresh": rawGet(), "fail": rawBearer(unknownToken), "take": rawGet(), "known": rawBearer(suspendedToken),
		"attempts": rawKey(), // while the response is written
		"clock":    rawGet(), "statement": rawUsage(""), "count": rawGet(),
	} {
		t.Run(name, func(t *testing.T) {
			var broken atomic.Bool
			broken.Store(true)
			r := newFaultRig(t, func(s *setup) {
				s.fails = func(dependency string) {
					if dependency == name && broken.Load() {
						panic("planted")
					}
				}
				clock := s.Clock
				s.Clock = func() time.Time { s.fails("clock"); return clock() }
			})
			got := r.dial(t).ask(t, request)
			if err := got.refusal(); name != "count" && (err != nil || got.Status != 500 || got.Code != "internal") {
				t.Errorf("got %d %s %v", got.Status, got.Code, err)
			}
			r.awaitLines(t, 1)
			if !strings.Contains(r.log.String(), "planted") {
				t.Errorf("the log does not tell of it: %s", r.log)
			}
			broken.Store(false)
			for range 3 {
				if got := r.dial(t).ask(t, rawGet()); got.Status != 200 {
					t.Errorf("afterwards: %d %s", got.Status, got.Body)
				}
			}
		})
	}
}

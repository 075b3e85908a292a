package edge_test

import (
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// exhausted fails to accept at first, as a process that is out of descriptors does.
type exhausted struct {
	net.Listener
	failures atomic.Int64
}

func (l *exhausted) Accept() (net.Conn, error) {
	if l.failures.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

// A gateway that has no file descriptors left continues when there are some again, and logs the cause.
func TestOutOfDescriptors(t *testing.T) {
	l := &exhausted{}
	l.failures.Store(3)
	r := newRig(t, func(s *setup) {
		s.listen = func(ln net.Listener) net.Listener { l.Listener = ln; return l }
	})
	if got := r.dial(t).ask(t, rawGet()); got.Status != 200 {
		t.Errorf("got %d %s", got.Status, got.Body)
	}
	if log := r.log.String(); !strings.Contains(log, "too many open files") || !strings.Contains(log, "ulimit -n") {
		t.Errorf("the log does not name the fault and its cure: %s", log)
	}
}

package socket

import (
	"errors"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// failing fails to accept for a while, like a process without free descriptors.
type failing struct {
	net.Listener
	until time.Time
	end   error
	calls int
}

// callsMax is far more calls than a Listener that waits makes. Without a wait, the clock of the
// test would stand still.
const callsMax = 1000

func (f *failing) Addr() net.Addr { return &net.TCPAddr{} }

func (f *failing) Accept() (net.Conn, error) {
	f.calls++
	if f.calls > callsMax {
		return nil, errors.New("too many calls: the Listener does not wait after a failure")
	}
	if time.Now().Before(f.until) {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: syscall.EMFILE}
	}
	if f.end != nil {
		return nil, f.end
	}
	near, _ := net.Pipe()
	return near, nil
}

func TestListenerGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const outage = 10 * time.Second
		var log strings.Builder
		failures := 0
		f := &failing{until: time.Now().Add(outage)}
		l := &Listener{Listener: f, Log: slog.New(slog.NewTextHandler(&log, nil)), Failed: func() { failures++ }}
		began := time.Now()
		c, err := l.Accept()
		if err != nil {
			t.Fatalf("Accept: %v", err)
		}
		defer c.Close()
		if took := time.Since(began); took < outage || took > outage+acceptWaitMax {
			t.Errorf("accepted after %v, want %v to %v", took, outage, outage+acceptWaitMax)
		}
		if failures < 10 || failures > 30 {
			t.Errorf("%d failures in %v: the waits do not grow to %v", failures, outage, acceptWaitMax)
		}
		count := func(text string) int { return strings.Count(log.String(), text) }
		if lines := count("\n"); lines < 5 || lines > 11 || count("ulimit -n") != lines || count("listen=:0") != lines {
			t.Errorf("%d lines logged in %v, want about one a second, with the cure", lines, outage)
		}
		f.end = net.ErrClosed
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}

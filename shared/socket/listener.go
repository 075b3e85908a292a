package socket

import (
	"errors"
	"log/slog"
	"net"
	"syscall"
	"time"

	"golang.org/x/time/rate"
)

// Listener continues when the kernel fails to accept a connection, for example because the process
// has no file descriptors left. It waits longer after each failure in a row. Any other error ends
// it, such as the error of a closed listener.
type Listener struct {
	net.Listener
	Log    *slog.Logger
	Failed func() // called after each failure, for a metric
}

// How long a Listener waits after a failure.
const (
	acceptWaitMin = 5 * time.Millisecond
	acceptWaitMax = time.Second
)

// Accept returns the next connection, a Conn.
func (l *Listener) Accept() (net.Conn, error) {
	logs := rate.Sometimes{Interval: time.Second}
	for wait := acceptWaitMin; ; wait = min(2*wait, acceptWaitMax) {
		c, err := l.Listener.Accept()
		if failure := syscall.Errno(0); !errors.As(err, &failure) {
			if err != nil {
				return nil, err
			}
			return New(c), nil
		}
		l.Failed()
		logs.Do(func() {
			l.Log.Error("cannot accept connections: raise the limit of open files (ulimit -n) "+
				"or lower the maximum of connections", "listen", l.Addr().String(), "error", err)
		})
		time.Sleep(wait)
	}
}

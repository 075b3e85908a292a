package socket

import (
	"errors"
	"log/slog"
	"net"
	"syscall"
	"time"
)

// Listener continues when the kernel fails to accept a connection, for example because the process has no file descriptors left.
// It waits longer after each failure in a row. Any other error ends it, such as the error of a closed listener.
type Listener struct {
	net.Listener
	Log    *slog.Logger
	Failed func() // called after each failure, for a metric

	// Timeout is the shortest timeout of the server. If it is set, the connections have quiet calls and cheap deadlines.
	Timeout time.Duration
}

// How long a Listener waits after a failure, and how often it logs one.
const (
	acceptWaitMin  = 5 * time.Millisecond
	acceptWaitMax  = time.Second
	acceptLogEvery = time.Second
)

// Accept returns the next connection.
func (l *Listener) Accept() (net.Conn, error) {
	var loggedAt time.Time
	for wait := acceptWaitMin; ; wait = min(2*wait, acceptWaitMax) {
		c, err := l.Listener.Accept()
		if failure := syscall.Errno(0); !errors.As(err, &failure) {
			if err == nil && l.Timeout > 0 {
				c = NewTimed(c, Slack(l.Timeout))
			}
			return c, err
		}
		l.Failed()
		if now := time.Now(); now.Sub(loggedAt) >= acceptLogEvery {
			loggedAt = now
			l.Log.Error("cannot accept connections: raise the limit of open files (ulimit -n) or lower the maximum of connections",
				"listen", l.Addr().String(), "error", err)
		}
		time.Sleep(wait)
	}
}

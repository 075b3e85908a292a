package edge

import (
	"bytes"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"petgate/shared/api"
)

// accessLog writes a line for each exchange in slog's JSON format. Exchanges append lines to a buffer, and one goroutine
// writes the buffer. With a system call for each line, the log would cost a tenth of a request.
type accessLog struct {
	to      io.Writer
	log     *slog.Logger
	dropped prometheus.Counter

	mu       sync.Mutex
	gathered []byte
	wake     chan struct{}
	done     chan struct{}
}

// accessBytesMax bounds the buffer while the reader is slow. Further lines are dropped.
const accessBytesMax = 8 << 20

func newAccessLog(to io.Writer, log *slog.Logger, dropped prometheus.Counter) *accessLog {
	l := &accessLog{to: to, log: log, dropped: dropped, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go l.run(l.wake)
	return l
}

func (l *accessLog) run(wake <-chan struct{}) {
	defer close(l.done)
	var writing []byte
	for range wake {
		l.mu.Lock()
		writing, l.gathered = l.gathered, writing[:0]
		l.mu.Unlock()
		if n, err := l.to.Write(writing); err != nil {
			l.dropped.Add(float64(bytes.Count(writing[n:], []byte{'\n'})))
			l.log.Error("write access log", "error", err)
		}
		if cap(writing) > 1<<20 {
			writing = nil
		}
	}
}

// closeMax is how long close waits for a reader that does not read.
const closeMax = time.Second

// close writes the rest of the buffer. If nothing reads it, close gives up: the program has to end.
func (l *accessLog) close() {
	l.mu.Lock()
	if l.wake != nil {
		close(l.wake)
		l.wake = nil
	}
	l.mu.Unlock()
	select {
	case <-l.done:
	case <-time.After(closeMax):
		l.log.Error("the last lines of the access log are lost: nothing reads it")
	}
}

func (l *accessLog) write(x *exchange, took time.Duration) {
	x.line = appendAccess(x.line[:0], x, took)
	l.append(x.line)
}

// append adds a line to the buffer, or drops it.
func (l *accessLog) append(line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wake == nil || len(l.gathered) > accessBytesMax {
		l.dropped.Inc()
		return
	}
	l.gathered = append(l.gathered, line...)
	select {
	case l.wake <- struct{}{}:
	default: // already awake
	}
}

// loggedPathBytesMax is how much of a path is logged.
const loggedPathBytesMax = 256

// appendAccess appends the line. Everything that comes from a client is written as a JSON string. Clients sometimes put
// secrets into wrong places, so the line has no query, and no method or path that seems to contain a token.
func appendAccess(dst []byte, x *exchange, took time.Duration) []byte {
	dst = append(dst, `{"time":"`...)
	dst = x.now.Time().AppendFormat(dst, "2006-01-02T15:04:05.000Z")
	dst = api.AppendString(append(dst, `","level":"INFO","msg":"request","requestId":`...), x.id)
	if x.client.IsValid() {
		dst = append(x.client.AppendTo(append(dst, `,"client":"`...)), '"')
	}
	if method := x.request.Method; len(method) > 0 && !bytes.Contains(method, tokenMark) {
		dst = api.AppendString(append(dst, `,"method":`...), method)
	}
	if path := x.request.Path; len(path) > 0 {
		if bytes.Contains(path, tokenMark) {
			path = []byte("withheld")
		}
		dst = api.AppendString(append(dst, `,"path":`...), path[:min(len(path), loggedPathBytesMax)])
	}
	if x.route != nil {
		dst = api.AppendString(append(dst, `,"operation":`...), x.route.ID)
	}
	if x.hasKey {
		dst = append(x.entry.Tenant.AppendTo(append(dst, `,"tenant":"`...)), '"')
		dst = append(x.entry.Key.AppendTo(append(dst, `,"key":"`...)), '"')
	}
	dst = strconv.AppendInt(append(dst, `,"status":`...), int64(x.rc.Response.StatusCode()), 10)
	dst = append(append(append(dst, `,"outcome":"`...), x.refusal.reason.outcome()...), '"')
	dst = strconv.AppendInt(append(dst, `,"bytes":`...), int64(len(x.rc.Response.Body())), 10)
	dst = strconv.AppendInt(append(dst, `,"micros":`...), took.Microseconds(), 10)
	return append(dst, "}\n"...)
}

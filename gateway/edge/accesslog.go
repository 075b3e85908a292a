package edge

import (
	"io"
	"log/slog"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"petgate/shared/api"
	"petgate/shared/core/apikey"
	"petgate/shared/lines"
)

// accessLog writes a line for each exchange in slog's JSON format. No exchange waits for it: see
// lines.Writer.
type accessLog struct {
	lines *lines.Writer
	log   *slog.Logger

	strangers *rate.Limiter // of the lines of refusals without a key
}

// strangersLinesMax is how many lines a second refusals without a key get: strangers could fill the
// disk. Metrics count all refusals.
const strangersLinesMax = 100

func newAccessLog(to io.Writer, log *slog.Logger, dropped prometheus.Counter) *accessLog {
	complaints := rate.Sometimes{Interval: time.Minute} // for example because the disk is full
	return &accessLog{
		log:       log,
		strangers: rate.NewLimiter(strangersLinesMax, strangersLinesMax),
		lines: lines.New(to, lines.Pause, func(n int, err error) {
			dropped.Add(float64(n))
			if err != nil {
				complaints.Do(func() { log.Error("lines of the access log are lost", "error", err) })
			}
		}),
	}
}

// close writes the lines that are left.
func (l *accessLog) close() {
	if err := l.lines.Close(); err != nil {
		l.log.Error("the last lines of the access log are lost", "error", err)
	}
}

func (l *accessLog) write(x *exchange, took time.Duration) {
	if !x.hasEntry && x.refusal.isRefused() && !l.strangers.Allow() {
		return
	}
	from := len(x.line)
	x.line = appendAccess(x.line, x, took)
	_, _ = l.lines.Write(x.line[from:]) // it never fails
}

// loggedPathBytesMax is how much of a path is logged.
const loggedPathBytesMax = 256

// loggedPath returns the path for logs and spans.
func (x *exchange) loggedPath() []byte {
	path := x.Request.Path
	if apikey.IsIn(path) {
		return []byte("withheld")
	}
	return path[:min(len(path), loggedPathBytesMax)]
}

// appendAccess appends the line. Everything that comes from a client is written as a JSON string.
// Clients sometimes put secrets into wrong places, so the line has no query, and no method or path
// that seems to contain a token.
func appendAccess(dst []byte, x *exchange, took time.Duration) []byte {
	dst = append(dst, `{"time":"`...)
	dst = x.now.AppendTo(dst)
	dst = append(dst, `","level":"INFO","msg":"request","program":"gateway","requestId":`...)
	dst = api.AppendString(dst, x.id)
	if x.trace.Sampled {
		dst = append(dst, `,"traceId":"`...)
		dst = x.trace.Trace.AppendTo(dst)
		dst = append(dst, '"')
	}
	if x.client.IsValid() {
		dst = append(dst, `,"client":"`...)
		dst = x.client.AppendTo(dst)
		dst = append(dst, '"')
	}
	if method := x.Request.Method; len(method) > 0 && !apikey.IsIn(method) {
		dst = append(dst, `,"method":`...)
		dst = api.AppendString(dst, method)
	}
	if path := x.loggedPath(); len(path) > 0 {
		dst = append(dst, `,"path":`...)
		dst = api.AppendString(dst, path)
	}
	if x.route != nil {
		dst = append(dst, `,"operation":`...)
		dst = api.AppendString(dst, x.route.ID)
	}
	if x.hasEntry {
		dst = append(dst, `,"tenant":"`...)
		dst = x.entry.Tenant.AppendTo(dst)
		dst = append(dst, `","key":"`...)
		dst = x.entry.Key.AppendTo(dst)
		dst = append(dst, '"')
	}
	dst = append(dst, `,"status":`...)
	dst = strconv.AppendInt(dst, int64(x.Response.Status), 10)
	dst = append(dst, `,"outcome":"`...)
	dst = append(dst, x.outcome()...)
	dst = append(dst, `","bytes":`...)
	dst = strconv.AppendInt(dst, x.responseBytes(), 10)
	dst = append(dst, `,"micros":`...)
	dst = strconv.AppendInt(dst, took.Microseconds(), 10)
	return append(dst, "}\n"...)
}

package edge

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"petgate/shared/socket"
)

// Passive health: an upstream that failed so often in a row gets nothing for a while, if another one is there. Nor does one
// that closes a connection behind its answer: it is about to end, and a request that meets its end would be lost.
const (
	failuresToEject = 3
	ejectedFor      = 3 * time.Second
	dialTimeout     = time.Second
	complainEvery   = 3 * time.Second
)

// upstream is one instance of the service, with its connections.
type upstream struct {
	network, address string
	bit              uint64 // in a set of upstreams
	cfg              *Config

	inFlight     atomic.Int64
	failures     atomic.Int64 // in a row
	ejectedUntil atomic.Int64 // ms by the machine's clock
	complainedAt atomic.Int64 // the same

	mu   sync.Mutex
	idle []*link // the one used last is the last
}

// link is a connection to an upstream. It belongs to one exchange at a time.
type link struct {
	*socket.Conn
	upstream *upstream
	deadline socket.Deadline
	isUsed   bool      // it has carried an exchange
	hasBegun bool      // some of the present answer has come
	usedAt   time.Time // when its last exchange began
	window
}

// parseUpstream reads http://host:port or unix:/path.
func parseUpstream(text string) (network, address string, err error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok && path != "" {
		return "unix", path, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/")+u.RawQuery+u.Fragment != "" {
		return "", "", fmt.Errorf("%q is no upstream: use http://host:port or unix:/path", text)
	}
	if u.Port() == "" {
		return "tcp", net.JoinHostPort(u.Hostname(), "80"), nil
	}
	return "tcp", u.Host, nil
}

func newUpstream(text string, n int, cfg *Config) (*upstream, error) {
	network, address, err := parseUpstream(text)
	if err != nil {
		return nil, err
	}
	return &upstream{network: network, address: address, bit: 1 << n, cfg: cfg}, nil
}

// pick returns the least loaded upstream that is healthy and not among those tried, else the least loaded of the ejected
// ones: when all are ill, to try one is better than to refuse. It returns nil when all have been tried.
func (e *Edge) pick(tried uint64, now int64) *upstream {
	var best *upstream
	var bestLoad int64
	offset := 0
	if len(e.upstreams) > 1 {
		offset = rand.IntN(len(e.upstreams)) // so that equals are chosen evenly
	}
	for i := range e.upstreams {
		u := e.upstreams[(i+offset)%len(e.upstreams)]
		load := u.inFlight.Load()
		if u.ejectedUntil.Load() > now {
			load += 1 << 32
		}
		if tried&u.bit == 0 && (best == nil || load < bestLoad) {
			best, bestLoad = u, load
		}
	}
	return best
}

// acquire takes an idle connection, or dials one.
func (u *upstream) acquire(now, deadline time.Time) (*link, error) {
	for l := u.pop(); l != nil; l = u.pop() {
		if now.Sub(l.usedAt) <= u.cfg.UpstreamIdleTimeout && l.finishBy(deadline) == nil {
			return l, nil
		}
		_ = l.Close()
	}
	timeout := min(dialTimeout, time.Until(deadline))
	if timeout <= 0 {
		timeout = time.Nanosecond
	}
	conn, err := net.DialTimeout(u.network, u.address, timeout)
	if err != nil {
		return nil, err
	}
	l := &link{Conn: socket.New(conn), upstream: u, window: window{buf: make([]byte, u.cfg.UpstreamHeaderBytesMax)}}
	if err := l.finishBy(deadline); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return l, nil
}

// finishBy has the next exchange fail past the deadline.
func (l *link) finishBy(deadline time.Time) error {
	if t, changed := l.deadline.Move(deadline, socket.Slack(l.upstream.cfg.UpstreamTimeout)); changed {
		return l.SetDeadline(t)
	}
	return nil
}

func (u *upstream) pop() *link {
	u.mu.Lock()
	defer u.mu.Unlock()
	last := len(u.idle) - 1
	if last < 0 {
		return nil
	}
	l := u.idle[last]
	u.idle[last] = nil
	u.idle = u.idle[:last]
	return l
}

// release keeps a connection for the next exchange, and closes those that nobody needed for long.
func (u *upstream) release(l *link, now time.Time) {
	l.start, l.end, l.hasBegun, l.isUsed, l.usedAt = 0, 0, false, true, now
	var old *link
	u.mu.Lock()
	if len(u.idle) > 0 && now.Sub(u.idle[0].usedAt) > u.cfg.UpstreamIdleTimeout {
		old = u.idle[0]
		u.idle = append(u.idle[:0], u.idle[1:]...)
	}
	u.idle = append(u.idle, l)
	u.mu.Unlock()
	if old != nil {
		_ = old.Close()
	}
}

// closeIdle closes all unused connections.
func (u *upstream) closeIdle() {
	for l := u.pop(); l != nil; l = u.pop() {
		_ = l.Close()
	}
}

// succeeded and failed keep the upstream's health. An answer ends its ejection: where all upstreams are ejected, as in a quick
// restart of one after the other, the one that is back gets the work again.
func (u *upstream) succeeded() {
	if u.failures.Load() != 0 {
		u.failures.Store(0)
	}
	if u.ejectedUntil.Load() != 0 {
		u.ejectedUntil.Store(0)
	}
}

func (u *upstream) failed() {
	if u.failures.Add(1) >= failuresToEject {
		u.failures.Store(0)
		u.eject()
	}
}

// mayComplain reports whether a failure may be logged: one in complainEvery may.
func (u *upstream) mayComplain() bool {
	now, last := time.Now().UnixMilli(), u.complainedAt.Load()
	return now-last >= complainEvery.Milliseconds() && u.complainedAt.CompareAndSwap(last, now)
}

func (u *upstream) eject() { u.ejectedUntil.Store(time.Now().Add(ejectedFor).UnixMilli()) }

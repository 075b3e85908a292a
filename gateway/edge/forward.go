package edge

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"time"

	"petgate/shared/socket"
)

// attempt is how one try with one upstream ended.
type attempt uint8

const (
	answered    attempt = iota
	full                // the upstream has as many requests as it may be given; nothing was sent
	unconnected         // it could not be dialed, or gave up a new connection at once; nothing was sent
	stale               // an idle connection was no longer good; nothing was sent
	died                // a connection that had served before ended without a byte of an answer
	failed              // the answer cannot be used, or there was none
	late                // the deadline passed
)

// forward sends the request to an upstream and takes its answer. There is one attempt within the deadline, and a second one
// only where it can do no harm: for GET and HEAD, when a connection that had served before died without a byte. An upstream
// that cannot be dialed was sent nothing, so that any request may go to the next one.
func (e *Edge) forward(x *exchange) refusal {
	x.sent = e.appendRequest(x.sent[:0], x)
	deadline := x.startedAt.Add(e.cfg.UpstreamTimeout)
	mayRepeat := x.route.Method == http.MethodGet
	var tried uint64
	for {
		u := e.pick(tried, x.startedAt.UnixMilli())
		if u == nil {
			return refusal{reason: upstreamUnreachable}
		}
		switch end := e.try(x, u, deadline); {
		case end == answered:
			return refusal{}
		case end == full:
			return refusal{reason: upstreamOverloaded}
		case end == late:
			return refusal{reason: upstreamTimeout}
		case end == unconnected:
			tried |= u.bit
		case end == died && mayRepeat:
			mayRepeat = false
			e.metrics.retries.Inc()
		default:
			return refusal{reason: upstreamUnreachable}
		}
	}
}

// try makes one attempt, and keeps the upstream's health and connections.
func (e *Edge) try(x *exchange, u *upstream, deadline time.Time) attempt {
	if u.inFlight.Add(1) > int64(e.cfg.UpstreamConnsMax) {
		u.inFlight.Add(-1)
		return full
	}
	defer u.inFlight.Add(-1)
	end, err := stale, error(nil)
	for end == stale {
		var l *link
		if l, err = u.acquire(x.startedAt, deadline); err != nil {
			e.upstreamFailed(u, err)
			if !time.Now().Before(deadline) {
				return late
			}
			return unconnected
		}
		x.link = l
		end, err = l.exchange(x)
		x.link = nil
		if end == answered && x.answer.isReusable {
			u.release(l, x.startedAt)
		} else {
			_ = l.Close()
		}
	}
	switch end {
	case answered:
		u.succeeded()
		if x.answer.isLast {
			u.eject()
		}
	case unconnected, failed, late:
		e.upstreamFailed(u, err)
	}
	return end
}

// upstreamFailed counts a failure against an upstream, and now and then says what it is.
func (e *Edge) upstreamFailed(u *upstream, err error) {
	if u.failed(); u.mayComplain() {
		e.log.Warn("an upstream fails", "upstream", u.address, "error", err.Error())
	}
}

// exchange sends x's request and receives its answer. Nothing is sent on a connection that the upstream has closed, or on
// which it has said something unasked: on the former a POST would be lost, on the latter the next answer would be another
// request's.
func (l *link) exchange(x *exchange) (_ attempt, err error) {
	if len(x.body) > inlineBytesMax {
		err = l.sendLarge(x.sent, x.body)
	} else {
		err = l.send(x.sent)
	}
	if err == nil {
		err = l.receive(&x.answer, x.rc.IsHead())
	}
	switch {
	case err == nil:
		return answered, nil
	case errors.Is(err, socket.ErrStale) && l.isUsed:
		return stale, err
	case errors.Is(err, socket.ErrStale):
		return unconnected, err
	case isTimeout(err):
		return late, err
	case l.isUsed && !l.hasBegun:
		return died, err
	default:
		return failed, err
	}
}

// inlineBytesMax is the largest body that is copied behind its head, so that one system call sends both.
const inlineBytesMax = 16 << 10

// appendRequest appends the request as the upstream gets it. It is built from what was accepted, never from what came: the
// token, hop-by-hop fields and everything that could claim an identity stayed behind in head.read.
func (e *Edge) appendRequest(dst []byte, x *exchange) []byte {
	h := &x.head
	dst = append(append(dst, h.method...), ' ')
	dst = append(append(dst, h.target...), " HTTP/1.1\r\nHost: petgate\r\n"...)
	for _, f := range h.fields {
		dst = appendField(dst, f.name, f.value)
	}
	dst = append(append(dst, "X-Request-Id: "...), x.id...)
	dst = x.entry.Tenant.AppendTo(append(dst, "\r\nX-Tenant-Id: "...))
	dst = x.entry.Key.AppendTo(append(dst, "\r\nX-Key-Id: "...))
	dst = append(append(dst, "\r\nX-Plan: "...), x.entry.Plan...)
	dst = append(dst, "\r\nX-Forwarded-For: "...)
	if x.client.IsValid() {
		dst = x.client.AppendTo(dst)
	} else {
		dst = append(dst, "unknown"...) // the peer of a unix socket has no address (RFC 7239, section 6)
	}
	dst = append(append(dst, "\r\nX-Forwarded-Proto: "...), e.protocol(x)...)
	if len(h.host) > 0 {
		dst = append(append(dst, "\r\nX-Forwarded-Host: "...), h.host...)
	}
	dst = append(dst, "\r\ntraceparent: "...)
	dst, continued := appendTrace(dst, h.traceParent)
	if continued && len(h.traceState) > 0 {
		dst = append(append(dst, "\r\ntracestate: "...), h.traceState...)
	}
	dst = append(dst, e.secretField...)
	if len(x.body) > 0 || x.route.Method != http.MethodGet {
		dst = strconv.AppendInt(append(dst, "\r\nContent-Length: "...), int64(len(x.body)), 10)
	}
	dst = append(dst, "\r\n\r\n"...)
	if len(x.body) <= inlineBytesMax {
		dst = append(dst, x.body...)
	}
	return dst
}

func appendField(dst, name, value []byte) []byte {
	dst = append(append(dst, name...), ": "...)
	return append(append(dst, value...), "\r\n"...)
}

// protocol is what the client spoke; a trusted proxy's word counts.
func (e *Edge) protocol(x *exchange) string {
	if said := x.head.forwardedProto; len(said) > 0 && e.isTrusted(x.wire.peer) {
		if equalFold(said, "https") {
			return "https"
		}
		if equalFold(said, "http") {
			return "http"
		}
	}
	if x.wire.isTLS {
		return "https"
	}
	return "http"
}

// appendTrace continues the client's trace or begins one that is not sampled (W3C Trace Context, section 3.2): the trace ID
// stays, the parent is this gateway, and of the flags only the known ones go on.
func appendTrace(dst, parent []byte) (_ []byte, continued bool) {
	const trace, span, flags, end = 3, 36, 53, 55 // where the parts begin
	// Not upper case: the recommendation makes it invalid. A later version may have more parts, behind a hyphen.
	valid := len(parent) >= end && isLowerHex(parent[:2]) && string(parent[:2]) != "ff" &&
		(len(parent) == end || parent[end] == '-' && string(parent[:2]) != "00") &&
		parent[trace-1] == '-' && parent[span-1] == '-' && parent[flags-1] == '-' &&
		isLowerHex(parent[trace:span-1]) && isLowerHex(parent[span:flags-1]) && isLowerHex(parent[flags:end]) &&
		!isZero(parent[trace:span-1]) && !isZero(parent[span:flags-1])
	dst = append(dst, "00-"...)
	if !valid {
		return append(appendRandom(append(appendRandom(dst, 2), '-'), 1), "-00"...), false
	}
	dst = append(append(dst, parent[trace:span-1]...), '-')
	dst = append(appendRandom(dst, 1), "-0"...)
	return append(dst, '0'+unhex(parent[end-1])&1), true
}

func isLowerHex(b []byte) bool {
	for _, c := range b {
		if !is(c, hexByte) || 'A' <= c && c <= 'F' {
			return false
		}
	}
	return true
}

func isZero(digits []byte) bool { return len(bytes.Trim(digits, "0")) == 0 }

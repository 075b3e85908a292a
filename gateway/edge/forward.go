package edge

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"petgate/gateway/directory"
	"petgate/gateway/http1"
	"petgate/gateway/upstream"
	"petgate/shared/api"
)

// forward sends the request to the upstream at which meter took a slot, and reads its response, or
// the beginning of a long one.
func (e *Edge) forward(x *exchange) refusal {
	x.sending.Source, x.sending.IsHead = x, x.IsHead()
	if x.Body.IsComplete() {
		x.sending.MayRepeat = x.mayRepeat()
	} else {
		x.sending.HasMore, x.sending.IsChunked = true, x.Request.Length() < 0
		e.returnSlot(x) // the client may be slow
	}
	if len(x.Body.Bytes) > inlineBytesMax {
		x.sending.Body = x.Body.Bytes
	}
	switch err := x.route.pool.Send(&x.sending, &x.received); {
	case err == nil:
		return refusal{}
	case errors.Is(err, upstream.ErrTimeout):
		return refusal{reason: upstreamTimeout}
	case errors.Is(err, upstream.ErrRefused):
		return refusal{reason: upstreamRefused}
	case errors.Is(err, upstream.ErrUntrusted):
		return refusal{reason: upstreamCertificate}
	case errors.Is(err, upstream.ErrUnreachable):
		return refusal{reason: upstreamUnreachable}
	case !errors.Is(err, upstream.ErrCut):
		return refusal{reason: upstreamFailed}
	case errors.Is(err, errPanicked):
		return refusal{reason: internal}
	case http1.KindOf(err) != 0: // the client's body broke off
		return e.unreadable(err)
	}
	// The body ended early, because the key has ended.
	return cmp.Or(e.authenticateAgain(x), refusal{reason: upstreamFailed})
}

// mayRepeat reports whether the request may be sent twice: it changes nothing, or the service
// recognizes the second one by its Idempotency-Key.
func (x *exchange) mayRepeat() bool {
	isKey := func(f http1.Field) bool { return http1.EqualFold(f.Name, keyName) }
	return x.route.Method == http.MethodGet || x.route.TakesKey && slices.ContainsFunc(x.Request.Fields, isKey)
}

var keyName = strings.ToLower(api.KeyHeader)

// inlineBytesMax is the largest body that is copied behind the head, so that one system call sends
// both.
const inlineBytesMax = 16 << 10

// appendRequest appends the request that the upstream gets. It is built only from what accept let
// through: the token, hop-by-hop fields and all fields that claim an identity are already removed.
func (e *Edge) appendRequest(dst []byte, x *exchange, host string) []byte {
	q := &x.Request
	dst = append(dst, q.Method...)
	dst = append(dst, ' ')
	dst = append(dst, q.Target...)
	dst = append(dst, " HTTP/1.1\r\nHost: "...)
	if e.cfg.UpstreamHost == KeepHost && len(q.Host) > 0 {
		dst = append(dst, q.Host...)
	} else {
		dst = append(dst, host...)
	}
	dst = http1.AppendFields(append(dst, "\r\n"...), q.Fields)
	dst = append(dst, "X-Request-Id: "...)
	dst = append(dst, x.id...)
	if !x.isPublic {
		dst = appendCaller(dst, &x.entry)
	}
	dst = e.appendOrigin(dst, x)
	dst = append(dst, e.secretField...)
	dst = x.appendFraming(dst)
	if len(x.Body.Bytes) <= inlineBytesMax {
		dst = append(dst, x.Body.Bytes...)
	}
	return dst
}

// appendCaller appends who calls.
func appendCaller(dst []byte, entry *directory.Entry) []byte {
	dst = append(dst, "\r\nX-Tenant-Id: "...)
	dst = entry.Tenant.AppendTo(dst)
	dst = append(dst, "\r\nX-Key-Id: "...)
	dst = entry.Key.AppendTo(dst)
	dst = append(dst, "\r\nX-Plan: "...)
	return append(dst, entry.Plan...)
}

// appendOrigin appends where the request comes from, and the trace that it belongs to.
func (e *Edge) appendOrigin(dst []byte, x *exchange) []byte {
	dst = append(dst, "\r\nX-Forwarded-For: "...)
	if x.client.IsValid() {
		dst = x.client.AppendTo(dst)
	} else {
		dst = append(dst, "unknown"...) // such as the peer of a unix socket (RFC 7239, section 6)
	}
	dst = append(dst, "\r\nX-Forwarded-Proto: "...)
	dst = append(dst, e.proxies.Protocol(x.Conn.Peer, x.Conn.IsTLS, &x.claims)...)
	if len(x.Request.Host) > 0 {
		dst = append(dst, "\r\nX-Forwarded-Host: "...)
		dst = append(dst, x.Request.Host...)
	}
	dst = append(dst, "\r\ntraceparent: "...)
	dst = x.trace.AppendTo(dst)
	if state := x.claims.TraceState(); len(state) > 0 && x.trace.Continued {
		dst = append(dst, "\r\ntracestate: "...)
		dst = append(dst, state...)
	}
	return dst
}

// appendFraming appends how long the body is, and the end of the head.
func (x *exchange) appendFraming(dst []byte) []byte {
	length := int64(len(x.Body.Bytes))
	if x.sending.HasMore {
		length = x.Request.Length()
	}
	switch {
	case length < 0:
		dst = append(dst, "\r\nTransfer-Encoding: chunked"...)
	case length > 0 || x.route.Method != http.MethodGet:
		dst = append(dst, "\r\nContent-Length: "...)
		dst = strconv.AppendInt(dst, length, 10)
	}
	return append(dst, "\r\n\r\n"...)
}

package edge

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

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
	} else { // its client may be slow
		x.sending.HasMore, x.sending.IsChunked = true, x.Request.Length() < 0
		e.leave(x)
	}
	if len(x.Body.Bytes) > inlineBytesMax {
		x.sending.Body = x.Body.Bytes
	}
	switch err := x.route.pool.Send(&x.sending, &x.response); {
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
	return cmp.Or(e.again(x), refusal{reason: upstreamFailed})
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
	dst = append(append(dst, q.Method...), ' ')
	dst = append(append(dst, q.Target...), " HTTP/1.1\r\nHost: "...)
	if e.cfg.UpstreamHost == KeepHost && len(q.Host) > 0 {
		dst = append(dst, q.Host...)
	} else {
		dst = append(dst, host...)
	}
	dst = http1.AppendFields(append(dst, "\r\n"...), q.Fields)
	dst = append(append(dst, "X-Request-Id: "...), x.id...)
	if !x.isOpen {
		dst = x.entry.Tenant.AppendTo(append(dst, "\r\nX-Tenant-Id: "...))
		dst = x.entry.Key.AppendTo(append(dst, "\r\nX-Key-Id: "...))
		dst = append(append(dst, "\r\nX-Plan: "...), x.entry.Plan...)
	}
	dst = append(dst, "\r\nX-Forwarded-For: "...)
	if x.client.IsValid() {
		dst = x.client.AppendTo(dst)
	} else {
		dst = append(dst, "unknown"...) // such as the peer of a unix socket (RFC 7239, section 6)
	}
	dst = append(append(dst, "\r\nX-Forwarded-Proto: "...), e.proxies.Protocol(x.Conn.Peer, x.Conn.IsTLS, &x.claims)...)
	if len(q.Host) > 0 {
		dst = append(append(dst, "\r\nX-Forwarded-Host: "...), q.Host...)
	}
	dst = x.trace.AppendTo(append(dst, "\r\ntraceparent: "...))
	if state := x.claims.TraceState(); len(state) > 0 && x.trace.Continued {
		dst = append(append(dst, "\r\ntracestate: "...), state...)
	}
	dst = append(dst, e.secretField...)
	body := x.Body.Bytes
	length := int64(len(body))
	if x.sending.HasMore {
		length = q.Length()
	}
	switch {
	case length < 0:
		dst = append(dst, "\r\nTransfer-Encoding: chunked"...)
	case length > 0 || x.route.Method != http.MethodGet:
		dst = strconv.AppendInt(append(dst, "\r\nContent-Length: "...), length, 10)
	}
	dst = append(dst, "\r\n\r\n"...)
	if len(body) <= inlineBytesMax {
		dst = append(dst, body...)
	}
	return dst
}

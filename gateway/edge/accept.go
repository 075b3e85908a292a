package edge

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"petgate/gateway/http1"
	"petgate/shared/core/access"
	"petgate/shared/core/apikey"
	"petgate/shared/trace"
)

// accept is the first stage, after http1 has read the request. It takes the fields that are for the gateway, gives the
// request an ID, decides whether it is traced, finds the client's address, refuses a request that could not be read, and takes a slot (see enter).
func (e *Edge) accept(x *exchange) refusal {
	r := x.claims.take(&x.Request)
	x.setID()
	parent := x.claims.of(traceParent)
	x.trace = e.deps.Tracer.Begin(parent, len(parent) > 0 && e.isTrusted(x.Conn.Peer))
	x.client = e.clientAddress(x.Conn.Peer, x.claims.of(forwardedFor))
	if x.Err != nil {
		if kind := http1.KindOf(x.Err); kind != http1.Malformed && kind != http1.Ended && !r.isRefused() {
			e.recognize(x)
		}
		return e.unreadable(x.Err)
	}
	if r.isRefused() {
		return r
	}
	return e.enter(x)
}

// recognize looks for the key of a request that is refused for its size or its time. The refusal then counts for the tenant and shows
// its limits. A token that is not a valid key changes nothing, and is not counted as a failed attempt.
func (e *Edge) recognize(x *exchange) {
	if e.identify(x).isRefused() || x.env != e.cfg.Environment || !e.deps.Directory.Fresh(x.now) {
		return
	}
	if x.entry, x.isKnown = e.deps.Directory.Lookup(x.hash); x.isKnown {
		e.judge(x)
	}
}

// unreadable returns the refusal of a request that could not be read.
func (e *Edge) unreadable(err error) refusal {
	switch http1.KindOf(err) {
	case http1.TargetTooLong:
		return refusal{reason: uriTooLong}
	case http1.FieldsTooLarge:
		return refusal{reason: headersTooLarge}
	case http1.BodyTooLarge:
		return refusal{reason: bodyTooLarge, message: fmt.Sprintf("the body is larger than %d bytes", e.cfg.BodyBytesMax)}
	case http1.UnmetExpectation:
		return refusal{reason: expectationFailed}
	case http1.TimedOut:
		return refusal{reason: requestTimeout}
	case http1.Malformed, http1.Ended:
		malformed, _ := errors.AsType[*http1.Error](err)
		return refusal{reason: badRequest, message: malformed.Reason}
	}
	return refusal{reason: overloaded} // http1.Busy, or too many connections
}

// claims are the values of the fields in which a client, or a proxy in front of the gateway, says who it is. They are never forwarded
// unchanged.
type claims struct {
	values [kindsEnd - authorization][]byte
	seen   uint8 // a bit for each claim
}

func (c *claims) of(k kind) []byte { return c.values[k-authorization] }

// take moves the claims out of a request's fields. Only fields that are forwarded remain there, also if it refuses the request.
func (c *claims) take(q *http1.Request) (r refusal) {
	forwarded := q.Fields[:0]
	for _, f := range q.Fields {
		switch k := kindOf(f.Name); {
		case k == forward && !f.IsNamed:
			forwarded = append(forwarded, f)
		case k > withheld && !c.add(k, f.Value) && k == authorization:
			// Two Authorization fields may name two clients, and another program may choose a different one than the gateway.
			r = refusal{reason: badRequest, message: "there may be only one Authorization"}
		}
	}
	q.Fields = forwarded
	return r
}

// add adds a claim, and reports whether it is the first one of its kind. Lists in several lines are one list (RFC 9110, section 5.3): a proxy
// may add its line after the client's. Of any other claim, two values count as none.
func (c *claims) add(k kind, value []byte) (isFirst bool) {
	claim, bit := &c.values[k-authorization], uint8(1)<<(k-authorization)
	isFirst = c.seen&bit == 0
	c.seen |= bit
	switch {
	case isFirst:
		*claim = slices.Clip(value) // so that append copies
	case k == forwardedFor || k == traceState:
		*claim = append(append(*claim, ','), value...)
	default:
		*claim = nil
	}
	return isFirst
}

// kind says what the gateway does with a field.
type kind uint8

const (
	forward  kind = iota
	withheld      // dropped: only the gateway may send it to an upstream

	// The claims. They are read by claims.add, then dropped.
	authorization
	requestID
	forwardedFor
	forwardedProto
	traceParent
	traceState
	kindsEnd
)

// kindOf returns the kind of the field with this name. Names with an underscore are withheld: a server that turns
// names into variables takes X_Tenant_Id for X-Tenant-Id, which only the gateway may send.
func kindOf(name []byte) kind {
	if bytes.IndexByte(name, '_') >= 0 {
		return withheld
	}
	if k := kinds.Of(name); k != forward {
		return k
	}
	if len(name) > len(forwardedPrefix) && http1.EqualFold(name[:len(forwardedPrefix)], forwardedPrefix) {
		return withheld
	}
	return forward
}

const forwardedPrefix = "x-forwarded-"

// kinds has the fields that are not forwarded unchanged.
var kinds = func() (n http1.Names[kind]) {
	// First, because most requests have some of these.
	n.Add(authorization, "authorization")
	n.Add(requestID, "x-request-id")
	n.Add(forwardedFor, "x-forwarded-for")
	n.Add(forwardedProto, "x-forwarded-proto")
	n.Add(traceParent, "traceparent")
	n.Add(traceState, "tracestate")
	// Only the gateway says who calls.
	n.Add(withheld, "x-tenant-id", "x-key-id", "x-plan", "x-gateway-secret")
	// Proxies and frameworks take the client's address from these.
	n.Add(withheld, "forwarded", "forwarded-for", "x-forwarded", "x-real-ip", "x-client-ip", "client-ip", "true-client-ip", "x-cluster-client-ip",
		"x-original-forwarded-for", "x-original-host", "x-host", "x-remote-addr", "x-remote-ip", "cf-connecting-ip", "cf-connecting-ipv6",
		"fastly-client-ip", "fly-client-ip", "x-appengine-user-ip", "x-azure-clientip", "x-azure-socketip", "x-envoy-external-address")
	// Frameworks take these for the method or the path, which the gateway has checked without them.
	n.Add(withheld, "x-http-method-override", "x-http-method", "x-method-override", "x-original-url", "x-original-uri", "x-original-method",
		"x-rewrite-url")
	return n
}()

// clientAddress returns the peer's address. If the peer is a trusted proxy, it returns the last address in X-Forwarded-For
// that is not a trusted proxy, because the client may have written everything before that. If it meets an invalid element,
// the client is unknown: it does not return the proxy's address but the zero Addr, which is in no allow-list.
func (e *Edge) clientAddress(peer netip.Addr, forwardedFor []byte) netip.Addr {
	addr := peer
	list := forwardedFor
	for len(list) > 0 && e.isTrusted(addr) {
		last := list
		if comma := bytes.LastIndexByte(list, ','); comma >= 0 {
			last, list = list[comma+1:], list[:comma]
		} else {
			list = nil
		}
		addr = parseForwarded(http1.Trim(last))
	}
	return addr
}

// parseForwarded reads an element of X-Forwarded-For: an address, or an address and a port, as some load balancers write it. It
// returns the zero Addr for anything else.
func parseForwarded(element []byte) netip.Addr {
	// The conversion does not allocate: ParseAddr keeps the string only for a zone or an error, and both are rare.
	addr, err := netip.ParseAddr(string(element))
	if err != nil {
		withPort, err := netip.ParseAddrPort(string(element))
		if err != nil {
			return netip.Addr{}
		}
		addr = withPort.Addr()
	}
	if addr.Zone() != "" {
		return netip.Addr{}
	}
	return addr.Unmap()
}

func (e *Edge) isTrusted(addr netip.Addr) bool {
	return len(e.cfg.TrustedProxies) > 0 && access.Contains(e.cfg.TrustedProxies, addr)
}

// protocol returns the protocol that the client used. A trusted proxy may state it in X-Forwarded-Proto.
func (e *Edge) protocol(x *exchange) string {
	if said := x.claims.of(forwardedProto); len(said) > 0 && e.isTrusted(x.Conn.Peer) {
		if http1.EqualFold(said, "https") {
			return "https"
		}
		if http1.EqualFold(said, "http") {
			return "http"
		}
	}
	if x.Conn.IsTLS {
		return "https"
	}
	return "http"
}

// The shortest and the longest request ID that a client may choose.
const (
	idBytesMin = 8
	idBytesMax = 64
)

// setID uses the client's request ID if it is safe in logs and headers and does not look like a token. Otherwise it
// generates one. An ID only distinguishes requests, so a fast random generator is enough.
func (x *exchange) setID() {
	id := x.claims.of(requestID)
	if len(id) >= idBytesMin && len(id) <= idBytesMax && isID(id) && !apikey.IsIn(id) {
		x.id = id
		return
	}
	x.id = trace.NewTraceID().AppendTo(x.idBuffer[:0])
}

// isID reports whether all bytes are letters, digits, hyphens or underscores.
func isID(id []byte) bool {
	for _, c := range id {
		if lower := c | 0x20; (c < '0' || c > '9') && (lower < 'a' || lower > 'z') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

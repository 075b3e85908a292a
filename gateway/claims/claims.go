// Package claims reads what the head of a request says about its client: who it is, and where. The
// fields that say so are for the gateway. Some others are withheld from upstreams, and the rest is
// forwarded.
package claims

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"

	"petgate/gateway/http1"
	"petgate/shared/core/access"
	"petgate/shared/core/apikey"
)

// Claims are the values of the fields in which a client, or a proxy in front of the gateway, says
// who it is. They are never forwarded unchanged.
type Claims struct {
	values [kindsEnd - authorization][]byte
	seen   uint8 // a bit for each claim
}

// of returns a claim; empty: the request has none.
func (c *Claims) of(k kind) []byte { return c.values[k-authorization] }

// MoveFrom moves the claims out of a request's fields. Only fields that are forwarded remain there.
// isSingle is false if there are two Authorization fields: they may name two clients, and another
// program may choose a different one than the gateway.
func (c *Claims) MoveFrom(q *http1.Request) (isSingle bool) {
	isSingle = true
	forwarded := q.Fields[:0]
	for _, f := range q.Fields {
		switch k := kindOf(f.Name); {
		case k == forward && !f.IsNamed:
			forwarded = append(forwarded, f)
		case k > withheld && !c.add(k, f.Value) && k == authorization:
			isSingle = false
		}
	}
	q.Fields = forwarded
	return isSingle
}

// TraceParent and TraceState are the trace that the request is a part of, as its client says (W3C
// Trace Context). They may be malformed.
func (c *Claims) TraceParent() []byte { return c.of(traceParent) }
func (c *Claims) TraceState() []byte  { return c.of(traceState) }

// add adds a claim, and reports whether it is the first one of its kind. Lists in several lines are
// one list (RFC 9110, section 5.3): a proxy may add its line after the client's. Of any other
// claim, two values count as none.
func (c *Claims) add(k kind, value []byte) (isFirst bool) {
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

	// The claims. They are read by Claims.add, then dropped.
	authorization
	requestID
	forwardedFor
	forwardedProto
	traceParent
	traceState
	kindsEnd
)

// kindOf returns the kind of the field with this name. Names with an underscore are withheld: a
// server that turns names into variables takes X_Tenant_Id for X-Tenant-Id, which only the gateway
// may send.
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
	n.Add(withheld, "forwarded", "forwarded-for", "x-forwarded", "x-real-ip", "x-client-ip", "client-ip",
		"true-client-ip", "x-cluster-client-ip", "x-original-forwarded-for", "x-original-host", "x-host",
		"x-remote-addr", "x-remote-ip", "cf-connecting-ip", "cf-connecting-ipv6", "fastly-client-ip", "fly-client-ip",
		"x-appengine-user-ip", "x-azure-clientip", "x-azure-socketip", "x-envoy-external-address")
	// Frameworks take these for the method or the path, which the gateway has checked without them.
	n.Add(withheld, "x-http-method-override", "x-http-method", "x-method-override", "x-original-url", "x-original-uri",
		"x-original-method", "x-rewrite-url")
	return n
}()

// The shortest and the longest request ID that a client may choose.
const idBytesMin, idBytesMax = 8, 64

// RequestID returns the client's request ID, or nil if it is not safe in logs and headers, or looks
// like a token.
func (c *Claims) RequestID() []byte {
	id := c.of(requestID)
	if len(id) >= idBytesMin && len(id) <= idBytesMax && isID(id) && !apikey.IsIn(id) {
		return id
	}
	return nil
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

// Token returns what Authorization has as a Bearer token (RFC 6750, section 2.1). It is empty if
// there is none.
func (c *Claims) Token() []byte {
	scheme, token, _ := bytes.Cut(c.of(authorization), []byte{' '})
	if !http1.EqualFold(scheme, "bearer") {
		return nil
	}
	return token
}

// Malformation says why a token is not a key. Keys begin with keysBegin. The text has nothing of
// the token but its length.
func Malformation(token []byte, err error, keysBegin string) string {
	switch {
	case token[0] == '"' || token[0] == '\'':
		return "the API key is in quotes: send it without them"
	case bytes.ContainsAny(token, " \t"):
		return "the API key contains a space, or follows more than one"
	case errors.Is(err, apikey.ErrPrefix):
		return "a key begins with " + keysBegin
	}
	return err.Error()
}

// Misplaced says where else the request seems to have a key, for clients of other APIs. It is empty
// if there is none. The text has nothing of the request.
func (c *Claims) Misplaced(q *http1.Request) string {
	const instead = ": send it as Authorization: Bearer <API_KEY>"
	switch {
	case len(c.of(authorization)) > 0:
		return "Authorization has no Bearer token" + instead
	case q.Field("x-api-key") != nil:
		return "the API key is not read from X-API-Key" + instead
	case bytes.Contains(q.Target, []byte("api_key=")) || bytes.Contains(q.Target, []byte("access_token=")):
		return "the API key is not read from the query" + instead + ", and replace this key, because others log URLs"
	}
	return ""
}

// Proxies are the addresses of the trusted proxies. What they claim is believed.
type Proxies []netip.Prefix

// Has reports whether there is a trusted proxy at an address.
func (p Proxies) Has(addr netip.Addr) bool { return len(p) > 0 && access.Contains(p, addr) }

// Client returns the peer's address. If the peer is a trusted proxy, it returns the last address in
// X-Forwarded-For that is not a trusted proxy, because the client may have written everything
// before that. If it meets an invalid element, the client is unknown: it does not return the
// proxy's address but the zero Addr, which is in no allow-list.
func (p Proxies) Client(peer netip.Addr, c *Claims) netip.Addr {
	addr, list := peer, c.of(forwardedFor)
	for len(list) > 0 && p.Has(addr) {
		comma := bytes.LastIndexByte(list, ',') // -1 before the first element
		addr = parseForwarded(http1.Trim(list[comma+1:]))
		list = list[:max(comma, 0)]
	}
	return addr
}

// parseForwarded reads an element of X-Forwarded-For: an address, or an address and a port, as some
// load balancers write it. It returns the zero Addr for anything else.
func parseForwarded(element []byte) netip.Addr {
	// The conversion does not allocate: ParseAddr keeps the string only for a zone or an error, and
	// both are rare.
	addr, err := netip.ParseAddr(string(element))
	if err != nil {
		withPort, _ := netip.ParseAddrPort(string(element)) // zero for anything else
		addr = withPort.Addr()
	}
	if addr.Zone() != "" {
		return netip.Addr{}
	}
	return addr.Unmap()
}

// Protocol returns the protocol that the client used. A trusted proxy may state it in
// X-Forwarded-Proto.
func (p Proxies) Protocol(peer netip.Addr, isTLS bool, c *Claims) string {
	said := c.of(forwardedProto)
	isStated := len(said) > 0 && p.Has(peer)
	switch {
	case isStated && http1.EqualFold(said, "https"):
		return "https"
	case isStated && http1.EqualFold(said, "http"):
		return "http"
	case isTLS:
		return "https"
	}
	return "http"
}

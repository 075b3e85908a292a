package edge

import (
	"bytes"
	"net/netip"
	"slices"

	"petgate/gateway/http1"
	"petgate/shared/core/access"
)

// accept is where a request begins to count. http1 has read it; accept gives it an ID, takes the fields that are for the gateway,
// finds the client's address, refuses what could not be read, and takes one of the slots for requests that are served at a time.
func (e *Edge) accept(x *exchange) refusal {
	r := x.claims.take(&x.request)
	x.setID()
	x.client = e.clientAddress(x.conn.peer, x.forwardedFor)
	if x.unreadable != nil {
		return unreadable(x.unreadable)
	}
	if r.isRefused() {
		return r
	}
	return e.enter(x)
}

// unreadable is the refusal of a request that could not be read.
func unreadable(err error) refusal {
	switch http1.KindOf(err) {
	case http1.TargetTooLong:
		return refusal{reason: uriTooLong}
	case http1.FieldsTooLarge:
		return refusal{reason: headersTooLarge}
	case http1.BodyTooLarge:
		return refusal{reason: bodyTooLarge}
	case http1.UnmetExpectation:
		return refusal{reason: expectationFailed}
	case http1.TimedOut:
		return refusal{reason: requestTimeout}
	case http1.Malformed, http1.Ended:
		return refusal{reason: badRequest, message: err.(*http1.Error).Reason}
	}
	return refusal{reason: overloaded} // http1.Busy, or too many connections
}

// claims are the fields by which a client, or a proxy before the gateway, says who it is. They are never forwarded as they came.
type claims struct {
	authorization  []byte
	requestID      []byte
	forwardedFor   []byte
	forwardedProto []byte
	traceParent    []byte
	traceState     []byte
	seen           seen
}

// seen has a bit for each claim.
type seen uint8

const (
	authorizationSeen seen = 1 << iota
	requestIDSeen
	forwardedForSeen
	forwardedProtoSeen
	traceParentSeen
	traceStateSeen
)

// take takes the claims out of a request's fields, and leaves there the fields that are forwarded.
func (c *claims) take(q *http1.Request) refusal {
	forwarded := q.Fields[:0]
	for _, f := range q.Fields {
		switch kindOf(f.Name) {
		case forward:
			if !f.IsNamed {
				forwarded = append(forwarded, f)
			}
		case claim:
			if r := c.add(f.Name, f.Value); r.isRefused() {
				return r
			}
		}
	}
	q.Fields = forwarded
	return refusal{}
}

// kind is what a field is to the gateway.
type kind uint8

const (
	forward  kind = iota
	withheld      // only the gateway may tell it to an upstream
	claim         // read by claims.add, and then withheld
)

// kindOf sorts a field by its name. A name with an underscore is withheld: servers that turn names into variables confuse it with
// the same name with a hyphen, which may be one that only the gateway sets.
func kindOf(name []byte) kind {
	if bytes.IndexByte(name, '_') >= 0 {
		return withheld
	}
	for _, known := range kinds[min(len(name), len(kinds)-1)] {
		if http1.EqualFold(name, known.name) {
			return known.kind
		}
	}
	if len(name) > len(forwardedPrefix) && http1.EqualFold(name[:len(forwardedPrefix)], forwardedPrefix) {
		return withheld
	}
	return forward
}

const forwardedPrefix = "x-forwarded-"

type knownField struct {
	name string
	kind kind
}

// kinds holds the fields that are not simply forwarded, by the length of their names.
var kinds = func() (table [24][]knownField) {
	add := func(k kind, names ...string) {
		for _, name := range names {
			table[len(name)] = append(table[len(name)], knownField{name, k})
		}
	}
	add(withheld, "x-tenant-id", "x-key-id", "x-plan", "x-gateway-secret", "x-real-ip", "forwarded")
	add(claim, "authorization", "x-request-id", "x-forwarded-for", "x-forwarded-proto", "traceparent", "tracestate")
	return table
}()

func (c *claims) add(name, value []byte) refusal {
	switch {
	case http1.EqualFold(name, "authorization"):
		// Two of them are two clients, and a program that sees only one may see the other one.
		if !c.once(authorizationSeen) {
			return refusal{reason: badRequest, message: "there may be only one Authorization"}
		}
		c.authorization = value
	case http1.EqualFold(name, "x-request-id"):
		c.single(requestIDSeen, &c.requestID, value)
	case http1.EqualFold(name, "x-forwarded-for"):
		// Several lines are one list (RFC 9110, section 5.3): a proxy may add its line below the one that the client wrote.
		if c.once(forwardedForSeen) {
			c.forwardedFor = slices.Clip(value) // to append is then to copy
		} else {
			c.forwardedFor = append(append(c.forwardedFor, ','), value...)
		}
	case http1.EqualFold(name, "x-forwarded-proto"):
		c.single(forwardedProtoSeen, &c.forwardedProto, value)
	case http1.EqualFold(name, "traceparent"):
		c.single(traceParentSeen, &c.traceParent, value)
	case http1.EqualFold(name, "tracestate"):
		c.single(traceStateSeen, &c.traceState, value)
	}
	return refusal{}
}

func (c *claims) once(s seen) (first bool) {
	first = c.seen&s == 0
	c.seen |= s
	return first
}

// single takes a field that means nothing when it stands twice.
func (c *claims) single(s seen, dst *[]byte, value []byte) {
	if c.once(s) {
		*dst = value
	} else {
		*dst = nil
	}
}

// clientAddress is the peer's address, or, if the peer is a trusted proxy, the last one in X-Forwarded-For that is not: what
// stands before it was written by the client. After an element that cannot be read the client is unknown, and never the proxy: the
// zero Addr is in no allow-list.
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
	// The conversion does not allocate: ParseAddr keeps the string for a zone only, and an error is rare.
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

// The shortest and the longest request ID that a client may choose.
const (
	idBytesMin = 8
	idBytesMax = 64
)

// setID takes the client's request ID if it can do no harm in a log or a header and does not look like a token. Otherwise it
// draws one. An ID only tells requests apart, so a fast generator will do.
func (x *exchange) setID() {
	id := x.requestID
	if len(id) >= idBytesMin && len(id) <= idBytesMax && isID(id) && !bytes.Contains(id, tokenMark) {
		x.id = id
		return
	}
	x.id = appendRandom(x.idBuffer[:0], 2)
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

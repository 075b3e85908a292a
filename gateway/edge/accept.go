package edge

import (
	"bytes"
	"slices"
)

// head is what a request's head says, as far as this gateway cares. Its slices point into the exchange's copy of the block.
type head struct {
	method  []byte
	target  []byte // path and query as sent, in origin form: what is matched and what is forwarded
	path    []byte
	host    []byte // for the upstream's information only; empty in an HTTP/1.0 request without one
	fields  []field
	version byte // minor version: 0 or 1

	length    int64 // of the body; 0 when chunked
	isChunked bool
	expects   bool // 100-continue
	closes    bool // the connection ends with this exchange

	authorization  []byte
	requestID      []byte
	forwardedFor   []byte
	forwardedProto []byte
	traceParent    []byte
	traceState     []byte

	named [][]byte // field names that Connection lists
	seen  seen
	count int // field lines
	bytes int // bytes of field lines
}

// field is a header field that is forwarded.
type field struct{ name, value []byte }

// seen has a bit for each field that decides something and may stand once.
type seen uint16

const (
	hostSeen seen = 1 << iota
	lengthSeen
	codingSeen
	authorizationSeen
	requestIDSeen
	forwardedForSeen
	forwardedProtoSeen
	traceParentSeen
	traceStateSeen
	keepAliveSeen
	closeSeen
)

func (h *head) once(s seen) (first bool) {
	first = h.seen&s == 0
	h.seen |= s
	return first
}

// accept is where a request begins to count: it gets its ID, the verdict of whoever read its bytes, and a slot among those
// that are served at a time.
func (e *Edge) accept(x *exchange) refusal {
	x.setID()
	x.client = e.clientAddress(x)
	if x.broken.isRefused() {
		return x.broken
	}
	if e.inFlight.Add(1) > int64(e.cfg.ConcurrencyMax) {
		e.inFlight.Add(-1)
		return refusal{reason: overloaded}
	}
	x.hasSlot = true
	return refusal{}
}

// read decides on a request's head: block is all lines up to and with the empty one, each ending in CRLF. It is the one
// place that does: fasthttp gets to see only what read has let pass, in words of ours. Where an RFC says MUST, read does;
// where it leaves a choice, read takes the stricter.
func (h *head) read(block []byte, cfg *Config) refusal {
	line, rest := cutLine(block)
	if r := h.readRequestLine(line, cfg); r.isRefused() {
		return r
	}
	for {
		if line, rest = cutLine(rest); len(line) == 0 {
			break
		}
		h.count++
		if h.bytes += len(line); h.count > cfg.FieldsMax || h.bytes > cfg.HeaderBytesMax {
			return refusal{reason: headersTooLarge}
		}
		name, value, ok := cutField(line)
		if !ok {
			return bad("a header field is malformed")
		}
		if r := h.readField(name, value); r.isRefused() {
			return r
		}
	}
	h.fields = dropNamed(h.fields, h.named)
	return h.check(cfg)
}

func bad(message string) refusal { return refusal{reason: badRequest, message: message} }

// readRequestLine reads the request line (RFC 9112, section 3): method, target and version with one space between them.
func (h *head) readRequestLine(line []byte, cfg *Config) refusal {
	const malformed = "the request line is malformed"
	method, rest, ok := bytes.Cut(line, []byte{' '})
	if !ok || len(method) == 0 || len(method) > methodBytesMax || !all(method, tokenByte) {
		return bad(malformed)
	}
	target, version, ok := bytes.Cut(rest, []byte{' '})
	if !ok || len(target) == 0 {
		return bad(malformed)
	}
	h.method = method
	switch string(version) {
	case "HTTP/1.1":
		h.version = 1
	case "HTTP/1.0":
	default:
		return bad("the only versions served are HTTP/1.1 and HTTP/1.0")
	}
	if len(target) > cfg.TargetBytesMax {
		return refusal{reason: uriTooLong}
	}
	return h.readTarget(target)
}

// methodBytesMax is more than any registered method has.
const methodBytesMax = 32

// readTarget reduces the target to origin form (RFC 9112, section 3.2.1).
func (h *head) readTarget(target []byte) refusal {
	const malformed = "the request target is malformed"
	switch {
	case string(h.method) == "CONNECT":
		return bad("this is no proxy: CONNECT is not served")
	case target[0] == '/':
	case len(target) == 1 && target[0] == '*' && string(h.method) == "OPTIONS":
		h.target, h.path = target, target
		return refusal{}
	default:
		// Absolute form, which a server must accept (section 3.2.2). Nothing depends on its host, but it has to be one:
		// userinfo in it has become a client's credentials elsewhere.
		scheme, rest, ok := bytes.Cut(target, []byte("://"))
		if !ok || !equalFold(scheme, "http") && !equalFold(scheme, "https") {
			return bad(malformed)
		}
		end := bytes.IndexAny(rest, "/?")
		if end < 0 || rest[end] != '/' {
			return bad("a target in absolute form needs a path here")
		}
		if !isHost(rest[:end]) {
			return bad("the host of the request target is malformed")
		}
		target = rest[end:]
	}
	path, query, _ := bytes.Cut(target, []byte{'?'})
	if why := checkPath(path); why != "" {
		return bad(why)
	}
	if !isQuery(query) {
		return bad("the query holds a character that must be percent-encoded")
	}
	h.target, h.path = target, path
	return refusal{}
}

// kind is what a field is to a gateway.
type kind uint8

const (
	endToEnd      kind = iota // forwarded
	withheld                  // stays behind: hop-by-hop, or the gateway's own to set
	decisive                  // read by readField, and then stays behind
	connectionOne             // Connection
)

// kindOf sorts a field by its name. A name with an underscore is withheld: servers that turn names into variables cannot
// tell it from the same name with a hyphen, which may be one that only the gateway sets.
func kindOf(name []byte) kind {
	if bytes.IndexByte(name, '_') >= 0 {
		return withheld
	}
	for _, known := range fieldsByLength[min(len(name), len(fieldsByLength)-1)] {
		if equalFold(name, known.name) {
			return known.kind
		}
	}
	if len(name) > len(forwardedPrefix) && equalFold(name[:len(forwardedPrefix)], forwardedPrefix) {
		return withheld
	}
	return endToEnd
}

const forwardedPrefix = "x-forwarded-"

type knownField struct {
	name string
	kind kind
}

// fieldsByLength holds the fields that are not simply forwarded, by the length of their names.
var fieldsByLength = func() (table [32][]knownField) {
	add := func(k kind, names ...string) {
		for _, name := range names {
			table[len(name)] = append(table[len(name)], knownField{name, k})
		}
	}
	add(connectionOne, "connection")
	// RFC 9110, section 7.6.1, and what old clients take for hop-by-hop.
	add(withheld, "keep-alive", "proxy-connection", "te", "trailer", "upgrade", "http2-settings", "proxy-authenticate",
		"proxy-authorization", "proxy-authentication-info")
	// What only the gateway may tell an upstream.
	add(withheld, "x-tenant-id", "x-key-id", "x-plan", "x-gateway-secret", "x-real-ip", "forwarded")
	add(decisive, "host", "content-length", "transfer-encoding", "expect", "authorization", "x-request-id",
		"x-forwarded-for", "x-forwarded-proto", "traceparent", "tracestate")
	return table
}()

// readField takes in what a field decides, and keeps it for the upstream if it is for it.
func (h *head) readField(name, value []byte) refusal {
	switch kindOf(name) {
	case endToEnd:
		h.fields = append(h.fields, field{name, value})
		return refusal{}
	case connectionOne:
		return h.readConnection(value)
	case withheld:
		return refusal{}
	}
	switch {
	case equalFold(name, "host"):
		if !h.once(hostSeen) || !isHost(value) {
			return bad("there must be one Host, and it must name a host")
		}
		h.host = value
	case equalFold(name, "authorization"):
		// Two of them are two clients, and whoever sees only one may see the other one.
		if !h.once(authorizationSeen) {
			return bad("there must be one Authorization at most")
		}
		h.authorization = value
	case equalFold(name, "content-length"):
		// Not the list of equal lengths that RFC 9112, section 6.3, lets a recipient accept.
		n, ok := parseDigits(value)
		if !ok || !h.once(lengthSeen) {
			return bad("there must be one Content-Length at most, and it must be a number")
		}
		h.length = n
	case equalFold(name, "transfer-encoding"):
		if !h.once(codingSeen) || !equalFold(value, "chunked") {
			return bad("the only Transfer-Encoding that is understood is chunked")
		}
		h.isChunked = true
	case equalFold(name, "expect"):
		if !equalFold(value, "100-continue") {
			return refusal{reason: expectationFailed}
		}
		h.expects = true
	case equalFold(name, "x-request-id"):
		h.single(requestIDSeen, &h.requestID, value)
	case equalFold(name, "x-forwarded-for"):
		// Several lines are one list (RFC 9110, section 5.3): a proxy may add its line below the one that the client wrote.
		if h.once(forwardedForSeen) {
			h.forwardedFor = slices.Clip(value) // so that to append is to copy
		} else {
			h.forwardedFor = append(append(h.forwardedFor, ','), value...)
		}
	case equalFold(name, "x-forwarded-proto"):
		h.single(forwardedProtoSeen, &h.forwardedProto, value)
	case equalFold(name, "traceparent"):
		h.single(traceParentSeen, &h.traceParent, value)
	case equalFold(name, "tracestate"):
		h.single(traceStateSeen, &h.traceState, value)
	}
	return refusal{}
}

// single takes up a field that means nothing when it stands twice.
func (h *head) single(s seen, dst *[]byte, value []byte) {
	if h.once(s) {
		*dst = value
	} else {
		*dst = nil
	}
}

// namedMax bounds what Connection names: each name is compared with each field.
const namedMax = 64

// readConnection reads a Connection field (RFC 9110, section 7.6.1).
func (h *head) readConnection(list []byte) refusal {
	for len(list) > 0 {
		var option []byte
		switch option, list = nextElement(list); {
		case equalFold(option, "close"):
			h.seen |= closeSeen
		case equalFold(option, "keep-alive"):
			h.seen |= keepAliveSeen
		case len(h.named) == namedMax:
			return refusal{reason: headersTooLarge}
		case len(option) > 0:
			h.named = append(h.named, option)
		}
	}
	return refusal{}
}

// dropNamed drops the fields that Connection names: they were for one hop.
func dropNamed(fields []field, named [][]byte) []field {
	if len(named) == 0 {
		return fields
	}
	return slices.DeleteFunc(fields, func(f field) bool {
		return slices.ContainsFunc(named, func(name []byte) bool { return bytes.EqualFold(f.name, name) })
	})
}

// check decides on what no line shows alone.
func (h *head) check(cfg *Config) refusal {
	h.closes = h.seen&closeSeen != 0 || h.version == 0 && h.seen&keepAliveSeen == 0
	switch {
	case h.version == 1 && h.seen&hostSeen == 0:
		return bad("there must be one Host, and it must name a host")
	case h.isChunked && h.seen&lengthSeen != 0:
		// RFC 9112, section 6.1: who believes one of them and who believes the other see different requests.
		return bad("Transfer-Encoding and Content-Length exclude each other")
	case h.isChunked && h.version == 0:
		return bad("HTTP/1.0 knows no Transfer-Encoding")
	case h.length > int64(cfg.BodyBytesMax):
		return refusal{reason: bodyTooLarge}
	}
	// RFC 9110, section 10.1.1: an HTTP/1.0 client cannot mean it. Without a body there is nothing to wait for.
	h.expects = h.expects && h.version == 1 && (h.isChunked || h.length > 0)
	return refusal{}
}

// reset readies h for the next request; slices keep their room.
func (h *head) reset() {
	clear(h.fields)
	clear(h.named)
	*h = head{fields: h.fields[:0], named: h.named[:0]}
}

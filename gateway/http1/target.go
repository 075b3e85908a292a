package http1

import (
	"bytes"
	"net/netip"
	"slices"
)

// readTarget reduces the target to origin form (RFC 9112, section 3.2.1).
func (q *Request) readTarget(target []byte) error {
	switch {
	case string(q.Method) == "CONNECT":
		return errConnect
	case target[0] == '/':
	default:
		// Absolute form, which a server must accept (section 3.2.2). The host is not used, but it
		// must be valid, because other programs read userinfo in front of it as credentials.
		scheme, rest, ok := bytes.Cut(target, []byte("://"))
		if !ok || !EqualFold(scheme, "http") && !EqualFold(scheme, "https") {
			return errTarget
		}
		end := bytes.IndexAny(rest, "/?")
		if end < 0 || rest[end] != '/' {
			return errTargetPath
		}
		if !IsHost(rest[:end]) {
			return errTargetHost
		}
		target = rest[end:]
	}
	path, query, _ := bytes.Cut(target, []byte{'?'})
	if err := checkPath(path); err != nil {
		return err
	}
	if !isQuery(query) {
		return errQuery
	}
	q.Target, q.Path = target, path
	return nil
}

const hostBytesMax = 255 // no domain name is longer (RFC 1035, section 2.3.4)

// IsHost reports whether authority is a host and optionally a port (RFC 9110, section 7.2): a name,
// an IPv4 address, or an IPv6 address in brackets. Userinfo is not allowed.
func IsHost(authority []byte) bool {
	if len(authority) > hostBytesMax {
		return false
	}
	host, port := authority, []byte(nil)
	if len(host) > 0 && host[0] == '[' {
		end := bytes.IndexByte(host, ']')
		if end < 0 {
			return false
		}
		host, port = authority[1:end], authority[end+1:]
		if addr, err := netip.ParseAddr(string(host)); err != nil || !addr.Is6() || addr.Zone() != "" {
			return false
		}
	} else {
		if colon := bytes.IndexByte(host, ':'); colon >= 0 {
			host, port = authority[:colon], authority[colon:]
		}
		if len(host) == 0 || !all(host, hostByte) {
			return false
		}
	}
	if len(port) == 0 || string(port) == ":" {
		return true // RFC 3986, section 3.2.3: a port may be empty
	}
	n, ok := ParseDigits(port[1:])
	return port[0] == ':' && ok && n <= 65535
}

// Why checkPath refuses a path.
var (
	errPathBytes    = malformed("the path contains a character that must be percent-encoded")
	errPathEncoding = malformed(
		"the path contains an invalid percent-encoding, or an encoded slash, backslash or control character",
	)
	errPathEmpty = malformed("the path contains an empty segment (//)")
	errPathDots  = malformed("the path contains a dot segment")
)

// checkPath refuses a path that the upstream could change by decoding it, merging slashes or
// resolving dot segments. The upstream must see the path that was matched here.
func checkPath(path []byte) error {
	segment := 1 // the start of the current segment
	for i := 0; ; i++ {
		if i == len(path) || path[i] == '/' && i > 0 {
			if i < len(path) && i == segment {
				return errPathEmpty
			}
			if isDots(path[segment:i]) {
				return errPathDots
			}
			if i == len(path) {
				return nil
			}
			segment = i + 1
			continue
		}
		switch c := path[i]; {
		case c == '%':
			if d, ok := unhex(path[i:]); !ok || d == '/' || d == '\\' || d < ' ' || d == 0x7f {
				return errPathEncoding
			}
			i += 2
		case !is(c, pathByte):
			return errPathBytes
		}
	}
}

// isDots reports whether a segment is "." or "..", also if encoded. It ignores parameters, as some
// servers do.
func isDots(segment []byte) bool {
	if len(segment) == 0 || segment[0] != '.' && segment[0] != '%' {
		return false
	}
	segment, _, _ = bytes.Cut(segment, []byte{';'})
	return slices.ContainsFunc(dots, func(d string) bool { return EqualFold(segment, d) })
}

var dots = []string{".", "..", "%2e", ".%2e", "%2e.", "%2e%2e"}

// isQuery reports whether b is a valid query (RFC 3986, section 3.4).
func isQuery(b []byte) bool {
	for i := 0; i < len(b); i++ {
		if b[i] == '%' {
			if _, ok := unhex(b[i:]); !ok {
				return false
			}
			i += 2
		} else if !is(b[i], queryByte) {
			return false
		}
	}
	return true
}

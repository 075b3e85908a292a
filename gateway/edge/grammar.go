package edge

import (
	"bytes"
	"net/netip"
)

// Classes of bytes, one bit each. A byte above 127 is obs-text and belongs to no class but valueByte.
const (
	tokenByte uint8 = 1 << iota // tchar (RFC 9110, section 5.6.2)
	valueByte                   // field-vchar, SP and HTAB (RFC 9110, section 5.5)
	pathByte                    // pchar without "%", and "/" (RFC 3986, section 3.3)
	queryByte                   // pathByte and "?" (RFC 3986, section 3.4)
	hostByte                    // what names of hosts are made of
	idByte                      // what a client's request ID may be made of
	digitByte
	hexByte
)

var classes = func() (table [256]uint8) {
	add := func(class uint8, set string) {
		for i := range len(set) {
			table[set[i]] |= class
		}
	}
	const digits, letters = "0123456789", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	add(tokenByte, digits+letters+"!#$%&'*+-.^_`|~")
	for c := range 256 {
		if c == '\t' || c >= ' ' && c != 0x7f {
			table[c] |= valueByte
		}
	}
	add(pathByte|queryByte, digits+letters+"-._~!$&'()*+,;=:@/")
	add(queryByte, "?")
	// Not the rest of reg-name (RFC 3986, section 3.2.2): no host that this gateway serves has such a name.
	add(hostByte, digits+letters+"-._")
	add(idByte, digits+letters+"-_")
	add(digitByte, digits)
	add(hexByte, digits+"abcdefABCDEF")
	return table
}()

func is(c byte, class uint8) bool { return classes[c]&class != 0 }

// all reports whether every byte of b is of the class. It holds for no bytes.
func all(b []byte, class uint8) bool {
	for _, c := range b {
		if classes[c]&class == 0 {
			return false
		}
	}
	return true
}

// equalFold compares ASCII letters without case; lower is in lower case.
func equalFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// trim cuts optional whitespace (RFC 9110, section 5.6.3) off both ends.
func trim(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}

// cutField splits a field line (RFC 9112, section 5) into name and trimmed value. It is not ok with a byte that belongs in
// neither, with blanks before the colon (section 5.1), and for a folded line, which begins with a blank (section 5.2).
func cutField(line []byte) (name, value []byte, ok bool) {
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 || !all(line[:colon], tokenByte) || !all(line[colon+1:], valueByte) {
		return nil, nil, false
	}
	return line[:colon], trim(line[colon+1:]), true
}

// nextElement takes the first element off a comma-separated list (RFC 9110, section 5.6.1); it may be empty.
func nextElement(list []byte) (element, rest []byte) {
	element, rest, _ = bytes.Cut(list, []byte{','})
	return trim(element), rest
}

// parseDigits reads 1*DIGIT up to 18 digits after leading zeros, so that nothing can wrap.
func parseDigits(b []byte) (n int64, ok bool) {
	for _, c := range b {
		if n >= 1e17 || !is(c, digitByte) {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, len(b) > 0
}

// parseChunkSize reads the line before a chunk's data (RFC 9112, section 7.1): up to 16 hexadecimal digits, and extensions,
// which are checked for stray bytes only. Blanks, which the RFC lets a recipient tolerate before an extension, are not.
func parseChunkSize(line []byte) (n int64, ok bool) {
	digits, extension, _ := bytes.Cut(line, []byte{';'})
	if len(digits) == 0 || len(digits) > 16 || !all(extension, valueByte) {
		return 0, false
	}
	for _, c := range digits {
		switch {
		case !is(c, hexByte) || n >= 1<<58:
			return 0, false
		case c <= '9':
			n = n<<4 | int64(c-'0')
		default:
			n = n<<4 | int64(c|0x20-'a'+10)
		}
	}
	return n, true
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

const hostBytesMax = 255 // no domain name is longer (RFC 1035, section 2.3.4)

// isHost reports whether authority is a host and optionally a port (RFC 9110, section 7.2): a name, an IPv4 address, or an
// IPv6 address in brackets. Userinfo is none of them.
func isHost(authority []byte) bool {
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
	n, ok := parseDigits(port[1:])
	return port[0] == ':' && ok && n <= 65535
}

// Why checkPath refuses a path.
const (
	pathHasStrayBytes  = "the path holds a character that must be percent-encoded"
	pathHasBadEncoding = "the path holds a percent sign that encodes nothing, or encodes a slash, a backslash or a control character"
	pathHasEmpties     = "the path holds an empty segment (//)"
	pathHasDots        = "the path holds a dot segment"
)

// checkPath returns why a path cannot be matched and forwarded as one and the same, or "". Whoever decodes, merges slashes or
// resolves dot segments after us must come to the path that we matched; so whatever they could change is refused.
func checkPath(path []byte) string {
	segment := 1 // where the present segment begins
	for i := 0; ; i++ {
		if i == len(path) || path[i] == '/' && i > 0 {
			if i < len(path) && i == segment {
				return pathHasEmpties
			}
			if isDots(path[segment:i]) {
				return pathHasDots
			}
			if i == len(path) {
				return ""
			}
			segment = i + 1
			continue
		}
		switch c := path[i]; {
		case c == '%':
			if i+2 >= len(path) || !is(path[i+1], hexByte) || !is(path[i+2], hexByte) {
				return pathHasBadEncoding
			}
			if d := unhex(path[i+1])<<4 | unhex(path[i+2]); d == '/' || d == '\\' || d < ' ' || d == 0x7f {
				return pathHasBadEncoding
			}
			i += 2
		case !is(c, pathByte):
			return pathHasStrayBytes
		}
	}
}

// isDots reports whether a segment is "." or "..", however encoded. Parameters are cut off, as some servers do.
func isDots(segment []byte) bool {
	segment, _, _ = bytes.Cut(segment, []byte{';'})
	dots := 0
	for i := 0; i < len(segment); i++ {
		switch {
		case segment[i] == '.':
		case segment[i] == '%' && segment[i+1] == '2' && segment[i+2]|0x20 == 'e':
			i += 2
		default:
			return false
		}
		dots++
	}
	return dots == 1 || dots == 2
}

// isQuery reports whether b may stand after the question mark (RFC 3986, section 3.4).
func isQuery(b []byte) bool {
	for i := 0; i < len(b); i++ {
		if b[i] == '%' {
			if i+2 >= len(b) || !is(b[i+1], hexByte) || !is(b[i+2], hexByte) {
				return false
			}
			i += 2
		} else if !is(b[i], queryByte) {
			return false
		}
	}
	return true
}

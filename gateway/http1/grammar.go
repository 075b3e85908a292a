package http1

import (
	"bytes"
	"strconv"
)

// Classes of bytes, one bit each. A byte above 127 is obs-text, which belongs only to valueByte.
const (
	tokenByte uint8 = 1 << iota // tchar (RFC 9110, section 5.6.2)
	valueByte                   // field-vchar, SP and HTAB (RFC 9110, section 5.5)
	pathByte                    // pchar without "%", and "/" (RFC 3986, section 3.3)
	queryByte                   // pathByte and "?" (RFC 3986, section 3.4)
	hostByte                    // the bytes of host names
	digitByte
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
	// The other bytes of reg-name (RFC 3986, section 3.2.2) are refused. No host that this gateway
	// serves has them in its name.
	add(hostByte, digits+letters+"-._")
	add(digitByte, digits)
	return table
}()

func is(c byte, class uint8) bool { return classes[c]&class != 0 }

// all reports whether every byte of b belongs to the class. It is true for an empty b.
func all(b []byte, class uint8) bool {
	for _, c := range b {
		if classes[c]&class == 0 {
			return false
		}
	}
	return true
}

// IsValue reports whether b is a valid value of a header field.
func IsValue(b []byte) bool { return all(b, valueByte) }

// EqualFold compares ASCII letters without case. lower must be in lower case.
func EqualFold(b []byte, lower string) bool {
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

// Trim removes optional whitespace (RFC 9110, section 5.6.3) from both ends.
func Trim(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}

// cutField splits a field line (RFC 9112, section 5) into its name and its trimmed value. It
// refuses bytes that are not allowed, blanks before the colon (section 5.1), and folded lines,
// which begin with a blank (section 5.2).
func cutField(line []byte) (name, value []byte, ok bool) {
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 || !all(line[:colon], tokenByte) || !all(line[colon+1:], valueByte) {
		return nil, nil, false
	}
	return line[:colon], Trim(line[colon+1:]), true
}

// nextElement splits the first element from a comma-separated list (RFC 9110, section 5.6.1). The
// element may be empty.
func nextElement(list []byte) (element, rest []byte) {
	element, rest, _ = bytes.Cut(list, []byte{','})
	return Trim(element), rest
}

// ParseDigits reads 1*DIGIT. It takes at most 18 digits after leading zeros, so the number cannot
// overflow. Each response needs it twice: package strconv takes longer.
func ParseDigits(b []byte) (n int64, ok bool) {
	for _, c := range b {
		if n >= 1e17 || !is(c, digitByte) {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, len(b) > 0
}

func parseHex(digits []byte) (n int64, ok bool) {
	u, err := strconv.ParseUint(string(digits), 16, 63) // it takes no sign
	return int64(u), err == nil
}

// parseChunkSize reads the line before a chunk's data (RFC 9112, section 7.1): hexadecimal digits,
// then extensions, which are checked and ignored. It refuses blanks around an extension, although
// the RFC allows them.
func parseChunkSize(line []byte) (n int64, ok bool) {
	digits, extensions := line, []byte(nil)
	if semicolon := bytes.IndexByte(line, ';'); semicolon >= 0 {
		digits, extensions = line[:semicolon], line[semicolon:]
	}
	n, ok = parseHex(digits)
	return n, ok && areExtensions(extensions)
}

// areExtensions reports whether b is chunk extensions (RFC 9112, section 7.1.1): a semicolon, a
// name, and perhaps an equals sign and a value, which is a token or a quoted string.
func areExtensions(b []byte) bool {
	for len(b) > 0 {
		if b[0] != ';' {
			return false
		}
		b = b[1:]
		name := tokenLen(b)
		if name == 0 {
			return false
		}
		b = b[name:]
		if len(b) == 0 || b[0] != '=' {
			continue
		}
		b = b[1:]
		value := tokenLen(b)
		if value == 0 {
			value = quotedLen(b)
		}
		if value == 0 {
			return false
		}
		b = b[value:]
	}
	return true
}

// tokenLen returns the length of the token at the start of b.
func tokenLen(b []byte) (n int) {
	for n < len(b) && is(b[n], tokenByte) {
		n++
	}
	return n
}

// quotedLen returns the length of the quoted string at the start of b (RFC 9110, section 5.6.4).
// It returns 0 if there is none.
func quotedLen(b []byte) int {
	if len(b) == 0 || b[0] != '"' {
		return 0
	}
	for n := 1; n < len(b); n++ {
		switch {
		case b[n] == '"':
			return n + 1
		case b[n] == '\\':
			n++
			if n == len(b) || !is(b[n], valueByte) {
				return 0
			}
		case !is(b[n], valueByte):
			return 0
		}
	}
	return 0
}

// unhex returns the byte that a percent-encoding at the start of b stands for (RFC 3986, section
// 2.1).
func unhex(b []byte) (c byte, ok bool) {
	if len(b) < len("%00") {
		return 0, false
	}
	n, ok := parseHex(b[1:len("%00")])
	return byte(n), ok
}

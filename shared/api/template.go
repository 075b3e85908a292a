package api

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// Pattern is the template of a path, with a Star for each parameter.
type Pattern string

// Star stands for a parameter: one or more characters of a segment. No path has this byte.
const Star = '\x00'

// Matches reports whether a path, or each path of another pattern, matches the pattern. A star
// takes as little as possible. If what follows does not match, the last star takes one character
// more: there is no need to go back to an earlier one.
func (p Pattern) Matches(path string) bool {
	at, i := 0, 0               // how much of the pattern and of the path has matched
	afterStar, starEnd := -1, 0 // where the last star ends, in the pattern and in the path
	for i < len(path) {
		switch {
		case at < len(p) && p[at] == Star && path[i] != '/':
			at++
			i++
			afterStar, starEnd = at, i
		case at < len(p) && p[at] == path[i]:
			at++
			i++
		case afterStar >= 0 && path[starEnd] != '/':
			starEnd++
			at, i = afterStar, starEnd
		default:
			return false
		}
	}
	return at == len(p)
}

// Compare orders patterns: the first segment that differs decides. A fixed one comes first, then
// one with a parameter and other text, of which that with more text comes first, then a parameter.
// So of two patterns that have a path in common, the narrower one comes first.
func (p Pattern) Compare(q Pattern) int { return strings.Compare(p.rank(), q.rank()) }

func (p Pattern) rank() string {
	var b strings.Builder
	for segment := range strings.SplitSeq(string(p), "/") {
		place := 0
		if parameters := strings.Count(segment, string(Star)); parameters > 0 {
			place = 1 + max(0, 9999-len(segment)+parameters)
		}
		const last = "\x7f" // it sorts after all characters of paths
		fmt.Fprintf(&b, "/%05d%s", place, strings.ReplaceAll(segment, string(Star), last))
	}
	return b.String()
}

// Canonical returns a path in which no character is percent-encoded that may stand there as it is
// (RFC 3986, section 6.2.2). Its percent-encoding must be valid.
func Canonical(path string) string {
	first, rest, isEncoded := strings.Cut(path, "%")
	if !isEncoded {
		return path
	}
	var b strings.Builder
	b.WriteString(first)
	for part := range strings.SplitSeq(rest, "%") {
		encoded := part[:2]
		c, _ := strconv.ParseUint(encoded, 16, 8)
		if isUnencoded(byte(c)) {
			b.WriteByte(byte(c))
		} else {
			b.WriteString("%" + strings.ToUpper(encoded))
		}
		b.WriteString(part[2:])
	}
	return b.String()
}

// isUnencoded reports whether a character of a segment need not be percent-encoded.
func isUnencoded(c byte) bool {
	isLetter := 'a' <= c|0x20 && c|0x20 <= 'z'
	isDigit := '0' <= c && c <= '9'
	return isLetter || isDigit || strings.IndexByte("-._~!$&'()*+,;=:@", c) >= 0
}

// Pattern returns the pattern of the operation's path, which Load has checked.
func (o Operation) Pattern() Pattern {
	p, _ := pattern(o.Path)
	return p
}

// pattern reads a template of an OpenAPI document. The second result says what is wrong with it;
// empty: nothing.
func pattern(template string) (p Pattern, wrong string) {
	if !strings.HasPrefix(template, "/") {
		return "", "the path does not begin with a slash"
	}
	var b strings.Builder
	for rest := template; rest != ""; {
		literal, after, isOpen := strings.Cut(rest, "{")
		for i, c := range []byte(literal) {
			switch {
			case c == '?' || c == '#':
				return "", "the path has a query or a fragment: describe it as parameters"
			case c == '}':
				return "", "the path has a } without a {"
			case c <= ' ' || c >= 0x7f || strings.IndexByte(`"<>\^|[]`+"`", c) >= 0:
				return "", fmt.Sprintf("the path has the character %q: write it percent-encoded", literal[i:i+1])
			}
		}
		if _, err := url.PathUnescape(literal); err != nil {
			return "", "the path has an invalid percent-encoding"
		}
		b.WriteString(Canonical(literal))
		if !isOpen {
			break
		}
		name, next, isClosed := strings.Cut(after, "}")
		if !isClosed || name == "" || strings.ContainsAny(name, "{/") {
			return "", "the path has a parameter without a name or an end"
		}
		if !strings.HasSuffix(b.String(), string(Star)) { // where the first of two in a row ends is unknown
			b.WriteByte(Star)
		}
		rest = next
	}
	for segment := range strings.SplitSeq(b.String()[1:], "/") {
		if segment == "." || segment == ".." || segment == "" && strings.Contains(b.String(), "//") {
			return "", "the path has an empty segment, or . or .."
		}
	}
	return Pattern(b.String()), ""
}

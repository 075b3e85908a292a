package api

import (
	"fmt"
	"net/url"
	"strings"
	"unicode"
)

// Pattern is the template of a path, with a Star for each parameter.
type Pattern string

// Star stands for a parameter: one or more characters of a segment. No path has this byte.
const Star = '\x00'

// Matches reports whether a path, or each path of another pattern, matches the pattern.
func (p Pattern) Matches(path string) bool {
	at, retry, taken := 0, -1, 0 // after the last star, and how much of the path is in front of it and in it
	i := 0
	for i < len(path) {
		switch {
		case at < len(p) && p[at] == Star && path[i] != '/':
			i++
			at++
			retry, taken = at, i
		case at < len(p) && p[at] == path[i]:
			at++
			i++
		case retry >= 0 && path[taken] != '/': // the last star takes one more
			taken++
			at, i = retry, taken
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
		fmt.Fprintf(
			&b, "/%05d%s", place, strings.ReplaceAll(segment, string(Star), "\x7f"),
		) // 0x7f sorts after all characters of paths
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
		plain, _ := url.PathUnescape("%" + part[:2])
		if c := plain[0]; c < 0x80 &&
			(unicode.IsLetter(rune(c)) || unicode.IsDigit(rune(c)) || strings.IndexByte("-._~!$&'()*+,;=:@", c) >= 0) {
			b.WriteByte(c)
		} else {
			b.WriteString("%" + strings.ToUpper(part[:2]))
		}
		b.WriteString(part[2:])
	}
	return b.String()
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
		if !strings.HasSuffix(b.String(), string(Star)) { // of two in a row, nobody knows where the first one ends
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

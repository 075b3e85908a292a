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

// Matches reports whether a path, or each path of another pattern, is one of the pattern.
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

// rank orders patterns: of two that have a path in common, the one with fewer paths comes first.
func (p Pattern) rank() string {
	var b strings.Builder
	for segment := range strings.SplitSeq(string(p), "/") {
		stars := strings.Count(segment, string(Star))
		switch {
		case stars == 0:
			b.WriteString("/0")
		case stars == len(segment):
			b.WriteString("/9")
		default: // the more it says, the fewer paths it has
			fmt.Fprintf(&b, "/5%04d", max(0, 9999-len(segment)+stars))
		}
	}
	return b.String()
}

// Compare orders patterns for a search: of two that have a path in common, the narrower one comes first.
func (p Pattern) Compare(q Pattern) int { return strings.Compare(p.rank(), q.rank()) }

// clash says why two patterns cannot both be served. It is empty if they can: they have no path in common, or one of them has only paths
// that the other has too, and is then preferred.
func (p Pattern) clash(q Pattern) string {
	switch in, out := q.Matches(string(p)), p.Matches(string(q)); {
	case in && out:
		return "is the same path as"
	case in || out || !p.meets(q):
		return ""
	}
	return "has paths in common with"
}

// Crosses reports whether two patterns may have a path in common although neither is a part of the other.
func (p Pattern) Crosses(q Pattern) bool {
	return strings.Count(string(p), "/") == strings.Count(string(q), "/") && p.meets(q) && !p.Matches(string(q)) && !q.Matches(string(p))
}

// meets reports whether two patterns with as many segments, of which neither is a part of the other, may have a path in common.
func (p Pattern) meets(q Pattern) bool {
	for p, q := string(p), string(q); p != "" || q != ""; {
		var a, b string
		a, p, _ = strings.Cut(p, "/")
		b, q, _ = strings.Cut(q, "/")
		if a == b || Pattern(a).Matches(b) || Pattern(b).Matches(a) {
			continue
		}
		before, _, isOpen := strings.Cut(a, string(Star))
		otherBefore, _, isOtherOpen := strings.Cut(b, string(Star))
		after, otherAfter := a[strings.LastIndexByte(a, Star)+1:], b[strings.LastIndexByte(b, Star)+1:]
		n, m := min(len(before), len(otherBefore)), min(len(after), len(otherAfter))
		if !isOpen || !isOtherOpen || before[:n] != otherBefore[:n] || after[len(after)-m:] != otherAfter[len(otherAfter)-m:] {
			return false
		}
	}
	return true
}

// Canonical returns a path in which no character is percent-encoded that may stand there as it is (RFC 3986, section 6.2.2). Its
// percent-encoding must be valid.
func Canonical(path string) string {
	first, rest, isEncoded := strings.Cut(path, "%")
	if !isEncoded {
		return path
	}
	var b strings.Builder
	b.WriteString(first)
	for part := range strings.SplitSeq(rest, "%") {
		plain, _ := url.PathUnescape("%" + part[:2])
		if c := plain[0]; c < 0x80 && (unicode.IsLetter(rune(c)) || unicode.IsDigit(rune(c)) || strings.IndexByte("-._~!$&'()*+,;=:@", c) >= 0) {
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

// pattern reads a template of an OpenAPI document. The second result says what is wrong with it; empty: nothing.
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

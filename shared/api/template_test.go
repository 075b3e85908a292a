package api

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"petgate/shared/testkit/must"
)

// drawPattern draws a pattern of few characters, so that patterns often have paths in common.
func drawPattern(t *rapid.T, name string) Pattern {
	segment := rapid.StringMatching("[ab*]{1,3}")
	segments := rapid.SliceOfN(segment, 1, 2).Draw(t, name)
	for i, s := range segments {
		for strings.Contains(s, "**") {
			s = strings.ReplaceAll(s, "**", "*")
		}
		segments[i] = strings.ReplaceAll(s, "*", string(Star))
	}
	return Pattern("/" + strings.Join(segments, "/"))
}

// paths are all paths of one or two segments of up to four of two characters.
var paths = func() (all []string) {
	segments := []string{""}
	for i := 0; i < len(segments); i++ {
		if s := segments[i]; len(s) < 4 {
			segments = append(segments, s+"a", s+"b")
		}
	}
	for _, one := range segments[1:] {
		all = append(all, "/"+one)
		for _, two := range segments[1:] {
			all = append(all, "/"+one+"/"+two)
		}
	}
	return all
}()

// matchesByTrying is Matches, the long way.
func matchesByTrying(p, path string) bool {
	if p == "" || path == "" {
		return p == path
	}
	if p[0] != Star {
		return p[0] == path[0] && matchesByTrying(p[1:], path[1:])
	}
	for n := 1; n <= len(path) && path[n-1] != '/'; n++ {
		if matchesByTrying(p[1:], path[n:]) {
			return true
		}
	}
	return false
}

// Two patterns with a path in common have an order: the first segment that differs decides, and of
// those a fixed one comes first. So a pattern that has only paths of the other one comes first.
func TestPatterns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, q := drawPattern(t, "p"), drawPattern(t, "q")
		both, onlyP, onlyQ := 0, 0, 0
		for _, path := range paths {
			inP, inQ := p.Matches(path), q.Matches(path)
			must.Equal(t, inP, matchesByTrying(string(p), path), "%q matches %q", p, path)
			switch {
			case inP && inQ:
				both++
			case inP:
				onlyP++
			case inQ:
				onlyQ++
			}
		}
		if order := p.Compare(q); order != -q.Compare(p) || (order == 0) != (p == q) {
			t.Fatalf("%q and %q have the order %d", p, q, order)
		}
		if both == 0 || p == q {
			return
		}
		a, b, i := strings.Split(string(p), "/"), strings.Split(string(q), "/"), 0
		for a[i] == b[i] {
			i++
		}
		isFirst := p.Compare(q) < 0
		want := isFirst
		switch isFixed, isOtherFixed := !strings.Contains(a[i], string(Star)), !strings.Contains(b[i], string(Star)); {
		case onlyP == 0 || onlyQ == 0:
			want = onlyP == 0
		case isFixed != isOtherFixed:
			want = isFixed
		}
		if isFirst != want {
			t.Fatalf("%q and %q have %d paths in common, %d and %d for themselves; the first one comes first: %t", p, q,
				both, onlyP, onlyQ, isFirst)
		}
	})
}

func TestCanonical(t *testing.T) {
	must.Equal(t, Canonical("/%c3%a9/%41%2f%7e%3f%40x"), "/%C3%A9/A%2F~%3F@x", "the path")
	two, wrong := pattern("/{a}{b}/{c}")
	must.Equal(t, string(two)+wrong, "/\x00/\x00", "two parameters in a row, whose border nobody knows")
}

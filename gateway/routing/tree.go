package routing

import (
	"cmp"
	"slices"
	"strings"

	"petgate/shared/api"
)

// node is a place in the tree of segments. What leads to it are the segments of a path from the
// first one on.
type node struct {
	route *Route           // of the paths that end here; nil: none does
	fixed map[string]*node // by the segment that comes next
	mixed []branch         // by a segment with a parameter and other text, the narrowest first
	any   *node            // after a segment that is a parameter
}

type branch struct {
	segment api.Pattern
	*node
}

// add adds an operation to the tree.
func (n *node) add(one *Route) {
	for segment := range strings.SplitSeq(string(one.pattern), "/") {
		n = n.next(segment)
	}
	n.route = one
}

// next returns the node after a segment of a pattern. It makes the node if there is none.
func (n *node) next(segment string) *node {
	switch {
	case segment == string(api.Star):
		n.any = cmp.Or(n.any, new(node))
		return n.any
	case strings.IndexByte(segment, api.Star) < 0:
		if n.fixed == nil {
			n.fixed = map[string]*node{}
		}
		n.fixed[segment] = cmp.Or(n.fixed[segment], new(node))
		return n.fixed[segment]
	}
	mixed := api.Pattern(segment)
	compare := func(b branch, mixed api.Pattern) int { return b.segment.Compare(mixed) }
	at, found := slices.BinarySearchFunc(n.mixed, mixed, compare)
	if !found {
		n.mixed = slices.Insert(n.mixed, at, branch{mixed, new(node)})
	}
	return n.mixed[at].node
}

// find returns the operation of a path below n, or nil. A path without more segments ends at n.
//
// It follows all segments that fit, the narrowest first, in the order of api.Pattern.Compare. So
// the first operation that it finds is the first one in that order. It visits no node twice: a path
// cannot make it work longer than to look at each node once.
func (n *node) find(path string, more bool) *Route {
	switch {
	case n == nil:
		return nil
	case !more:
		return n.route
	}
	segment, path, more := strings.Cut(path, "/")
	if one := n.fixed[segment].find(path, more); one != nil {
		return one
	}
	for _, b := range n.mixed {
		if b.segment.Matches(segment) {
			if one := b.find(path, more); one != nil {
				return one
			}
		}
	}
	if segment == "" {
		return nil
	}
	return n.any.find(path, more)
}

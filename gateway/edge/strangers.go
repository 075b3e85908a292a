package edge

import "sync"

// strangers lists the connections that have not sent a valid key yet, the one that has been silent for longest first. When
// connections run out, strangers are closed in that order, so that clients without a key cannot block clients with one.
type strangers struct {
	mu          sync.Mutex
	first, last *clientConn
}

// stranger is a connection's place among the strangers.
type stranger struct {
	isListed   bool
	prev, next *clientConn
}

// closestMax bounds how many connections oldest checks to find an idle one.
const closestMax = 64

// touch moves c to the end of the list.
func (s *strangers) touch(c *clientConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.putLast(c)
}

// remove removes c, because it has sent a valid key or is closed.
func (s *strangers) remove(c *clientConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unlink(c)
}

func (s *strangers) putLast(c *clientConn) {
	s.unlink(c)
	c.stranger = stranger{isListed: true, prev: s.last}
	if s.last != nil {
		s.last.stranger.next = c
	} else {
		s.first = c
	}
	s.last = c
}

func (s *strangers) unlink(c *clientConn) {
	if !c.stranger.isListed {
		return
	}
	prev, next := c.stranger.prev, c.stranger.next
	if prev != nil {
		prev.stranger.next = next
	} else {
		s.first = next
	}
	if next != nil {
		next.stranger.prev = prev
	} else {
		s.last = prev
	}
	c.stranger = stranger{}
}

// oldest returns the connection that has been silent for longest among those that are idle, or nil. It moves busy
// connections to the end of the list, so that the next call checks other ones: busy connections at the front do not
// protect the ones behind them.
func (s *strangers) oldest() *clientConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range closestMax {
		if s.first == nil || s.first.IsIdle() {
			return s.first
		}
		s.putLast(s.first)
	}
	return nil
}

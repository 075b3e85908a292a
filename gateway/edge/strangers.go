package edge

import "sync"

// strangers are the connections on which no valid key has been seen, the one that has been silent for longest first. When
// connections run out, they are closed in that order: clients without a key cannot keep out those that have one.
type strangers struct {
	mu          sync.Mutex
	first, last *clientConn
}

// stranger is a connection's place among the strangers.
type stranger struct {
	isListed   bool
	prev, next *clientConn
}

// closestMax bounds how many are looked at for one that is idle.
const closestMax = 64

// touch puts c behind all others.
func (s *strangers) touch(c *clientConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.putLast(c)
}

// remove takes c out: it has shown a valid key, or is closed.
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

// oldest returns the connection that has been idle for longest, or nil. Busy connections that it meets go behind all others, so
// that the next call meets other ones: clients that keep the first ones busy protect no other connection.
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

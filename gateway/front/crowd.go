package front

import (
	"container/list"
	"sync"
	"time"

	"petgate/gateway/share"
	"petgate/shared/core/id"
)

// crowd lists all connections. When connections or the memory for heads run out, it closes some, so
// that clients without a key cannot block clients with one, and idle clients cannot block busy
// ones. It never closes a connection whose request is being served, or whose client has a key and
// is getting a response.
type crowd struct {
	mu        sync.Mutex
	strangers list.List // have not sent a valid key; the one that has been silent for longest comes first
	known     list.List // have sent a valid key; in the same order, but up to a second off
	slow      list.List // have begun a long head; the oldest comes first

	tenants *share.Shares // of the connections
}

// place is a connection's place in a queue. The crowd's mutex guards it.
type place struct {
	queue   *list.List // nil: in none
	element *list.Element
	isGone  bool // the connection is closed and enters no queue again
}

// strangersPart is the part of the connections that is for strangers: a tenth. With less, clients
// with a key would have no time to send it while connections are scarce.
const strangersPart = 10

// makeRoom closes a connection for a new one if there are too many. held is the number of
// connections with the new one.
func (w *crowd) makeRoom(held, most int64) bool {
	if isCrowded(held, most) && w.strangersHeld() > most/strangersPart && w.evict(&w.strangers, &w.slow) {
		return true
	}
	return held > most && w.evict(&w.known, &w.strangers, &w.slow)
}

// isCrowded reports whether only the strangers' part of the connections is left.
func isCrowded(held, most int64) bool { return held > most-most/strangersPart }

func (w *crowd) strangersHeld() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return int64(w.strangers.Len() + w.slow.Len())
}

// checkedMax bounds how many connections of a queue evict checks.
const checkedMax = 64

// evict closes one connection on which no request is being served: the first one that it finds, in
// the order of queues. It moves the busy connections that it finds before that to the end of their
// queue, so that the next call checks other ones: busy connections at the front do not protect the
// ones behind them.
func (w *crowd) evict(queues ...*list.List) bool {
	c := w.abandon(queues)
	if c == nil {
		return false
	}
	_ = c.held.Close()
	c.server.evicted.Inc()
	return true
}

func (w *crowd) abandon(queues []*list.List) *Conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range queues {
		for range checkedMax {
			if q.Len() == 0 {
				break
			}
			c := q.Front().Value.(*Conn)
			if c.Abandon() {
				return c
			}
			// A stranger that reads no response would hold its place.
			if q == &w.strangers && c.AbandonReply() {
				return c
			}
			q.MoveToBack(c.place.element)
		}
	}
	return nil
}

// put moves c to the end of q.
func (w *crowd) put(c *Conn, q *list.List) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch p := &c.place; {
	case p.isGone:
	case p.queue == q:
		q.MoveToBack(p.element)
	default:
		p.leave()
		p.queue, p.element = q, q.PushBack(c)
	}
}

// remove removes c, because it is closed.
func (w *crowd) remove(c *Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.place.leave()
	c.place.isGone = true
}

func (p *place) leave() {
	if p.queue != nil {
		p.queue.Remove(p.element)
		p.queue, p.element = nil, nil
	}
}

// membership says how a connection belongs to the crowd. The connection's goroutine owns it.
type membership struct {
	isKnown bool // a valid key has been seen
	isSlow  bool // the head that is arriving is in the queue slow
	isOwned bool // it counts for the tenant of its first valid key
	owner   id.Tenant
	movedAt time.Time // when it was last moved to the end of its queue
}

// moveEvery is how often a known connection moves to the end of its queue. If they moved with each
// request, busy connections would wait for one another at the mutex.
const moveEvery = time.Second

// touch moves c to the end of its queue after a request.
func (c *Conn) touch(now time.Time) {
	if c.isKnown && now.Sub(c.movedAt) < moveEvery {
		return
	}
	c.movedAt = now
	c.server.crowd.put(c, c.queue())
}

func (c *Conn) queue() *list.List {
	if c.isKnown {
		return &c.server.crowd.known
	}
	return &c.server.crowd.strangers
}

// HeadIsSlow moves c to the queue of slow heads. Package http1 calls it.
func (c *Conn) HeadIsSlow() {
	c.isSlow = true
	c.server.crowd.put(c, &c.server.crowd.slow)
}

// endHead moves c back to its own queue if its head was slow.
func (c *Conn) endHead() {
	if c.isSlow {
		c.isSlow = false
		c.server.crowd.put(c, c.queue())
	}
}

// Admit records that c has sent a valid key. It returns false if connections are scarce and the
// key's tenant already holds its share of them. A connection belongs to the tenant of its first
// key. isShared says that it carries requests of many tenants, as a proxy's does: then it belongs
// to none.
func (c *Conn) Admit(t id.Tenant, isShared bool) bool {
	if c.isKnown {
		return true
	}
	if !isShared {
		if !c.server.crowd.tenants.Take(t) {
			return false
		}
		c.isOwned, c.owner = true, t
	}
	c.isKnown = true
	return true
}

// all returns all connections.
func (w *crowd) all() (conns []*Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range []*list.List{&w.strangers, &w.known, &w.slow} {
		for e := q.Front(); e != nil; e = e.Next() {
			conns = append(conns, e.Value.(*Conn))
		}
	}
	return conns
}

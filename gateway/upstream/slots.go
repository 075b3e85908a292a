package upstream

import (
	"slices"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/sharded"
)

// slotWait is how long a request waits for a slot.
const slotWait = 100 * time.Millisecond

// reservedPart is the part of an instance's slots that tenants with few requests find free: a
// tenth. So they need not wait for another tenant's requests, which may be slow.
const reservedPart = 10

// slots counts the requests that the instances have, and gives slots to those that wait. The lock
// of holdings guards the rest too, and host.inFlight.
type slots struct {
	holdings sharded.Shard[id.Tenant, *holding] // of tenants with requests, and of some whose requests have left
	waiting  []*holding                         // those with requests that wait
}

// holding is what a tenant has of the slots, and what it waits for.
type holding struct {
	held  int        // slots
	queue []*Request // that wait, in their order
}

// of returns what a tenant holds. The caller holds the lock.
func (s *slots) of(t id.Tenant) *holding {
	if known := s.holdings.Entries[t]; known != nil {
		return known
	}
	added := &holding{}
	s.holdings.Put(t, added, func(_ id.Tenant, old *holding) bool { return old.held == 0 && len(old.queue) == 0 })
	return added
}

// Enter takes a slot at an instance, in which Send sends the request. If there is none, it waits
// for up to 100 ms, and then returns ErrOverloaded. A slot that becomes free goes to the waiting
// tenant that holds the fewest.
func (p *Pool) Enter(r *Request) error {
	if isIn, err := p.enter(r); isIn || err != nil {
		return err
	}
	timer := time.NewTimer(slotWait)
	defer timer.Stop()
	select {
	case <-r.granted:
		return nil
	case <-timer.C:
	}
	p.holdings.Lock()
	defer p.holdings.Unlock()
	if r.on != nil {
		return nil
	}
	p.quit(r)
	return ErrOverloaded
}

// enter takes a slot, or else lets the request wait. As many requests of one tenant wait as there
// are slots.
func (p *Pool) enter(r *Request) (isIn bool, err error) {
	p.holdings.Lock()
	defer p.holdings.Unlock()
	r.holding = p.of(r.Tenant)
	if p.take(r, 0) {
		return true, nil
	}
	switch len(r.holding.queue) {
	case p.cfg.ConnsMax * len(p.hosts):
		return false, ErrOverloaded
	case 0:
		p.waiting = append(p.waiting, r.holding)
	}
	r.granted = make(chan struct{})
	r.holding.queue = append(r.holding.queue, r)
	return false, nil
}

// quit ends a request's wait.
func (p *Pool) quit(r *Request) {
	remove(&r.holding.queue, r)
	if len(r.holding.queue) == 0 {
		remove(&p.waiting, r.holding)
	}
}

// remove removes v from a list that has it.
func remove[T comparable](list *[]T, v T) {
	at := slices.Index(*list, v)
	*list = slices.Delete(*list, at, at+1)
}

// Leave gives the request's slot back, if it has one. It ends a response that is still arriving.
func (r *Request) Leave() {
	if r.on == nil {
		return
	}
	r.drop()
	p := r.on.pool
	p.holdings.Lock()
	defer p.holdings.Unlock()
	p.free(r)
	p.grant()
}

// move takes the request from its instance to one that was not tried yet, if that has a slot. It
// does not wait.
func (p *Pool) move(r *Request, tried uint64) (moved bool) {
	p.holdings.Lock()
	defer p.holdings.Unlock()
	p.free(r)
	moved = p.take(r, tried)
	p.grant()
	return moved
}

// take takes a slot at the best instance that has one and was not tried yet. Instances that
// requests have ejected may hang: they do not get a request only because the others are full.
func (p *Pool) take(r *Request, tried uint64) bool {
	now := r.At.UnixMilli()
	for h := p.pick(tried, now); h != nil; h = p.pick(tried, now) {
		if p.hasRoom(h, r.holding, now) {
			h.inFlight++
			r.holding.held++
			r.on = h
			return true
		}
		tried |= h.bit | p.failing(now)
	}
	return false
}

// hasRoom reports whether the tenant may have one more slot of the instance. When only the reserved
// ones are left, a tenant that holds UpstreamConnsPerTenant for each instance that is in gets no
// more.
func (p *Pool) hasRoom(h *host, tenant *holding, now int64) bool {
	most := p.cfg.ConnsMax
	if h.inFlight < most-(most+reservedPart-1)/reservedPart {
		return true
	}
	in := 0
	for _, h := range p.hosts {
		if h.isIn(now) {
			in++
		}
	}
	return h.inFlight < most && tenant.held < p.cfg.UpstreamConnsPerTenant*max(1, in)
}

func (p *Pool) free(r *Request) {
	r.on.inFlight--
	r.holding.held--
	r.on = nil
}

// grant gives free slots to requests that wait. Of tenants that hold equally many, the next is the
// one that was given none for longest.
func (p *Pool) grant() {
	for len(p.waiting) > 0 {
		next := slices.MinFunc(p.waiting, func(a, b *holding) int { return a.held - b.held })
		r := next.queue[0]
		if !p.take(r, 0) {
			return // nor is there a slot for a tenant that holds more
		}
		p.quit(r)
		if len(next.queue) > 0 {
			remove(&p.waiting, next)
			p.waiting = append(p.waiting, next)
		}
		close(r.granted)
	}
}

package upstream

import (
	"slices"
	"sync"
	"time"

	"petgate/shared/core/id"
)

// slotWait is how long a request waits for a slot.
const slotWait = 100 * time.Millisecond

// reservedPart is the part of an instance's slots that tenants with few requests find free: a tenth. So they need not wait for
// another tenant's requests, which may be slow.
const reservedPart = 10

// slots counts the requests that the instances have, and gives slots to those that wait. mu also guards host.inFlight.
type slots struct {
	mu      sync.Mutex
	held    map[id.Tenant]int        // how many slots each tenant has, without zeros
	waiting map[id.Tenant][]*Request // in their order, without empty lists
}

// Enter takes a slot at an instance, in which Send sends the request. If there is none, it waits for up to 100 ms, and then returns
// ErrOverloaded. A slot that becomes free goes to the waiting tenant that holds the fewest.
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
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.on != nil {
		return nil
	}
	p.quit(r)
	return ErrOverloaded
}

// enter takes a slot, or else lets the request wait. As many requests of one tenant wait as there are slots.
func (p *Pool) enter(r *Request) (isIn bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.take(r, 0) {
		return true, nil
	}
	if len(p.waiting[r.Tenant]) >= p.cfg.ConnsMax*len(p.hosts) {
		return false, ErrOverloaded
	}
	r.granted = make(chan struct{})
	p.waiting[r.Tenant] = append(p.waiting[r.Tenant], r)
	return false, nil
}

// quit ends a request's wait.
func (p *Pool) quit(r *Request) {
	line := p.waiting[r.Tenant]
	at := slices.Index(line, r)
	if p.waiting[r.Tenant] = slices.Delete(line, at, at+1); len(line) == 1 {
		delete(p.waiting, r.Tenant)
	}
}

// Leave gives the request's slot back, if it has one. It ends a response that is still arriving.
func (r *Request) Leave() {
	if r.on == nil {
		return
	}
	r.drop()
	p := r.on.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free(r)
	p.grant()
}

// move takes the request from its instance to one that was not tried yet, if that has a slot. It does not wait.
func (p *Pool) move(r *Request, tried uint64) (moved bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free(r)
	moved = p.take(r, tried)
	p.grant()
	return moved
}

// take takes a slot at the best instance that has one and was not tried yet. Instances that requests have ejected may hang: they
// do not get a request only because the others are full.
func (p *Pool) take(r *Request, tried uint64) bool {
	now := r.At.UnixMilli()
	for h := p.pick(tried, now); h != nil; h = p.pick(tried, now) {
		if p.hasRoom(h, r.Tenant, now) {
			h.inFlight++
			p.held[r.Tenant]++
			r.on = h
			return true
		}
		tried |= h.bit | p.failing(now)
	}
	return false
}

// hasRoom reports whether the tenant may have one more slot of the instance. When only the reserved ones are left, a tenant that holds
// TenantConnsMax for each instance that is in gets no more.
func (p *Pool) hasRoom(h *host, t id.Tenant, now int64) bool {
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
	return h.inFlight < most && p.held[t] < p.cfg.TenantConnsMax*max(1, in)
}

func (p *Pool) free(r *Request) {
	r.on.inFlight--
	r.on = nil
	if held := p.held[r.Tenant]; held > 1 {
		p.held[r.Tenant] = held - 1
	} else {
		delete(p.held, r.Tenant)
	}
}

// grant gives free slots to requests that wait. Of tenants that hold equally many, any may be the next.
func (p *Pool) grant() {
	for len(p.waiting) > 0 {
		var next *Request
		for tenant, line := range p.waiting {
			if next == nil || p.held[tenant] < p.held[next.Tenant] {
				next = line[0]
			}
		}
		if !p.take(next, 0) {
			return // nor is there a slot for a tenant that holds more
		}
		p.quit(next)
		close(next.granted)
	}
}

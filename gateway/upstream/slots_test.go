package upstream

import (
	"errors"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/testkit/must"
)

// crowd has one client for each connection, which sends one request after the other for a second.
// clients has the number of connections of each tenant. A request takes serving. It returns how
// many requests of each tenant were served and how many were refused.
func crowd(p *Pool, clients []int, serving time.Duration) (served, refused []int) {
	served, refused = make([]int, len(clients)), make([]int, len(clients))
	var mu sync.Mutex
	var running sync.WaitGroup
	until := time.Now().Add(time.Second)
	for tenant, n := range clients {
		for range n {
			running.Go(func() {
				for time.Now().Before(until) {
					r := &Request{Tenant: id.Tenant{byte(tenant), byte(tenant >> 8)}, At: time.Now()}
					err := p.Enter(r)
					counts := served
					if err != nil {
						counts = refused
					} else {
						time.Sleep(serving)
						r.Leave()
					}
					mu.Lock()
					counts[tenant]++
					mu.Unlock()
				}
			})
		}
	}
	running.Wait()
	return served, refused
}

// Slots that nobody else needs are one tenant's. When tenants wait for slots, they get equal
// shares, however many connections each has.
func TestSlotsAreShared(t *testing.T) {
	many := make([]int, 20)
	for i := range many {
		many[i] = 60 + 15*i
	}
	for name, clients := range map[string][]int{
		"one tenant": {400}, "one tenant, more than it gets": {900}, "20 tenants": many,
		"more tenants than slots": slices.Repeat([]int{4}, 700),
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newPool(t, io.Discard,
				func(c *Config) { c.ConnsMax, c.UpstreamConnsPerTenant, c.URLs = 512, 128, []string{"unix:/none"} })
			served, refused := crowd(p, clients, 5*time.Millisecond)
			least, most := served[0], 0
			for tenant, n := range served {
				least, most = min(least, n), max(most, n)
				must.Equal(t, refused[tenant], 0, "%s: refused of tenant %d", name, tenant)
			}
			t.Logf("%s: %d to %d requests were served for a tenant", name, least, most)
			if least == 0 || float64(most)/float64(least) > 1.1 {
				t.Errorf("%s: unequal: %v", name, served)
			}
			left := len(p.waiting) + p.hosts[0].inFlight
			for _, one := range p.holdings.Entries {
				left += one.held + len(one.queue)
			}
			must.Equal(t, left, 0, "%s: what is not given back", name)
		})
	}
}

// A tenant that fills all slots that it can get with slow requests does not delay a newcomer. With
// reserved slots taken too, a request waits for 100 ms, and as many requests of one tenant wait as
// there are slots.
func TestNewcomerFindsASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, io.Discard,
			func(c *Config) { c.ConnsMax, c.UpstreamConnsPerTenant, c.URLs = 20, 4, []string{"unix:/none"} })
		f := func(tenant byte, n int, want error, within time.Duration) {
			t.Helper()
			var running sync.WaitGroup
			for range n {
				running.Go(func() {
					r := &Request{Tenant: id.Tenant{tenant}, At: time.Now()}
					if err := p.Enter(r); !errors.Is(err, want) || time.Since(r.At) != within {
						t.Errorf("tenant %d: %v after %v, want %v after %v", tenant, err, time.Since(r.At), want,
							within)
					}
				})
			}
			running.Wait()
		}
		f(1, 18, nil, 0)
		f(1, 20, ErrOverloaded, slotWait)
		p.hosts[0].eject() // there is no other instance
		f(2, 2, nil, 0)
		f(3, 1, ErrOverloaded, slotWait)
		for range 20 {
			go func() { _ = p.Enter(&Request{Tenant: id.Tenant{3}, At: time.Now()}) }()
		}
		synctest.Wait()
		f(3, 1, ErrOverloaded, 0)
		time.Sleep(slotWait)
	})
}

// What one tenant gets when slots are scarce counts only instances that are in. Tenants are known
// as long as they have requests.
func TestSlotsOfAnInstanceThatIsOut(t *testing.T) {
	p := newPool(t, io.Discard,
		func(c *Config) {
			c.ConnsMax, c.UpstreamConnsPerTenant, c.URLs = 20, 4, []string{"unix:/none", "unix:/other"}
		})
	must.Equal(t, p.hosts[0].name, "localhost", "the Host over a socket")
	p.hosts[0].eject()
	for n := range 59 { // 14 of the first tenant, 4 of the second, and two reserved ones; 40 wait
		r := &Request{Tenant: id.Tenant{byte(min(n/14, 1))}, At: time.Now()}
		if isIn, err := p.enter(r); isIn != (n < 18) || (err != nil) != (n == 58) {
			t.Errorf("request %d: %t, %v", n+1, isIn, err)
		}
	}
	waits := &Request{} // the reserved slots are for two tenants before its own
	for tenant := range byte(3) {
		waits = &Request{Tenant: id.Tenant{2, tenant}, At: time.Now()}
		_, _ = p.enter(waits)
	}
	for n := range 1000 {
		p.of(id.Tenant{3, byte(n), byte(n >> 8)})
	}
	must.Equal(t, len(p.holdings.Entries) < 200, true, "whether tenants without requests are forgotten")
	must.Equal(t, p.holdings.Entries[id.Tenant{}] != nil && p.holdings.Entries[waits.Tenant] == waits.holding, true,
		"whether tenants with requests are known")
}

package quotas

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/id"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/testkit"
)

// step is one step of a history of faults: an event, requests, and a pause.
type step struct {
	event   string // of events
	gateway int    // index of the gateway that the event concerns
	count   int    // requests to that gateway, or registered gateways
	flood   int    // how many gateways, beginning with this index, get more requests than they can admit
	pause   time.Duration
}

var events = []string{"ask", "down", "up", "forget", "lose a reply", "restart", "kill", "leave", "register", "recover in vain"}

// Whatever happens to Redis and the gateways, no window admits more than twice the limit, under the conditions of decision 5:
//
//   - The number of registered gateways may be too large and may change, but is not larger than the limit.
//   - Redis forgets at most once in a window. No gateway restarts in the same window.
//   - A restarted gateway finds its file.
//
// A kill may add one request. Further faults in the same window may add a limit each: see limits.
func TestOutageBound(t *testing.T) {
	if seed, checks := flag.Lookup("rapid.seed"), flag.Lookup("rapid.checks"); !testkit.FullSize && seed.Value.String() == "0" {
		_, _ = seed.Value.Set("1"), checks.Value.Set("120") // in its full size, the test tries other histories each time
		defer func() { _, _ = seed.Value.Set("0"), checks.Value.Set("100") }()
	}
	dir, runs, worst, overlapped := t.TempDir(), 0, 0.0, false
	rapid.Check(t, func(rt *rapid.T) {
		gateways := rapid.IntRange(1, 4).Draw(rt, "gateways")
		limit := gateways + rapid.SampledFrom([]int{0, 0, 1, 2, 5, 20}).Draw(rt, "more than gateways")
		history := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			return step{
				event: rapid.SampledFrom(events).Draw(rt, "event"), gateway: rapid.IntRange(0, gateways-1).Draw(rt, "gateway"),
				count: rapid.IntRange(1, 2*limit).Draw(rt, "count"), flood: rapid.IntRange(0, gateways).Draw(rt, "flood"),
				pause: rapid.SampledFrom([]time.Duration{0, 0, 100 * time.Millisecond, 1200 * time.Millisecond, 20 * time.Second}).Draw(rt, "pause"),
			}
		}), 1, 40).Draw(rt, "history")
		files, fault := filepath.Join(dir, strconv.Itoa(runs)), ""
		synctest.Test(t, func(t *testing.T) {
			m := newModel(t, gateways, int64(limit), files)
			for _, one := range history {
				if fault = m.do(one); fault != "" {
					return
				}
			}
			worst, overlapped = max(worst, m.worst), overlapped || m.overlapped.Load()
		})
		if runs++; fault != "" {
			rt.Fatal(fault)
		}
	})
	t.Logf("figure: %d histories of faults: at most %.2f limits admitted in a window", runs, worst)
	if !overlapped {
		t.Errorf("never were %d batches under way", boundTenants)
	}
}

// model is a site that counts what it admits.
type model struct {
	*site
	limit      int64
	loseReply  atomic.Bool
	startedAt  time.Time                 // when a gateway was last started again
	forgotAt   time.Time                 // when Redis last lost its counts
	forgotDown bool                      // Redis lost its counts during an outage
	missed     bool                      // a gateway did not notice that outage, because it asked nothing in it
	down       bool                      // Redis is down for all gateways
	outages    []time.Time               // when each outage ended, within the last window; an outage of one gateway after a lost reply counts too
	kills      []time.Time               // within the last window
	admitted   [boundTenants][]time.Time // in the last minute
	worst      float64
	underWay   atomic.Int64 // batches of requests, of all gateways
	overlapped atomic.Bool  // as many as there are tenants were under way
}

// boundTenants is how many tenants ask at the same time: their batches overlap.
const boundTenants = 3

// window is the longest time between two faults whose effects can add up: a minute, a slice, and a second, because an outage lasts
// up to 0.4 s longer at a gateway than at Redis.
const window = time.Minute + 250*time.Millisecond + time.Second

// limits is how many limits a window may admit: two, one more if Redis lost its counts and there was another outage, one more if it
// lost them in an outage that a gateway did not notice, and one more for each further outage after which a gateway was restarted.
func (m *model) limits() int64 {
	outages, limits := len(m.outages), 2
	if m.down {
		outages++
	}
	if time.Since(m.forgotAt) <= window && outages > 0 && !(outages == 1 && m.forgotDown) {
		limits++
	}
	if time.Since(m.forgotAt) <= window && m.missed {
		limits++
	}
	if time.Since(m.startedAt) <= window && outages > 1 {
		limits += outages - 1
	}
	return int64(limits)
}

func newModel(t *testing.T, gateways int, limit int64, files string) *model {
	m := &model{site: newSiteWithFiles(t, gateways, files), limit: limit}
	m.lanes = boundTenants
	m.decide = func(ctx context.Context, demands []store.Demand, results []store.Result) error {
		if demands[0].Want > 0 && demands[0].Tenant != (id.Tenant{}) { // requests; not a probe, and not unreported ones alone
			if m.underWay.Add(1) == boundTenants {
				m.overlapped.Store(true)
			}
			defer m.underWay.Add(-1)
		}
		time.Sleep(time.Duration(demands[0].Tenant[9]%boundTenants) * time.Millisecond) // so batches overtake each other
		err := m.server.Decide(ctx, demands, results)
		if err == nil && m.loseReply.CompareAndSwap(true, false) {
			return errTimeout
		}
		return err
	}
	for i := range m.gateways {
		m.restart(i)
	}
	return m
}

// do takes one step. It returns what is wrong after the step, or "".
func (m *model) do(s step) (fault string) {
	switch now := time.Now(); s.event {
	case "ask":
		m.ask(m.gateways[s.gateway], s.count)
	case "down":
		m.server.fail(errRefused)
		m.down = true
	case "up":
		m.server.fail(nil)
		if m.down {
			m.down, m.outages = false, append(m.outages, now)
			m.missed = m.forgotDown && slices.ContainsFunc(m.gateways, func(g *Shared) bool { return g.Mode() != modeOutage })
		}
	case "recover in vain":
		if m.down {
			m.recoverInVain()
			m.outages = append(m.outages, now) // Redis has charged what was unreported, as after an outage
		}
	case "forget":
		if now.Sub(m.forgotAt) > window && now.Sub(m.startedAt) > window {
			m.forgotAt, m.forgotDown, m.missed = now, m.down, false
			m.lose()
		}
	case "lose a reply":
		m.loseReply.Store(true)
		m.ask(m.gateways[s.gateway], 1)
		m.loseReply.Store(false)
		m.outages = append(m.outages, now)
	case "restart", "kill", "leave":
		if now.Sub(m.forgotAt) <= window {
			break
		}
		m.startedAt = now
		switch s.event {
		case "restart":
			m.end(s.gateway)
		case "leave":
			m.leave(s.gateway)
		case "kill":
			m.kills = append(m.kills, now)
			m.kill(s.gateway)
		}
		m.start(s.gateway)
	case "register":
		m.registered.Store(min(max(int64(s.count), int64(len(m.gateways))), m.limit))
	}
	for i := range s.flood {
		m.ask(m.gateways[(s.gateway+i)%len(m.gateways)], int(m.limit)+1)
	}
	m.kills, m.outages = since(m.kills, window), since(m.outages, window)
	limits := m.limits()
	for i := range m.admitted {
		m.admitted[i] = since(m.admitted[i], time.Minute)
		n, kills := int64(len(m.admitted[i])), int64(len(m.kills))
		if limits == 2 {
			m.worst = max(m.worst, float64(n-kills)/float64(m.limit))
		}
		if n > limits*m.limit+kills {
			return fmt.Sprintf("tenant %d: %d admitted in a minute with a limit of %d, %d gateways and %d kills; at most %d limits wanted",
				i, n, m.limit, len(m.gateways), kills, limits)
		}
	}
	time.Sleep(s.pause)
	return ""
}

// ask sends requests of each tenant, all at the same time.
func (m *model) ask(g *Shared, requests int) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range m.admitted {
		for range requests {
			all.Go(func() {
				v := mustTake(m.t, g, asking(i+1, m.limit))
				mu.Lock()
				defer mu.Unlock()
				if v.Granted == 1 {
					m.admitted[i] = append(m.admitted[i], time.Now())
				}
			})
		}
	}
	all.Wait()
}

// A gateway that asks nothing during an outage does not notice it. If Redis loses its counts in that outage, this gateway asks the
// empty Redis at once, while the others still report what they know. That adds one limit.
func TestLossInAnUnnoticedOutage(t *testing.T) {
	files := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t, 3, 3, files)
		for _, one := range []step{{event: "ask", count: 2}, {event: "down"}, {event: "forget", flood: 2}, {event: "up", flood: 3}} {
			if fault := m.do(one); fault != "" {
				t.Error(fault)
			}
		}
		if !m.missed {
			t.Error("all gateways have noticed the outage")
		}
		t.Logf("figure: Redis lost its counts in an outage that one of three gateways did not notice: %d admitted in a window of 3", len(m.admitted[0]))
	})
}

// since drops the instants that are at least that old.
func since(all []time.Time, age time.Duration) []time.Time {
	for len(all) > 0 && time.Since(all[0]) >= age {
		all = all[1:]
	}
	return all
}

// A month, too, admits at most twice its limit: three gateways are flooded before and after midnight while Redis is away, restart and leave.
func TestOutageInAMonth(t *testing.T) {
	files := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		const limit, own = 60, 24
		s := newSiteWithFiles(t, 3, files)
		a, capped := asking(1, 0), asking(2, 0)
		a.Limits, a.MonthStarts, capped.Limits = plan.Limits{Month: limit}, 3, plan.Limits{Month: limit} // it is the first of January
		capped.Key, capped.Cap = id.Key{1}, plan.Limits{Day: own}
		admitted, inDay := map[id.Tenant]int{}, 0
		flood := func() {
			inDay = 0
			for _, g := range s.gateways {
				admitted[a.Tenant] += takeAll(t, g, a, limit)
				n := takeAll(t, g, capped, limit)
				admitted[capped.Tenant] += n
				inDay += n
			}
		}
		flood()
		if admitted[a.Tenant] != limit || inDay != own {
			t.Errorf("%d admitted of %d, and %d of %d by a key", admitted[a.Tenant], limit, inDay, own)
		}
		time.Sleep(24*time.Hour - 10*time.Second)
		s.server.fail(errRefused)
		for _, fault := range []func(){func() {}, func() { time.Sleep(20 * time.Second) }, func() { s.restart(0) }, func() { s.leave(1); s.start(1) }} {
			fault()
			if flood(); inDay > 2*own {
				t.Errorf("%d admitted by a key with a limit of %d", inDay, own)
			}
		}
		s.server.fail(nil)
		time.Sleep(5 * time.Second)
		flood()
		for tenant, n := range admitted {
			if n > 2*limit {
				t.Errorf("%s: %d admitted in a month with a limit of %d", tenant, n, limit)
			}
		}
		for g := range s.gateways {
			if v := s.gateways[g].Known(a).Usages[quota.Month]; v.Used < limit || v.Remaining != 0 {
				t.Errorf("gateway %d knows %+v", g, v)
			}
		}
		t.Logf("figure: a month of %d, and a midnight without Redis: %d admitted", limit, admitted[a.Tenant])
		time.Sleep(24 * time.Hour)
		if v := mustTake(t, s.gateways[0], a); v.Granted != 1 || v.Usages[quota.Month].Used != 1 {
			t.Errorf("in the next month: %+v", v)
		}
	})
}

package quotas

import (
	"context"
	"errors"
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
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// step is one step of a history of faults: an event, requests, and a pause.
type step struct {
	event   string // of events
	gateway int    // index of the gateway that the event concerns
	count   int    // requests to that gateway, or registered gateways
	flood   int    // how many gateways, beginning with this index, get more requests than they can admit
	pause   time.Duration
}

var pauses = []time.Duration{0, 0, 100 * time.Millisecond, 1200 * time.Millisecond, 20 * time.Second}

var events = []string{
	"ask", "down", "up", "forget", "lose a reply", "restart", "kill", "leave", "register", "recover in vain",
}

// Whatever happens to Redis and the gateways, no window, day or month admits more than twice the
// limit, under the conditions of decision 5:
//
//   - The number of registered gateways may be too large and may change, but is not larger than the
//     limit.
//   - Redis forgets at most once in a window. No gateway restarts in the same window.
//   - A restarted gateway finds its file.
//
// A kill may add one request. Further faults in the same window may add a limit each: see limits.
// Histories are around a midnight, which may begin a month.
func TestOutageBound(t *testing.T) {
	seed, checks := flag.Lookup("rapid.seed").Value, flag.Lookup("rapid.checks").Value
	if !testkit.FullSize && seed.String() == "0" { // otherwise, the test tries other histories each time
		must.Do(t, errors.Join(seed.Set("1"), checks.Set("120")))
		defer func() { must.Do(t, errors.Join(seed.Set("0"), checks.Set("100"))) }()
	}
	dir, runs, worst := t.TempDir(), 0, [boundTenants]float64{}
	rapid.Check(t, func(rt *rapid.T) {
		gateways := rapid.IntRange(1, 4).Draw(rt, "gateways")
		limit := gateways + rapid.SampledFrom([]int{0, 0, 1, 2, 5, 20}).Draw(rt, "more than gateways")
		history := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			return step{
				event:   rapid.SampledFrom(events).Draw(rt, "event"),
				gateway: rapid.IntRange(0, gateways-1).Draw(rt, "gateway"),
				count:   rapid.IntRange(1, 2*limit).Draw(rt, "count"),
				flood:   rapid.IntRange(0, gateways).Draw(rt, "flood"),
				pause:   rapid.SampledFrom(pauses).Draw(rt, "pause"),
			}
		}), 1, 40).Draw(rt, "history")
		untilMidnight := rapid.SampledFrom([]time.Duration{time.Second, time.Minute, 12 * time.Hour}).Draw(rt,
			"until midnight")
		monthStarts := rapid.Uint8Range(1, 2).Draw(rt, "the month starts") // it is the first of January
		files, fault := filepath.Join(dir, strconv.Itoa(runs)), ""
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(24*time.Hour - untilMidnight)
			m := newModel(t, gateways, int64(limit), files)
			m.monthStarts = monthStarts
			for _, one := range history {
				fault = m.do(one)
				if fault != "" {
					return
				}
			}
			for i := range worst {
				worst[i] = max(worst[i], m.worst[i])
			}
		})
		if runs++; fault != "" {
			rt.Fatal(fault)
		}
	})
	t.Logf("figure: %d histories of faults: at most %.2f limits admitted in a minute, a month, and a day of a key",
		runs, worst)
}

// model is a site that counts what it admits.
type model struct {
	*site
	limit       int64
	monthStarts uint8
	loseReply   atomic.Bool
	startedAt   time.Time // when a gateway was last started again
	forgotAt    time.Time // when Redis last lost its counts
	losses      []time.Time
	forgotDown  bool        // Redis lost its counts during an outage
	missed      bool        // a gateway did not notice that outage, because it asked nothing in it
	down        bool        // Redis is down for all gateways
	outages     []time.Time // when each outage ended; an outage of one gateway after a lost reply counts too
	kills       []time.Time
	admitted    [boundTenants][]time.Time // units
	worst       [boundTenants]float64
}

// boundTenants is how many tenants ask at the same time. The first one has a limit of the minute,
// the second one of the month, with requests that cost one unit or two, and the third one a key
// with a limit of the day.
const boundTenants = 3

func (m *model) asking(tenant, n int) Request {
	r := asking(tenant+1, m.limit)
	r.Cost = 1
	switch tenant {
	case 1:
		r.Limits, r.MonthStarts, r.Cost = plan.Limits{Month: m.limit}, m.monthStarts, int64(1+n%2)
	case 2:
		r.Limits, r.Key, r.Cap = plan.Limits{Day: 100 * m.limit}, id.Key{1}, plan.Limits{Day: m.limit}
	}
	return r
}

// began is when the minute, month or day of a tenant's limit began.
func (m *model) began(tenant int) time.Time {
	midnight := time.Now().UTC().Truncate(24 * time.Hour)
	switch {
	case tenant == 0:
		return time.Now().Add(-time.Minute)
	case tenant == 1 && m.monthStarts == 1:
		return time.Date(midnight.Year(), midnight.Month(), 1, 0, 0, 0, 0, time.UTC)
	}
	return midnight
}

// lasts is how much longer than a window the effects of a fault may last: a slice, and a second,
// because an outage lasts up to 0.3 s longer at a gateway than at Redis.
const lasts = 250*time.Millisecond + time.Second

// window is the longest time between two faults whose effects on a minute can add up.
const window = time.Minute + lasts

// limits is how many limits may be admitted since an instant: two, one more if Redis lost its
// counts and there was another outage, one more if it lost them in an outage that a gateway did not
// notice, and one more for each further outage after which a gateway was restarted. It is 0 if
// there is no bound: Redis lost its counts twice, or once when a gateway was restarted too.
func (m *model) limits(began time.Time) int64 {
	began = began.Add(-lasts)
	outages, limits := len(since(m.outages, began)), 2
	hasForgotten, hasStarted := !m.forgotAt.Before(began), !m.startedAt.Before(began)
	if len(since(m.losses, began)) > 1 || hasForgotten && hasStarted {
		return 0
	}
	if m.down {
		outages++
	}
	if hasForgotten && outages > 0 && !(outages == 1 && m.forgotDown) {
		limits++
	}
	if hasForgotten && m.missed {
		limits++
	}
	if hasStarted && outages > 1 {
		limits += outages - 1
	}
	return int64(limits)
}

func newModel(t *testing.T, gateways int, limit int64, files string) *model {
	m := &model{site: newSiteWithFiles(t, gateways, files), limit: limit}
	m.decide = func(ctx context.Context, demands []store.Demand, results []store.Result) error {
		time.Sleep(time.Duration(demands[0].Tenant[9]%boundTenants) * time.Millisecond)
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
			m.missed = m.forgotDown &&
				slices.ContainsFunc(m.gateways, func(g *Shared) bool { return g.Mode() != modeOutage })
		}
	case "recover in vain":
		if m.down {
			m.recoverInVain()
			m.outages = append(m.outages, now) // Redis has charged what was unreported, as after an outage
		}
	case "forget":
		if now.Sub(m.forgotAt) > window && now.Sub(m.startedAt) > window {
			m.forgotAt, m.forgotDown, m.missed = now, m.down, false
			m.losses = append(m.losses, now)
			m.server.lose()
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
	for i := range m.admitted {
		began := m.began(i)
		m.admitted[i] = since(m.admitted[i], began)
		n, kills, limits := int64(len(m.admitted[i])), int64(len(since(m.kills, began.Add(-lasts)))), m.limits(began)
		if i == 1 {
			kills *= 2
		}
		if limits == 2 {
			m.worst[i] = max(m.worst[i], float64(n-kills)/float64(m.limit))
		}
		if limits > 0 && n > limits*m.limit+kills {
			return fmt.Sprintf(
				"tenant %d: %d units admitted with a limit of %d, %d gateways and %d kills; at most %d limits wanted",
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
		for n := range requests {
			all.Go(func() {
				r := m.asking(i, n)
				v := mustTake(m.t, g, r)
				mu.Lock()
				defer mu.Unlock()
				for range v.Granted * r.Cost {
					m.admitted[i] = append(m.admitted[i], time.Now())
				}
			})
		}
	}
	all.Wait()
}

// A gateway that asks nothing during an outage does not notice it. If Redis loses its counts in
// that outage, this gateway asks the empty Redis at once, while the others still report what they
// know. That adds one limit. A gateway that leaves and comes back knows the use of its minute, also
// after midnight. Use that was only reported before midnight counts in the month.
func TestRareHistories(t *testing.T) {
	f := func(name string, tenant int, isMissed bool, most int, history ...step) {
		files := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(24*time.Hour - time.Second)
			m := newModel(t, 3, 3, files)
			m.monthStarts = 1
			for _, one := range history {
				if fault := m.do(one); fault != "" {
					t.Errorf("%s: %s", name, fault)
				}
			}
			n := len(m.admitted[tenant])
			if m.missed != isMissed || n != most {
				t.Errorf("%s: a gateway missed the outage: %t, %d admitted, want %d", name, m.missed, n, most)
			}
			t.Logf("figure: %s: %d admitted of a limit of 3, by 3 gateways", name, n)
		})
	}
	f("Redis lost its counts in an outage that a gateway did not notice", 0, true, 7,
		step{event: "ask", count: 2}, step{event: "down"}, step{event: "forget", flood: 2}, step{event: "up", flood: 3})
	f("a gateway left before midnight and came back after it", 0, false, 6, step{event: "ask", flood: 1},
		step{event: "down", flood: 2, pause: 1200 * time.Millisecond}, step{event: "leave", gateway: 1},
		step{event: "ask", flood: 3})
	f("a gateway left, came back, and was restarted on the next day", 1, false, 3,
		step{event: "down", flood: 3, pause: 1200 * time.Millisecond},
		step{event: "leave", gateway: 1, pause: 2 * time.Minute}, step{event: "restart", gateway: 1, flood: 1})
	f("a month's use was only reported before midnight", 1, false, 3, step{event: "down", flood: 3},
		step{event: "recover in vain"}, step{event: "down", pause: 20 * time.Second}, step{event: "up", flood: 3},
		step{event: "down", flood: 3})
}

// since drops the instants before that one.
func since(all []time.Time, began time.Time) []time.Time {
	for len(all) > 0 && all[0].Before(began) {
		all = all[1:]
	}
	return all
}

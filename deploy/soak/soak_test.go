//go:build soak

package soak

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

const (
	requestsPerSecond = 1500
	clients           = 48 // each waits for its response before it sends the next request

	restTime  = 8 * time.Second // between two faults
	faultTime = 2 * time.Second // how long a server is away
	looks     = 2 * time.Second // between two samples
	warmUp    = 5               // 1/warmUp of the run is not measured: pools, caches and the heap fill
)

// watched are the metrics whose growth means a leak. Growth of at most resolution over a whole run is not a leak.
var watched = []struct {
	name, metric string
	unit         float64
	resolution   float64 // in units
}{
	{"resident memory, MB", "process_resident_memory_bytes", 1 << 20, 2},
	{"goroutines", "go_goroutines", 1, 3},
	{"descriptors", "process_open_fds", 1, 3},
}

// run is one soak.
type run struct {
	*fleet.Fleet
	t               *testing.T
	postgres, redis *testkit.Server

	began time.Time
	stop  chan struct{}
	work  sync.WaitGroup

	mu     sync.Mutex
	phase  int  // changes whenever a fault begins or is over
	faulty bool // during a fault, and as long as it has effects
	counts map[answer]int
	tokens []string // those that the load uses

	series map[string]*series // by program and metric
}

// answer is a kind of response: its status, its code, and whether it came during a fault.
type answer struct {
	faulty bool
	status int
	code   string
}

// TestSoak runs three gateways and a pet service for SOAK (30 minutes), at 1,500 requests a second. Keys are created
// and revoked all the time. In turn, Redis hangs or is killed, Postgres is stopped or killed, one gateway is killed and another
// one is restarted. The first gateway and the pet service run the whole time, and must not grow.
func TestSoak(t *testing.T) {
	lasting := 30 * time.Minute
	if given := os.Getenv("SOAK"); given != "" {
		var err error
		if lasting, err = time.ParseDuration(given); err != nil {
			t.Fatalf("SOAK: %v", err)
		}
	}
	r := &run{
		t: t, postgres: testkit.StartPostgres(t), redis: testkit.StartRedis(t),
		stop: make(chan struct{}), counts: map[answer]int{}, series: map[string]*series{},
	}
	r.Fleet = fleet.Start(t, fleet.Spec{
		Database: r.postgres.URL, Redis: r.redis.URL, Gateways: 3,
		GatewayEnv: []string{"GATEWAY_ACCESS_LOG=false", "GATEWAY_LOG_LEVEL=error", "GATEWAY_DRAIN_DELAY=0s"},
		PetsEnv:    []string{"PETSVC_ACCESS_LOG=false", "PETSVC_LOG_LEVEL=error"},
	})
	for n := range 8 {
		r.tokens = append(r.tokens, r.NewTenant(fmt.Sprint("roomy-", n), fleet.Unlimited...).Token)
	}
	r.tokens = append(r.tokens, r.NewTenant("tight", "--minute", "500", "--day", "1000000").Token)

	r.began = time.Now()
	for n := range clients {
		r.work.Go(func() { r.load(n) })
	}
	r.work.Go(r.churn)
	r.work.Go(func() { r.look(lasting / warmUp) })
	for n := 0; time.Since(r.began) < lasting; n++ {
		<-time.After(restTime)
		r.fault(n)
	}
	close(r.stop)
	r.work.Wait()
	r.report()
}

// load is one client, which sends requests to its gateway at a steady rate.
func (r *run) load(n int) {
	c := r.Gateways[n%len(r.Gateways)].Client()
	defer c.Close()
	pace := time.NewTicker(clients * time.Second / requestsPerSecond)
	defer pace.Stop()
	for i := 0; ; i++ {
		select {
		case <-r.stop:
			return
		case <-pace.C:
		}
		r.mu.Lock()
		token, phase, faulty := r.tokens[(n+i)%len(r.tokens)], r.phase, r.faulty
		r.mu.Unlock()
		request := fleet.GetPets(token)
		if i%25 == 0 {
			request = fleet.PostPet(token, "soaked")
		}
		reply, _ := c.Do(request) // a failed exchange is a reply with status 0
		code := reply.Code()
		r.mu.Lock()
		r.counts[answer{faulty || phase != r.phase, reply.Status, code}]++
		r.mu.Unlock()
	}
}

// churn creates keys, lets the load use each for a while, and revokes it.
func (r *run) churn() {
	const kept = 10
	r.MustKeyadmin(append([]string{"tenant", "create", "churn"}, fleet.Unlimited...)...)
	var keys []fleet.Key
	created, revoked, unconfirmed := 0, 0, 0
	for {
		select {
		case <-r.stop:
			r.t.Logf("figure: %d keys created and %d revoked; %d commands not done or not confirmed by all, during faults",
				created, revoked, unconfirmed)
			return
		case <-time.After(time.Second):
		}
		if key, confirmed := r.TryKey("churn"); confirmed {
			created++
			keys = append(keys, key)
			r.mu.Lock()
			r.tokens = append(r.tokens, key.Token)
			r.mu.Unlock()
		} else {
			unconfirmed++
		}
		if len(keys) < kept {
			continue
		}
		old := keys[0]
		r.mu.Lock()
		r.tokens = slices.DeleteFunc(r.tokens, func(token string) bool { return token == old.Token })
		r.mu.Unlock()
		if r.Keyadmin("key", "revoke", old.ID, "--yes").Code != 0 {
			unconfirmed++ // again in the next round
			continue
		}
		revoked++
		keys = keys[1:]
		for _, g := range r.Gateways {
			if reply := g.Ask(old.Token); reply.Status == 200 {
				r.t.Errorf("%s accepts %s after its revocation was confirmed", g.ID, old.ID)
			}
		}
	}
}

// fault breaks something, repairs it, and waits until everything works again.
func (r *run) fault(n int) {
	r.enter(true)
	victim := r.Gateways[1+n%(len(r.Gateways)-1)]
	away := func() { <-time.After(faultTime) }
	r.t.Logf("%v: %s", time.Since(r.began).Round(time.Second), []string{
		"Redis hangs", "a gateway is killed", "Postgres is stopped", "Redis is killed", "a gateway is restarted", "Postgres is killed",
	}[n%6])
	switch n % 6 {
	case 0:
		r.redis.Pause(r.t)
		away()
		r.redis.Resume(r.t)
	case 1:
		victim.Kill()
		victim.Start(r.t)
	case 2:
		r.postgres.Stop(r.t)
		away()
		r.postgres.Start(r.t)
	case 3:
		r.redis.Kill(r.t)
		away()
		r.redis.Start(r.t)
	case 4:
		if code := victim.Stop(); code != 0 {
			r.t.Errorf("%s: exit code %d after SIGTERM", victim.ID, code)
		}
		victim.Start(r.t)
	case 5:
		r.postgres.Kill(r.t)
		away()
		r.postgres.Start(r.t)
	}
	for _, p := range append(slices.Clone(r.Gateways), r.Pets) {
		p.AwaitReady(r.t)
	}
	// All earlier requests are answered now: no timeout of the product is longer, except those for slow clients.
	<-time.After(5 * time.Second)
	r.enter(false)
}

func (r *run) enter(faulty bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phase++
	r.faulty = faulty
}

// look takes samples repeatedly, between faults.
func (r *run) look(warm time.Duration) {
	tick := time.NewTicker(looks)
	defer tick.Stop()
	for {
		select {
		case <-r.stop:
			return
		case <-tick.C:
		}
		r.mu.Lock()
		faulty := r.faulty
		r.mu.Unlock()
		at := time.Since(r.began)
		if faulty || at < warm {
			continue
		}
		for name, p := range map[string]*fleet.Program{"gateway": r.Gateways[0], "petsvc": r.Pets} {
			metrics := p.Metrics()
			for _, w := range watched {
				value, found := metrics[w.metric]
				if !found {
					r.t.Errorf("%s has no metric %s", name, w.metric)
					continue
				}
				key := name + ", " + w.name
				if r.series[key] == nil {
					r.series[key] = &series{}
				}
				r.series[key].add(at, value/w.unit)
			}
		}
	}
}

// report prints what was measured, and judges it.
func (r *run) report() {
	lasted := time.Since(r.began)
	total := map[bool]int{}
	for one, n := range r.counts {
		total[one.faulty] += n
		switch {
		case one.status == 500:
			r.t.Errorf("%d requests were answered 500 %s", n, one.code)
		case !one.faulty && one.status != 200 && one.status != 201 && one.status != 429 && one.status != 401:
			r.t.Errorf("%d requests between faults were answered %d %s", n, one.status, one.code)
		}
	}
	kinds := slices.SortedFunc(maps.Keys(r.counts), func(a, b answer) int { return r.counts[b] - r.counts[a] })
	for _, one := range kinds {
		r.t.Logf("during faults %-5t status %3d %-24s %d", one.faulty, one.status, one.code, r.counts[one])
	}
	r.t.Logf("figure: soaked for %v: %d requests, %.0f a second, %d of them during faults", lasted.Round(time.Second),
		total[true]+total[false], float64(total[true]+total[false])/lasted.Seconds(), total[true])
	for _, key := range slices.Sorted(maps.Keys(r.series)) {
		for _, w := range watched {
			if key != "gateway, "+w.name && key != "petsvc, "+w.name {
				continue
			}
			s, ok := r.series[key].slope(w.resolution)
			if !ok {
				r.t.Errorf("%s: %d samples are too few: let it run longer", key, len(r.series[key].values))
				continue
			}
			r.t.Logf("figure: %s: %.1f, slope %+.2f an hour, noise %.2f", key, s.level, s.perHour, s.noise)
			if s.grows() {
				r.t.Errorf("%s grows by %.2f an hour, more than the noise of %.2f", key, s.perHour, s.noise)
			}
		}
	}
}

//go:build e2e

package redis

import (
	"context"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/keystore/usage"
	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// rig is three gateway processes on one Redis, with a tape between them and Redis, and tenants with
// many different limits. Without Redis, the gateways refuse: so what they admit is what Redis has
// granted.
type rig struct {
	*fleet.Fleet
	tape    *tape
	tenants []*metered
	client  http.Client
	seen    atomic.Int64 // units that the upstreams saw: the one of getPet counts its cost
}

// metered is a tenant, its limits, and the answers that its clients got. One of its two keys may
// have limits of its own.
type metered struct {
	key, keyOfCap   string // of the records
	tokens          [2]string
	limits, cap     plan.Limits
	tried, ok, lost atomic.Int64 // requests
	refused, unsure atomic.Int64 // requests with 429, and with 503 because Redis did not decide
	used, usedOfCap atomic.Int64 // units
}

// dear is the cost of getPet.
const dear = 5

// two is a document with an upstream for each operation.
const two = `openapi: 3.1.0
info: {title: Two, version: '1'}
paths:
  /v1/pets: {get: {x-scope: 'pets:read', x-upstream: lists}}
  /v1/pets/{petId}: {get: {x-scope: 'pets:read', x-cost: 5}}
`

func newRig(t *testing.T, limits []plan.Limits) *rig {
	t.Helper()
	r := &rig{tape: newTape(t, testkit.StartRedis(t).Addr, quota.Product, new(atomic.Int64))}
	upstream := func(units int64) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			r.seen.Add(units)
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "[]")
		}))
		t.Cleanup(server.Close)
		return server.URL
	}
	document := filepath.Join(t.TempDir(), "two.yaml")
	must.Do(t, os.WriteFile(document, []byte(two), 0o600))
	r.Fleet = fleet.Start(t, fleet.Spec{
		Database: testkit.SQLite(t), Redis: "redis://" + r.tape.addr, Gateways: 3,
		Upstreams: "lists=" + upstream(1) + "," + upstream(dear),
		GatewayEnv: []string{
			"GATEWAY_API=" + document, "GATEWAY_BAN_AFTER=0", "GATEWAY_ACCESS_LOG=false",
			"GATEWAY_LOG_LEVEL=warn", "GATEWAY_LIMITS_ON_OUTAGE=refuse",
		},
	})
	r.client.Transport = &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(r.client.CloseIdleConnections)
	db := must.Get[*database.DB](t)(database.Open(r.Database))
	defer db.Close()
	store := keystore.New(db, nil, nil, "test")
	for i, one := range limits {
		tenant, _, err := store.CreateTenant(always, keystore.TenantSpec{
			Name: "t" + strconv.Itoa(i), Plan: "enterprise", Override: one, MonthStarts: uint8(1 + i%28),
		})
		must.Do(t, err)
		m := &metered{key: "petgate:{" + tenant.ID.String() + "}", limits: one}
		if i%4 == 3 {
			m.cap = plan.Limits{Minute: 1 + one.Minute/3, Day: 1 + one.Minute/2}
		}
		for n, own := range []plan.Limits{{}, m.cap} {
			key, token, _, err := store.CreateKey(always,
				keystore.KeySpec{Tenant: tenant.ID, Name: strconv.Itoa(n), Limits: own})
			must.Do(t, err)
			name := usage.QuotaName{Tenant: tenant.ID, Key: key.ID}
			m.tokens[n], m.keyOfCap = token, string(name.AppendTo([]byte(m.key)))
		}
		r.tenants = append(r.tenants, m)
	}
	r.MustKeyadmin("tenant", "create", "last") // confirmed when all gateways know all that came before
	return r
}

// ask sends one request of a tenant and notes its answer. Its keys take turns, and each third
// request is dear.
func (r *rig) ask(t *testing.T, m *metered, gateway *fleet.Program) {
	n := m.tried.Add(1)
	path, cost := "/v1/pets", int64(1)
	if n%3 == 0 {
		path, cost = "/v1/pets/1", dear
	}
	request, err := http.NewRequestWithContext(always, http.MethodGet, gateway.URL+path, nil)
	if err != nil {
		t.Error(err)
		return
	}
	request.Header.Set("Authorization", "Bearer "+m.tokens[n%2])
	response, err := r.client.Do(request)
	if err != nil {
		m.lost.Add(1)
		return
	}
	_, _ = io.Copy(io.Discard, response.Body)
	response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
		m.ok.Add(1)
		m.used.Add(cost)
		m.usedOfCap.Add(cost * (n % 2))
	case http.StatusTooManyRequests:
		m.refused.Add(1)
	case http.StatusServiceUnavailable:
		m.unsure.Add(1)
	default:
		t.Errorf("%s: status %d", m.key, response.StatusCode)
	}
}

// drive sends this number of requests, spread evenly over the given time, or fewer if ctx ends
// before. It draws each request's gateway at random, and its tenant at random too: a tenant with a
// higher limit gets more requests.
func (r *rig) drive(ctx context.Context, t *testing.T, requests int, lasting time.Duration) {
	t.Helper()
	var drawn []*metered
	for _, m := range r.tenants {
		for range 2 + m.limits.Minute {
			drawn = append(drawn, m)
		}
	}
	const workers = 24
	var all sync.WaitGroup
	began := time.Now()
	var next atomic.Int64
	for w := range workers {
		random := rand.New(rand.NewPCG(uint64(w), 7))
		all.Go(func() {
			for n := next.Add(1); n <= int64(requests) && ctx.Err() == nil; n = next.Add(1) {
				<-time.After(time.Until(began.Add(lasting * time.Duration(n) / time.Duration(requests))))
				r.ask(t, drawn[random.IntN(len(drawn))], r.Gateways[random.IntN(len(r.Gateways))])
			}
		})
	}
	all.Wait()
}

// judge compares the clients' answers with the tape: what was admitted is what Redis charged and
// what the upstreams saw. If an answer was lost, of Redis or of a gateway, its request may be
// charged too. It returns how many tenants used a limit up.
func (r *rig) judge(t *testing.T, told replayed) (full int) {
	t.Helper()
	for _, m := range r.tenants {
		used, charged, astray := m.used.Load(), told.used[m.key], dear*(m.unsure.Load()+m.lost.Load())
		if used > charged || used < charged-astray {
			t.Errorf("%s: %d units admitted, Redis charged %d; at most %d may be of answers that were lost", m.key,
				used, charged, astray)
		}
		if used, charged := m.usedOfCap.Load(), told.used[m.keyOfCap]; m.cap.Day != 0 &&
			(used > charged || used < charged-astray) {
			t.Errorf(
				"%s: %d units admitted with a key of its own limits, Redis charged %d; at most %d may be of lost answers",
				m.key, used, charged, astray,
			)
		}
		// A third of the requests cost one unit and are of the key without limits of its own.
		if charged >= m.least() {
			full++
		} else if cheap := m.tried.Load()/3 - 1; cheap > m.least()+m.unsure.Load()+m.lost.Load() {
			t.Errorf("%s: %d of %d requests admitted, the limits are %+v", m.key, m.ok.Load(), m.tried.Load(), m.limits)
		}
	}
	all := r.total()
	if seen := r.seen.Load(); seen < all.used || all.lost == 0 && seen != all.used {
		t.Errorf("%d units admitted, %d seen upstream", all.used, seen)
	}
	if told.joined == 0 || all.unsure > all.tried/2 {
		t.Errorf("that shows too little: %d decisions on keys, %d of %d requests without Redis", told.joined,
			all.unsure, all.tried)
	}
	return full
}

// least is what the lowest limit admits.
func (m *metered) least() int64 {
	least := m.limits.Minute
	for _, limit := range m.limits.Set() {
		least = min(least, limit)
	}
	return least
}

// total adds up the answers of all tenants.
func (r *rig) total() (all struct{ tried, ok, refused, unsure, lost, used int64 }) {
	for _, m := range r.tenants {
		all.tried, all.ok, all.used = all.tried+m.tried.Load(), all.ok+m.ok.Load(), all.used+m.used.Load()
		all.refused += m.refused.Load()
		all.unsure += m.unsure.Load()
		all.lost += m.lost.Load()
	}
	return all
}

// mixed are limits of many sizes. The limits of the day or the month of some tenants are lower than
// what their minutes allow in it.
func mixed(tenants int, sizes ...int64) []plan.Limits {
	limits := make([]plan.Limits, tenants)
	for i := range limits {
		minute, more := sizes[i%len(sizes)], sizes[i%len(sizes)]*3/2+1
		limits[i] = []plan.Limits{
			{Minute: minute, Day: 100_000},
			{Minute: minute, Day: more},
			{Minute: minute, Month: more},
			{Minute: minute, Day: minute, Month: more},
		}[i/len(sizes)%4]
	}
	return limits
}

// Three gateway processes on one Redis admit exactly what the rule allows at the instants of
// Redis's clock, and their clients get exactly these answers: with limits of the minute, the day,
// the month and of keys, and two upstreams whose requests cost one unit and five.
func TestExactnessOfGateways(t *testing.T) {
	t.Parallel()
	const requests, lasting = 50_000, 80 * time.Second
	r := newRig(t, mixed(48, 1, 7, 60, 100, 300, 250))
	r.drive(t.Context(), t, requests, lasting)
	told := r.tape.replay(t, quota.Product)
	full, all := r.judge(t, told), r.total()
	passed := time.Duration(told.last-told.first) * time.Millisecond
	t.Logf(
		"figure: exactness, 3 gateway processes, one Redis: %d requests of %d tenants in %v, %d admitted (%d units) and %d refused, "+
			"%d decisions in Redis, %d of them also on a key's limits: each as the rule says; "+
			"%d tenants used a limit up; %d refused without Redis",
		all.tried,
		len(r.tenants),
		passed,
		all.ok,
		all.used,
		all.refused,
		told.calls,
		told.joined,
		full,
		all.unsure,
	)
	if all.tried != requests || all.lost != 0 || all.tried != all.ok+all.refused+all.unsure || all.tried < 3*all.ok {
		t.Errorf("%+v; want %d tried, a third admitted at most", all, requests)
	}
	if passed < quota.Product.Window()+10*time.Second {
		t.Errorf("no edge of a window in %v", passed)
	}
}

// Gateways that are stopped and continued at random, as on an overloaded machine, still let Redis
// decide, only later. Another one is killed and started again. No tenant gets one request too many.
// Each run is judged. If Redis itself gets no processor in a run, gateways refuse some requests; it
// does not happen in each run.
func TestExactnessOfStoppedGateways(t *testing.T) {
	const runs = 3
	for range runs {
		if stopGateways(t) == 0 {
			return
		}
	}
	t.Errorf("in each of %d runs, gateways that were stopped did not wait for Redis", runs)
}

// stopGateways is one run. It returns how many requests were refused because Redis did not decide.
func stopGateways(t *testing.T) (unsure int64) {
	t.Helper()
	const requests, lasting = 12_000, 20 * time.Second
	r := newRig(t, mixed(24, 1, 7, 60))
	ended := make(chan struct{})
	var stopping sync.WaitGroup
	var stops atomic.Int64
	for i, g := range r.Gateways[1:] {
		random := rand.New(rand.NewPCG(uint64(i), 11))
		stopping.Go(func() {
			for {
				select {
				case <-ended:
					return
				case <-time.After(time.Duration(random.IntN(500)) * time.Millisecond):
				}
				g.Signal(syscall.SIGSTOP)
				stops.Add(1)
				pause := math.Pow(200, random.Float64()) * 10 // from 10 ms to 2 s, short ones as often as long ones
				<-time.After(time.Duration(pause) * time.Millisecond)
				g.Signal(syscall.SIGCONT)
			}
		})
	}
	// There are fewer requests where stopped gateways take longer to catch up.
	driving, end := context.WithTimeout(t.Context(), lasting)
	defer end()
	var requesting sync.WaitGroup
	requesting.Go(func() { r.drive(driving, t, requests, lasting) })
	testkit.Eventually(t, time.Minute, "the run is under way", func() bool { return r.total().tried > requests/10 })
	r.Gateways[0].Kill()
	r.Gateways[0].Start(t)
	requesting.Wait()
	close(ended)
	stopping.Wait()
	r.judge(t, r.tape.replay(t, quota.Product))
	all := r.total()
	t.Logf(
		"figure: gateways stopped and continued at random, and one killed: %d requests, %d lost with it, %d stops of 10 to 2,000 ms, "+
			"%d admitted, %d refused: none too many, %d refused without Redis",
		all.tried,
		all.lost,
		stops.Load(),
		all.ok,
		all.refused,
		all.unsure,
	)
	if all.lost == 0 || stops.Load() < 30 || all.refused < all.ok {
		t.Errorf("%+v, %d stops", all, stops.Load())
	}
	return all.unsure
}

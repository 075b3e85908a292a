//go:build e2e

package redis

import (
	"bufio"
	"context"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// rig is three gateway processes on one Redis, with a tape between them and Redis, and tenants with many different limits.
type rig struct {
	*fleet.Fleet
	tape    *tape
	tenants []*metered
	client  http.Client
	answers *atomic.Int64 // of the upstream
}

// metered is a tenant, its limits, and the answers that its clients got.
type metered struct {
	key, token               string
	limits                   plan.Limits
	tried, ok, refused, lost atomic.Int64
}

func newRig(t *testing.T, limits []plan.Limits) *rig {
	t.Helper()
	p := newTape(t, testkit.StartRedis(t).Addr, quota.Product)
	r := startRig(t, limits, p.addr)
	r.tape = p
	return r
}

// startRig is newRig without a tape.
func startRig(t *testing.T, limits []plan.Limits, redis string) *rig {
	t.Helper()
	r := &rig{answers: new(atomic.Int64)}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		r.answers.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "[]")
	}))
	t.Cleanup(upstream.Close)
	r.Fleet = fleet.Start(t, fleet.Spec{
		Database: testkit.SQLite(t), Redis: "redis://" + redis, Gateways: 3, Upstreams: upstream.URL,
		GatewayEnv: []string{"GATEWAY_BAN_AFTER=0", "GATEWAY_ACCESS_LOG=false", "GATEWAY_LOG_LEVEL=warn"},
	})
	r.client.Transport = &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(r.client.CloseIdleConnections)
	db, err := database.Open(r.Database)
	must.Do(t, err)
	defer db.Close()
	store := keystore.New(db, nil, nil, "test")
	for i, one := range limits {
		tenant, _, err := store.CreateTenant(background, keystore.TenantSpec{
			Name: "t" + strconv.Itoa(i), Plan: "enterprise", Override: one,
		})
		must.Do(t, err)
		_, token, _, err := store.CreateKey(background, keystore.KeySpec{Tenant: tenant.ID, Name: "k"})
		must.Do(t, err)
		r.tenants = append(r.tenants, &metered{key: "petgate:{" + tenant.ID.String() + "}", token: token, limits: one})
	}
	r.MustKeyadmin("tenant", "create", "last") // confirmed when all gateways know all that came before
	return r
}

// ask sends one request of a tenant and notes its answer.
func (r *rig) ask(t *testing.T, m *metered, gateway *fleet.Program) {
	request, err := http.NewRequestWithContext(background, http.MethodGet, gateway.URL+"/v1/pets", nil)
	if err != nil {
		t.Error(err)
		return
	}
	request.Header.Set("Authorization", "Bearer "+m.token)
	m.tried.Add(1)
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
	case http.StatusTooManyRequests:
		m.refused.Add(1)
	default:
		t.Errorf("%s: status %d", m.key, response.StatusCode)
	}
}

// drive sends this number of requests, spread evenly over the given time, or fewer if ctx ends before. It draws each request's gateway at random, and its
// tenant at random too: a tenant with a higher limit gets more requests.
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

// decidedAlone is how many decisions these gateways made without Redis, or may have made. There are such decisions only if Redis or the
// tape gets no processor for 50 ms. The test then allows as many differences. It fails if most decisions were such ones.
func (r *rig) decidedAlone(t *testing.T, gateways ...*fleet.Program) (sum int64) {
	t.Helper()
	for _, g := range gateways {
		metrics := scrape(g)
		for _, name := range []string{
			`petgate_gateway_limits_decisions_total{outcome="local_admitted"}`, `petgate_gateway_limits_decisions_total{outcome="local_refused"}`,
			`petgate_gateway_limits_trips_total{result="failed"}`, `petgate_gateway_limits_trips_total{result="unsure"}`,
		} {
			sum += int64(metrics[name])
		}
	}
	if tried, _, _, _ := r.total(); sum > tried/2 {
		t.Errorf("%d of %d requests and calls were decided without Redis although Redis was well", sum, tried)
	}
	return sum
}

func differ(a, b int64) int64 { return max(a-b, b-a) }

// scrape reads a gateway's metrics; none if it does not answer.
func scrape(g *fleet.Program) map[string]float64 {
	metrics := map[string]float64{}
	response, err := http.Get(g.Admin + "/metrics")
	if err != nil {
		return metrics
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), " "); ok {
			metrics[name], _ = strconv.ParseFloat(value, 64) // comments have none
		}
	}
	return metrics
}

// total adds up the answers of all tenants.
func (r *rig) total() (tried, ok, refused, lost int64) {
	for _, m := range r.tenants {
		tried, ok = tried+m.tried.Load(), ok+m.ok.Load()
		refused, lost = refused+m.refused.Load(), lost+m.lost.Load()
	}
	return tried, ok, refused, lost
}

// mixed are limits of many sizes. The day limits of some tenants are lower than what their minute limits allow in a
// day.
func mixed(tenants int, sizes ...int64) []plan.Limits {
	limits := make([]plan.Limits, tenants)
	for i := range limits {
		minute := sizes[i%len(sizes)]
		limits[i] = plan.Limits{Minute: minute, Day: []int64{100_000, minute, minute + minute/2 + 1}[i%3]}
	}
	return limits
}

// Three gateway processes on one Redis admit exactly what the rule allows at the instants of Redis's clock, and their
// clients get exactly these answers.
func TestExactnessOfGateways(t *testing.T) {
	t.Parallel()
	const requests, lasting = 50_000, 80 * time.Second
	limits := mixed(48, 1, 7, 60, 100, 300, 250)
	r := newRig(t, limits)
	r.drive(t.Context(), t, requests, lasting)
	told := r.tape.replay(t, quota.Product)
	tried, ok, refused, lost := r.total()
	alone := r.decidedAlone(t, r.Gateways...)
	full := 0
	for _, m := range r.tenants {
		granted := told.granted[m.key]
		if differ(m.ok.Load(), granted) > alone {
			t.Errorf("%s: %d of %d answered 200, Redis granted %d; %d decided without it", m.key, m.ok.Load(), m.tried.Load(), granted, alone)
		}
		if least := min(m.limits.Minute, m.limits.Day); granted >= least {
			full++
		} else if granted < min(least, m.tried.Load())-alone {
			t.Errorf("%s: %d admitted of %d, the limits are %+v", m.key, granted, m.tried.Load(), m.limits)
		}
	}
	passed := time.Duration(told.last-told.first) * time.Millisecond
	t.Logf("figure: exactness, 3 gateway processes, one Redis: %d requests of %d tenants in %v, %d admitted and %d refused, "+
		"%d decisions in Redis: each as the rule and a list of admissions say; %d tenants used a limit up; %d decided without Redis",
		tried, len(r.tenants), passed, ok, refused, told.calls, full, alone)
	if tried != requests || lost != 0 || tried != ok+refused || ok != r.answers.Load() || tried < 3*ok {
		t.Errorf("%d tried, %d admitted, %d seen upstream, %d refused, %d lost; want %d tried, a third admitted at most",
			tried, ok, r.answers.Load(), refused, lost, requests)
	}
	if passed < quota.Product.Window()+10*time.Second {
		t.Errorf("no edge of a window in %v", passed)
	}
}

// A gateway that is killed under load and started again does not admit more than the limit.
func TestExactnessAfterKill(t *testing.T) {
	t.Parallel()
	const requests, lasting = 12_000, 15 * time.Second
	limits := mixed(24, 7, 60, 300)
	r := newRig(t, limits)
	var all sync.WaitGroup
	all.Go(func() { r.drive(t.Context(), t, requests, lasting) })
	testkit.Eventually(t, time.Minute, "the run is under way", func() bool {
		tried, _, _, _ := r.total()
		return tried > requests/10
	})
	victim := r.Gateways[2]
	alone := r.decidedAlone(t, victim)
	victim.Kill()
	victim.Start(t)
	all.Wait()
	told := r.tape.replay(t, quota.Product)
	tried, ok, _, lost := r.total()
	alone += r.decidedAlone(t, r.Gateways...)
	for _, m := range r.tenants {
		granted, want := told.granted[m.key], min(m.limits.Minute, m.limits.Day)
		if differ(granted, want) > alone || m.ok.Load() > granted+alone || m.ok.Load()+m.lost.Load() < granted-alone {
			t.Errorf("%s: Redis granted %d, want %d; %d answered 200, %d lost; %d decided without Redis",
				m.key, granted, want, m.ok.Load(), m.lost.Load(), alone)
		}
	}
	t.Logf("figure: exactness with a gateway killed and started again: %d requests, %d lost with it, %d admitted, no tenant "+
		"one too many or too few; %d decided without Redis", tried, lost, ok, alone)
	if lost == 0 {
		t.Error("nobody was with the gateway when it was killed")
	}
}

// Gateways that are stopped and continued at random, as on an overloaded machine, still let Redis decide, only later. No tenant
// gets one request too many. Each run is judged. If Redis itself gets no processor in a run, gateways decide some requests alone; it
// does not happen in each run.
func TestExactnessOfStoppedGateways(t *testing.T) {
	const runs = 3
	for range runs {
		if stopGateways(t) == 0 {
			return
		}
	}
	t.Errorf("in each of %d runs, gateways that were stopped decided without Redis", runs)
}

// stopGateways is one run. It returns how many decisions were made without Redis.
func stopGateways(t *testing.T) (alone int64) {
	t.Helper()
	const requests, lasting = 12_000, 20 * time.Second
	// The run is shorter than a window and uses each limit up.
	r := startRig(t, mixed(24, 1, 7, 60), testkit.StartRedis(t).Addr)
	ended := make(chan struct{})
	var stopping sync.WaitGroup
	var stops atomic.Int64
	began := time.Now()
	for i, g := range r.Gateways {
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
	driving, end := context.WithTimeout(t.Context(), lasting) // fewer requests where stopped gateways take longer to catch up
	defer end()
	r.drive(driving, t, requests, lasting)
	close(ended)
	stopping.Wait()
	if took := time.Since(began); took > 59*time.Second {
		t.Fatalf("the run took %v, longer than a window", took)
	}
	alone = r.decidedAlone(t, r.Gateways...)
	sum, over := int64(0), int64(0)
	for _, m := range r.tenants {
		limit, admitted := min(m.limits.Minute, m.limits.Day), m.ok.Load()
		if differ(admitted, min(limit, m.tried.Load())) > alone {
			t.Errorf("%s: %d of %d admitted, the limit is %d; %d decided without Redis", m.key, admitted, m.tried.Load(), limit, alone)
		}
		sum, over = sum+limit, over+max(0, admitted-limit)
	}
	tried, ok, refused, lost := r.total()
	t.Logf("figure: gateways stopped and continued at random: %d requests, %d stops of 10 to 2,000 ms, %d admitted, %d refused: "+
		"%d too many, %d decided without Redis", tried, stops.Load(), ok, refused, over, alone)
	if lost != 0 || stops.Load() < 30 || tried < 3*sum {
		t.Errorf("%d lost, %d stops, %d tried where the limits are %d", lost, stops.Load(), tried, sum)
	}
	return alone
}

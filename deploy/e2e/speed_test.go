package e2e_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// What a request may cost. It is counted, not timed, so a busy machine does not change it. Go reads a socket twice for each
// message: the first read finds nothing and waits. A single request at the gateway reads from the client, the service and Redis,
// and writes to each. A list at the pet service reads from the gateway and the database.
// The fractions are for the other work of the programs: statistics, timers, checks of the database.
const (
	gatewayReadsMax  = 6.2
	gatewayWritesMax = 3.2
	petsReadsMax     = 4.2
	petsWritesMax    = 2.2

	// Allocations of the whole gateway: for each request, and for each call of Redis. go-redis makes most of those for a call.
	requestAllocationsMax = 3
	callAllocationsMax    = 25

	callsMax = 0.5 // of Redis, per request, when many requests come together

	speedRequests = 2000
	speedClients  = 128
)

// countable is the build tag of programs that call read(2) and write(2), which the kernel counts for a process, instead of
// recvfrom(2) and sendto(2), which it does not count. The number of calls is the same.
const countable = "announced"

// idleTraces are settings of traces that sample nothing. They must cost no calls.
var idleTraces = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_TRACES_SAMPLER_ARG=0"}

// speedFleet is a gateway with Redis and an unlimited tenant. The gateway's pools and buffers exist already.
type speedFleet struct {
	*fleet.Fleet
	gateway *fleet.Program
	request string
}

func startSpeed(t *testing.T, tags string, env ...string) speedFleet {
	t.Helper()
	f := fleet.Start(t, fleet.Spec{
		Redis: testkit.StartRedis(t).URL, Gateways: 1, Tags: tags,
		GatewayEnv: append([]string{"GATEWAY_ACCESS_LOG=false"}, env...), PetsEnv: append([]string{"PETSVC_ACCESS_LOG=false"}, env...),
	})
	s := speedFleet{f, f.Gateways[0], fleet.GetPets(f.NewTenant("acme", fleet.Unlimited...).Token)}
	s.send(t, speedClients, speedClients*10)
	return s
}

// send sends requests, shared by clients that each wait for a response before the next request.
func (s *speedFleet) send(t *testing.T, clients, requests int) {
	t.Helper()
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			c := s.gateway.Client()
			defer c.Close()
			for range requests / clients {
				if got, err := c.Do(s.request); err != nil || got.Status != 200 {
					t.Errorf("%v, %v", got, err)
					return
				}
			}
		})
	}
	all.Wait()
}

// redisCalls is how often the gateway has called Redis.
func (s *speedFleet) redisCalls(t *testing.T) float64 {
	return s.gateway.Metric(t, "petgate_gateway_limits_trips_total", "")
}

func TestSpeedInCalls(t *testing.T) {
	s := startSpeed(t, countable, idleTraces...)
	gatewayBefore, petsBefore, callsBefore := countCalls(t, s.gateway), countCalls(t, s.Pets), s.redisCalls(t)
	s.send(t, 1, speedRequests)
	atGateway, atPets := countCalls(t, s.gateway).since(gatewayBefore), countCalls(t, s.Pets).since(petsBefore)
	calls := (s.redisCalls(t) - callsBefore) / speedRequests
	t.Logf("figure: one request at a time: gateway %v, pet service %v, %.2f calls of Redis", atGateway, atPets, calls)
	atGateway.check(t, "gateway", gatewayReadsMax, gatewayWritesMax)
	atPets.check(t, "pet service", petsReadsMax, petsWritesMax)
	if calls > 1.01 {
		t.Errorf("%.2f calls of Redis for a request", calls)
	}
}

// This test uses the sockets of the product, because the countable ones allocate.
func TestSpeedInAllocations(t *testing.T) {
	s := startSpeed(t, "")
	const allocated = "go_memstats_mallocs_total"
	callsBefore := s.redisCalls(t)
	first := s.gateway.Metric(t, allocated, "")
	before := s.gateway.Metric(t, allocated, "") // before minus first is the cost of reading the metrics
	together := float64(speedClients * 100)
	s.send(t, speedClients, int(together))
	allocations := (s.gateway.Metric(t, allocated, "") - before - (before - first)) / together
	calls := (s.redisCalls(t) - callsBefore) / together
	t.Logf("figure: %d clients at a time: %.1f allocations and %.3f calls of Redis a request", speedClients, allocations, calls)
	if most := requestAllocationsMax + calls*callAllocationsMax; allocations > most {
		t.Errorf("%.1f allocations a request, want at most %.1f", allocations, most)
	}
	if calls > callsMax {
		t.Errorf("%.3f calls of Redis a request, want at most %v", calls, callsMax)
	}
}

// ioCalls is how many times a process has called read and write (proc(5), io).
type ioCalls struct{ reads, writes float64 }

func countCalls(t testing.TB, p *fleet.Program) (c ioCalls) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", p.PID()))
	must.Do(t, err)
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		n, err := strconv.ParseFloat(value, 64)
		must.Do(t, err)
		switch name {
		case "syscr":
			c.reads = n
		case "syscw":
			c.writes = n
		}
	}
	return c
}

// since returns the cost of one of the speedRequests.
func (c ioCalls) since(before ioCalls) ioCalls {
	return ioCalls{(c.reads - before.reads) / speedRequests, (c.writes - before.writes) / speedRequests}
}

func (c ioCalls) String() string { return fmt.Sprintf("%.2f reads and %.2f writes", c.reads, c.writes) }

func (c ioCalls) check(t *testing.T, program string, readsMax, writesMax float64) {
	t.Helper()
	if c.reads > readsMax || c.writes > writesMax {
		t.Errorf("%s: %v for a request, want at most %v and %v", program, c, readsMax, writesMax)
	}
}

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

	callsMax = 0.5 // of Redis, per request, when many requests come together

	speedRequests = 2000
	speedClients  = 128
)

// countable is the build tag of programs that call read(2) and write(2), which the kernel counts for a process, instead of
// recvfrom(2) and sendto(2), which it does not count. The number of calls is the same.
const countable = "announced"

// TestSpeedInCalls sends requests by many clients at a time, and then by one. Traces that sample nothing cost no calls.
func TestSpeedInCalls(t *testing.T) {
	env := []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_TRACES_SAMPLER_ARG=0"}
	f := fleet.Start(t, fleet.Spec{
		Redis: testkit.StartRedis(t).URL, Gateways: 1, Tags: countable,
		GatewayEnv: append([]string{"GATEWAY_ACCESS_LOG=false"}, env...), PetsEnv: append([]string{"PETSVC_ACCESS_LOG=false"}, env...),
	})
	gateway, request := f.Gateways[0], fleet.GetPets(f.NewTenant("acme", fleet.Unlimited...).Token)
	// send returns how often the gateway called Redis for a request.
	send := func(clients, requests int) float64 {
		t.Helper()
		calls := func() float64 { return gateway.Metric(t, "petgate_gateway_limits_trips_total", "") }
		before := calls()
		var all sync.WaitGroup
		for range clients {
			all.Go(func() {
				c := gateway.Client()
				defer c.Close()
				for range requests / clients {
					if got, err := c.Do(request); err != nil || got.Status != 200 {
						t.Errorf("%v, %v", got, err)
						return
					}
				}
			})
		}
		all.Wait()
		return (calls() - before) / float64(requests)
	}
	send(speedClients, speedClients*10) // it fills pools and buffers
	together := send(speedClients, speedClients*50)
	gatewayBefore, petsBefore := countCalls(t, gateway), countCalls(t, f.Pets)
	alone := send(1, speedRequests)
	atGateway, atPets := countCalls(t, gateway).since(gatewayBefore), countCalls(t, f.Pets).since(petsBefore)
	t.Logf("figure: one request at a time: gateway %v, pet service %v, %.2f calls of Redis; %.3f with %d clients", atGateway, atPets, alone, together, speedClients)
	atGateway.check(t, "gateway", gatewayReadsMax, gatewayWritesMax)
	atPets.check(t, "pet service", petsReadsMax, petsWritesMax)
	if alone > 1.01 || together > callsMax {
		t.Errorf("%.2f calls of Redis for a request alone, %.3f with %d clients", alone, together, speedClients)
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

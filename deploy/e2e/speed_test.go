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
)

// What a request may cost, counted and not timed, so that a busy machine changes nothing. Go reads a socket twice for each
// message: the first read finds nothing and waits. One at a time, a request at the gateway reads from the client, the
// service (once: it waits before it reads) and Redis, and writes to each; a list at the pet service reads from the gateway
// and the database. What is above
// whole numbers is what the programs do beside it: statistics, timers, looking after the database.
const (
	gatewayReadsMax  = 5.2
	gatewayWritesMax = 3.2
	petsReadsMax     = 4.2
	petsWritesMax    = 2.2

	// Over everything in the gateway: of each request, and of each call of Redis, which is mostly go-redis's.
	requestAllocationsMax = 3
	callAllocationsMax    = 25

	callsMax = 0.5 // of Redis, for a request that comes together with many

	speedRequests = 2000
	speedClients  = 128
)

// countable makes the programs call read(2) and write(2), which the kernel counts for a process, in place of recvfrom(2) and
// sendto(2), which it does not. There are as many of the ones as of the others.
const countable = "PETGATE_SOCKETS=exchange,deadlines"

func TestSpeedInCalls(t *testing.T) {
	redis := testkit.StartRedis(t)
	f := fleet.Start(t, fleet.Spec{
		Redis: redis.URL, Gateways: 1, GatewayEnv: []string{"GATEWAY_ACCESS_LOG=false", countable}, PetsEnv: []string{"PETSVC_ACCESS_LOG=false", countable},
	})
	gateway, request := f.Gateways[0], fleet.GetPets(f.NewTenant("acme", fleet.Unlimited...).Token)
	trips := func() float64 { return gateway.Metric(t, "gateway_limits_trips_total", "") }

	send := func(clients, requests int) {
		t.Helper()
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
	}
	send(speedClients, speedClients*10) // connections, pools and buffers are made first

	gatewayBefore, petsBefore, callsBefore := countCalls(t, gateway), countCalls(t, f.Pets), trips()
	send(1, speedRequests)
	atGateway, atPets := countCalls(t, gateway).since(gatewayBefore), countCalls(t, f.Pets).since(petsBefore)
	calls := (trips() - callsBefore) / speedRequests
	t.Logf("figure: one request at a time: gateway %v, pet service %v, %.2f calls of Redis", atGateway, atPets, calls)
	atGateway.check(t, "gateway", gatewayReadsMax, gatewayWritesMax)
	atPets.check(t, "pet service", petsReadsMax, petsWritesMax)
	if calls > 1.01 {
		t.Errorf("%.2f calls of Redis for a request", calls)
	}

	const allocated = "go_memstats_mallocs_total"
	callsBefore = trips()
	first := gateway.Metric(t, allocated, "")
	before := gateway.Metric(t, allocated, "") // what asking costs is between the two
	const together = speedClients * 200
	send(speedClients, together)
	allocations := (gateway.Metric(t, allocated, "") - before - (before - first)) / together
	calls = (trips() - callsBefore) / together
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
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatal(err)
		}
		switch name {
		case "syscr":
			c.reads = n
		case "syscw":
			c.writes = n
		}
	}
	return c
}

// since is what a request of speedRequests has cost.
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

//go:build e2e

package e2e_test

import (
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// normalRounds is the number of requests for the p99 of normal operation.
const normalRounds = 2000

// slowGoneWithin is how long a client may be slow. A pause of the machine, and the looks at the metrics, come on top.
const slowGoneWithin = 10 * time.Second

// What a connection may cost in resident memory of the process. An idle connection keeps the stack of its last request, which is 4 kB,
// and 3 kB more. With a few more bytes on the way to the deepest call, a stack is 8 kB. If all connections were active at the same time,
// some requests had to dial, which needs 8 kB. The maximum for a slow connection includes the growth of the process during the test.
const (
	bytesPerIdleMax   = 8 << 10
	bytesPerActiveMax = 11 << 10
	bytesPerSlowMax   = 16 << 10
)

// TestSlowProcessClients opens slow connections of each kind beside an honest client. Each kind has a new gateway, whose
// memory has not been used before.
func TestSlowProcessClients(t *testing.T) {
	const clients = 800
	needDescriptors(t, clients+1000)
	f := fleet.Start(t, fleet.Spec{})
	key := f.NewTenant("acme", fleet.Unlimited...)
	upstream := largeUpstream(t)
	large := fleet.Request("GET /v1/pets", key.Token, "")
	for _, kind := range []struct{ name, begin, drip string }{
		{"headers", "GET /v1/pets HTTP/1.1\r\nHost: a\r\nX-Slow: ", "a"},
		{"bodies", fleet.Request("POST /v1/pets", key.Token, "", "Content-Length: 60000") + "{", "a"},
		{"readers", strings.Repeat(large, 32), ""},
	} {
		// All slow clients are one tenant's, and each reader has to get its large answers.
		gateway := f.AddGateway("GATEWAY_UPSTREAMS="+upstream, "GATEWAY_ACCESS_LOG=false", "GATEWAY_UPSTREAM_CONNS_PER_TENANT=512")
		alone := p99(askInTurn(t, gateway, key.Token, normalRounds, nil))
		before := resident(t, gateway)
		slow := make([]net.Conn, clients)
		for i := range slow {
			slow[i] = dialSlow(t, gateway.Addr())
			if _, err := io.WriteString(slow[i], kind.begin); err != nil {
				t.Fatal(err)
			}
			if i%100 == 99 { // so that they are slow, and not just many at once
				testkit.Eventually(t, fleet.ReplyWithin, "their arrival", func() bool {
					return gateway.Metric(t, "petgate_gateway_connections", "") > float64(i) && gateway.Metric(t, "petgate_gateway_requests_in_flight", "") == 0
				})
			}
		}
		came, stop := time.Now(), make(chan struct{})
		go drip(slow, kind.drip, stop)
		each := (resident(t, gateway) - before) / clients
		honest := make(chan []time.Duration, 1)
		go func() { honest <- askInTurn(t, gateway, key.Token, 1<<30, stop) }()
		testkit.Eventually(t, slowGoneWithin+fleet.ReplyWithin, "the end of the slow ones", func() bool {
			return gateway.Metric(t, "petgate_gateway_connections", "") <= 1
		})
		took := time.Since(came)
		close(stop)
		served := <-honest
		for _, conn := range slow {
			_ = conn.Close()
		}
		if kind.drip != "" && each > bytesPerSlowMax { // slow readers cost more: the responses to them
			t.Errorf("slow %s: %d bytes of resident memory for each", kind.name, each)
		}
		t.Logf("figure: %d slow %s at a gateway process: gone %.1f s after the last came; %d bytes of resident memory each; "+
			"an honest client got %d answers, p99 %v, alone %v", clients, kind.name, took.Seconds(), each, len(served), p99(served), alone)
	}
}

// TestIdleProcessConnections opens connections with one request each; each request is alone in its call to Redis. Then all of them send
// a request at the same time.
func TestIdleProcessConnections(t *testing.T) {
	const clients = 10_000
	needDescriptors(t, clients+1000)
	spec := fleet.Spec{Gateways: 1, GatewayEnv: []string{"GATEWAY_ACCESS_LOG=false", "GATEWAY_IDLE_TIMEOUT=10m"}}
	spec.Redis, spec.RedisPrefix = testkit.Redis(t)
	f := fleet.Start(t, spec)
	gateway := f.Gateways[0]
	key := f.NewTenant("acme", fleet.Unlimited...)
	alone := p99(askInTurn(t, gateway, key.Token, normalRounds, nil))
	before := resident(t, gateway)
	idle := make([]*fleet.Client, clients)
	for i := range idle {
		idle[i] = gateway.Client()
		if got := idle[i].Must(t, fleet.GetPets(key.Token)); got.Status != 200 {
			t.Fatalf("connection %d: %d %s", i, got.Status, got.Body)
		}
		defer idle[i].Close()
	}
	each := (resident(t, gateway) - before) / clients
	beside := p99(askInTurn(t, gateway, key.Token, normalRounds, nil))
	if n := gateway.Metric(t, "petgate_gateway_connections", ""); n < clients {
		t.Errorf("the gateway holds %v connections of %d", n, clients)
	}
	for _, c := range idle[clients-10:] {
		conn := c.Conn
		if got := c.Must(t, fleet.GetPets(key.Token)); got.Status != 200 || c.Conn != conn {
			t.Errorf("an idle connection answers %d, the same: %t", got.Status, c.Conn == conn)
		}
	}
	if each > bytesPerIdleMax {
		t.Errorf("%d bytes of resident memory for each idle connection", each)
	}
	served := 0
	for _, c := range idle {
		if err := c.Send(fleet.GetPets(key.Token)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range idle {
		got, err := c.Read()
		if err != nil {
			t.Fatal(err)
		}
		if got.Status == 200 {
			served++
		}
	}
	again := (resident(t, gateway) - before) / clients
	if served == 0 || again > bytesPerActiveMax {
		t.Errorf("after all connections sent a request at the same time, and %d were served: %d bytes of resident memory for each", served, again)
	}
	t.Logf("figure: %d idle connections at a gateway process: %d bytes of resident memory each; p99 beside them %v, alone %v; "+
		"%d bytes each after all of them sent a request at the same time, and %d were served", clients, each, beside, alone, again, served)
}

// largeUpstream answers the requests of askInTurn with an empty list, and all others with more than the kernel takes at once.
func largeUpstream(t *testing.T) string {
	t.Helper()
	large := strings.Repeat(" ", 256<<10) + "[]"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		body := "[]"
		if r.URL.RawQuery == "" {
			body = large
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// askInTurn sends n requests, one after the other, or fewer if it is stopped. It returns the latencies.
func askInTurn(t *testing.T, p *fleet.Program, token string, n int, stop <-chan struct{}) []time.Duration {
	c := p.Client()
	defer c.Close()
	var took []time.Duration
	for range n {
		select {
		case <-stop:
			return took
		default:
		}
		began := time.Now()
		got, err := c.Do(fleet.GetPets(token))
		if err != nil || got.Status != 200 {
			t.Errorf("an honest client got %v %v", got, err)
			return took
		}
		took = append(took, time.Since(began))
	}
	return took
}

func p99(took []time.Duration) time.Duration {
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[len(took)*99/100].Round(time.Microsecond)
}

// resident is the memory of a process when collections free no more. Each collection shrinks stacks by half, and free memory
// returns to the kernel in the background.
func resident(t *testing.T, p *fleet.Program) int64 {
	t.Helper()
	look := time.NewTicker(250 * time.Millisecond)
	defer look.Stop()
	for last := math.Inf(1); ; {
		response, err := http.Get(p.Admin + "/debug/pprof/heap?gc=1")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
		<-look.C
		now := p.Metric(t, "process_resident_memory_bytes", "")
		if now > last*0.99 {
			return int64(now)
		}
		last = now
	}
}

// dialSlow connects with a small receive buffer, so that the gateway soon notices a client that does not read.
func dialSlow(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	return c
}

// drip sends a little on every connection, ten times a second, until it is stopped.
func drip(conns []net.Conn, what string, stop <-chan struct{}) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			for _, c := range conns {
				_, _ = io.WriteString(c, what) // fails if the connection is closed
			}
		}
	}
}

// needDescriptors makes room for n descriptors, here and in the processes that are started from here.
func needDescriptors(t *testing.T, n uint64) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Cur < n {
		limit = syscall.Rlimit{Cur: n, Max: max(n, limit.Max)}
	}
	// The limit is set even if it is high enough: Go raises its own soft limit at the start. Children would get the old limit if
	// it were not set here.
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatalf("this test needs %d file descriptors: ulimit -n %d (%v)", n, n, err)
	}
}

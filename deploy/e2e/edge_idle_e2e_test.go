//go:build e2e

package e2e_test

import (
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"syscall"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// What a connection may cost in resident memory of the process. An idle connection keeps the stack
// of its last request, which is 4 kB, and 3 kB more. With a few more bytes on the way to the
// deepest call, a stack is 8 kB. If all connections were active at the same time, some requests had
// to dial, which needs 8 kB.
const (
	bytesPerIdleMax   = 8 << 10
	bytesPerActiveMax = 11 << 10
)

// TestIdleProcessConnections opens connections with one request each; each request is alone in its
// call to Redis. Then all of them send a request at the same time.
func TestIdleProcessConnections(t *testing.T) {
	const clients = 10_000
	needDescriptors(t, clients+1000)
	spec := fleet.Spec{Gateways: 1, GatewayEnv: []string{"GATEWAY_ACCESS_LOG=false", "GATEWAY_IDLE_TIMEOUT=10m"}}
	spec.Redis, spec.RedisPrefix = testkit.Redis(t)
	f := fleet.Start(t, spec)
	gateway := f.Gateways[0]
	key := f.NewTenant("acme", fleet.Unlimited...)
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
		must.Do(t, c.Send(fleet.GetPets(key.Token)))
	}
	for _, c := range idle {
		if got := must.Get[fleet.Reply](t)(c.Read()); got.Status == 200 {
			served++
		}
	}
	again := (resident(t, gateway) - before) / clients
	if served == 0 || again > bytesPerActiveMax {
		t.Errorf(
			"after all connections sent a request at the same time, and %d were served: %d bytes of resident memory for each",
			served, again,
		)
	}
	t.Logf("figure: %d idle connections at a gateway process: %d bytes of resident memory each; "+
		"%d bytes each after all of them sent a request at the same time, and %d were served", clients, each, again, served)
}

// resident is the memory of a process when collections free no more. Each collection shrinks stacks
// by half. Free memory that has yet to return to the kernel, which happens in the background, does
// not count.
func resident(t *testing.T, p *fleet.Program) int64 {
	t.Helper()
	look := time.NewTicker(250 * time.Millisecond)
	defer look.Stop()
	for last := math.Inf(1); ; {
		p.AdminPage(t, "/debug/pprof/heap?gc=1")
		<-look.C
		free := p.Metric(t, "go_memstats_heap_idle_bytes", "") - p.Metric(t, "go_memstats_heap_released_bytes", "")
		now := p.Metric(t, "process_resident_memory_bytes", "") - free
		if now > last*0.99 {
			return int64(now)
		}
		last = now
	}
}

// needDescriptors makes room for n descriptors, here and in the processes that are started from
// here.
func needDescriptors(t *testing.T, n uint64) {
	t.Helper()
	var limit syscall.Rlimit
	must.Do(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	if limit.Cur < n {
		limit = syscall.Rlimit{Cur: n, Max: max(n, limit.Max)}
	}
	// The limit is set even if it is high enough: Go raises its own soft limit at the start.
	// Children would get the old limit if it were not set here.
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatalf("this test needs %d file descriptors: ulimit -n %d (%v)", n, n, err)
	}
}

// TestStreams shows what memory a long body costs that passes in both directions at once.
func TestStreams(t *testing.T) {
	const streamed, memoryMax = 1 << 30, 4 << 20 // 2 MiB for each direction
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex() // it is HTTP/1.1
		_, _ = io.Copy(w, r.Body)
	}))
	defer upstream.Close()
	f := fleet.Start(t, fleet.Spec{
		Database: testkit.SQLite(t), Gateways: 1, Upstreams: upstream.URL,
		GatewayEnv: []string{"GATEWAY_BODY_BYTES_MAX=2147483648", "GATEWAY_ACCESS_LOG=false"},
	})
	token, g := f.NewTenant("acme", fleet.Unlimited...).Token, f.Gateways[0]
	zeros := must.Get[*os.File](t)(os.Open("/dev/zero"))
	defer zeros.Close()
	pass := func(size int64) {
		r := must.Get[*http.Request](t)(
			http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL+"/v1/pets", io.LimitReader(zeros, size)),
		)
		r.Header.Set("Authorization", "Bearer "+token)
		got, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Error(err)
			return
		}
		defer got.Body.Close()
		if back, err := io.Copy(io.Discard, got.Body); back != size || err != nil {
			t.Errorf("%d bytes of %d came back: %v", back, size, err)
		}
	}
	pass(10_000_000)
	before := g.ResidentBytes(t)
	most, done := before, make(chan bool)
	go func() {
		defer close(done)
		pass(streamed)
	}()
	for {
		select {
		case <-done:
			t.Logf("figure: 1 GiB in both directions at once: %.1f MB more", float64(most-before)/(1<<20))
			if most-before > memoryMax {
				t.Errorf("1 GiB in both directions took %d bytes, want at most %d", most-before, memoryMax)
			}
			return
		case <-time.After(10 * time.Millisecond):
			most = max(most, g.ResidentBytes(t))
		}
	}
}

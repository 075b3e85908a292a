//go:build e2e

package e2e_test

import (
	"net"
	"syscall"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// TestRestartBySystemd restarts the only gateway and the only pet service under load. The test
// plays systemd, which keeps their sockets: connections wait in the kernel for the next process.
func TestRestartBySystemd(t *testing.T) {
	t.Parallel()
	short := "DRAIN_DELAY=10ms" // the requests of connections that are open get responses
	f := fleet.Start(t,
		fleet.Spec{Gateways: 1, GatewayEnv: []string{"GATEWAY_" + short}, PetsEnv: []string{"PETSVC_" + short}})
	key := f.NewTenant("acme", fleet.Unlimited...)
	programs := []*fleet.Program{f.Pets, f.Gateways[0]}
	for _, p := range programs {
		address := p.Addr()
		if code := p.Stop(); code != 0 {
			t.Fatalf("exit code %d after SIGTERM:\n%s", code, p.Stderr)
		}
		p.Systemd = testkit.NewSystemd(t, address)
		p.Start(t)
		p.Systemd.Await(t, "READY=1")
	}

	load := startTraffic(key.Token, fleet.Client{Addr: f.Gateways[0].Addr()})
	load.more(t, 100)
	var longest time.Duration
	for range 2 {
		for _, p := range programs {
			p.Signal(syscall.SIGTERM)
			p.Systemd.Await(t, "STOPPING=1")
			if code := p.ExitCode(t); code != 0 {
				t.Errorf("exit code %d after SIGTERM:\n%s", code, p.Stderr)
			}
			began := time.Now()
			conn, err := net.Dial("tcp", p.Addr()) // no process serves now
			if err != nil {
				t.Fatalf("a connection is refused during the restart: %v", err)
			}
			conn.Close()
			p.Start(t)
			longest = max(longest, time.Since(began))
			p.Systemd.Await(t, "READY=1")
			load.more(t, 100)
		}
	}
	load.least(t, 10_000)
	load.end()
	load.faultless(t)
	must.Equal(t, load.stored(t, f), 0, "pets that are stored without an answer")
	t.Logf(
		"figure: %d restarts of the only gateway and the only pet service under load, with sockets of systemd: %d of %d requests "+
			"failed; away for %v, slowest %v",
		4,
		len(load.wrong),
		load.total(),
		longest.Round(time.Millisecond),
		load.slowest.Round(time.Millisecond),
	)
}

package e2e_test

import (
	"net"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

const (
	edgeDrainDelay = "500ms"
	edgeHeldFor    = 2500 * time.Millisecond // a request in flight
)

func restart(t *testing.T, p *fleet.Program) {
	t.Helper()
	if code := p.Stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM:\n%s", code, p.Stderr)
	}
	p.Start(t)
}

// TestDrain stops a gateway and a pet service while a request is in flight. The request lasts longer than the listener.
func TestDrain(t *testing.T) {
	t.Parallel()
	patient, err := url.Parse(testkit.Postgres(t))
	must.Do(t, err)
	query := patient.Query()
	query.Set("statement_timeout", "20000")
	query.Set("idle_in_transaction_session_timeout", "0")
	patient.RawQuery = query.Encode()
	f := fleet.Start(t, fleet.Spec{
		// The delayed statement must not time out after the usual 5 s, nor the transaction that delays it, or the request, after 10 s.
		Database: patient.String(), Gateways: 1, GatewayEnv: []string{"GATEWAY_DRAIN_DELAY=" + edgeDrainDelay, "GATEWAY_UPSTREAM_TIMEOUT=20s"},
		PetsEnv: []string{"PETSVC_DRAIN_DELAY=" + edgeDrainDelay},
	})
	key := f.NewTenant("acme", fleet.Unlimited...)
	drain(t, f, "gateway", f.Gateways[0], "petgate_gateway_requests_in_flight", key.Token)
	drain(t, f, "petsvc", f.Pets, "petgate_petsvc_busy_connections", key.Token)
}

func drain(t *testing.T, f *fleet.Fleet, name string, p *fleet.Program, inFlight, token string) {
	t.Helper()
	delay, err := time.ParseDuration(edgeDrainDelay)
	must.Do(t, err)
	tx, err := openDatabase(t, f).Begin()
	must.Do(t, err)
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.Exec(`LOCK TABLE pets IN EXCLUSIVE MODE`); err != nil { // inserts wait, reads do not
		t.Fatal(err)
	}
	held := p.Client()
	defer held.Close()
	began := time.Now()
	must.Do(t, held.Send(fleet.PostPet(token, "slow one of "+name)))
	testkit.Eventually(t, fleet.ReplyWithin, "the request is in flight", func() bool { return p.Metric(t, inFlight, "") >= 1 })

	asked := time.Now()
	p.Signal(syscall.SIGTERM)
	testkit.Eventually(t, fleet.ReplyWithin, "/readyz fails", func() bool { return !p.Ready() })
	unready := time.Since(asked)
	served := 0
	for ; time.Since(asked) < delay*3/4; served++ {
		fresh := p.Client()
		got, err := fresh.Do(fleet.GetPets(token))
		fresh.Close()
		if late := time.Since(asked); (err != nil || got.Status != 200) && late < delay { // later, the listener may be closed
			t.Fatalf("%s: a new connection %v after SIGTERM: %v %v", name, late, got, err)
		}
	}
	testkit.Eventually(t, fleet.ReplyWithin, "the listener is closed", func() bool {
		conn, err := net.Dial("tcp", held.Addr)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	closed := time.Since(asked)
	<-time.After(time.Until(began.Add(edgeHeldFor))) // the test shows that such a long request survives
	must.Do(t, tx.Rollback())
	got, err := held.Read()
	took := time.Since(began)
	if err != nil || got.Status != 201 || !got.Close {
		t.Errorf("%s: the request in flight: %v %v, want 201 and Connection: close", name, got, err)
	}
	if code := p.ExitCode(t); code != 0 {
		t.Errorf("%s: exit code %d", name, code)
	}
	if closed < delay {
		t.Errorf("%s: the listener closed after %v, before the delay of %v", name, closed, delay)
	}
	if !strings.Contains(p.Stderr.String(), `"msg":"draining"`) {
		t.Errorf("%s: no word of the drain in the log", name)
	}
	p.Start(t)
	t.Logf("figure: %s after SIGTERM: unready in %v, %d new connections served, listener closed after %.1f s, "+
		"a request of %.1f s completed, exit 0", name, unready.Round(time.Millisecond), served, closed.Seconds(), took.Seconds())
}

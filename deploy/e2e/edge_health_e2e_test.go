//go:build e2e

package e2e_test

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// TestDeadUpstreamLeavesFirst kills, starts, pauses and continues one of two pet services that the gateway checks. Requests come only
// when the gateway has noticed. One that is stopping says so to the gateway's checks. Then the other one is restarted under load.
func TestDeadUpstreamLeavesFirst(t *testing.T) {
	t.Parallel()
	const each = 100
	f := fleet.Start(t, fleet.Spec{})
	// The first one waits so long before it stops that a check meets it meanwhile. It is killed then.
	secret := "PETSVC_SECRET=open sesame"
	pets := []*fleet.Program{f.AddPets(secret, "PETSVC_DRAIN_DELAY=5m"), f.AddPets(secret, "PETSVC_DRAIN_DELAY=1s")}
	gateway := f.AddGateway("GATEWAY_UPSTREAMS="+pets[0].URL+","+pets[1].URL, "GATEWAY_UPSTREAM_SECRET=open sesame",
		"GATEWAY_UPSTREAM_HEALTH_PATH=/readyz")
	key := f.NewTenant("acme", fleet.Unlimited...)
	lost, sent := 0, 0
	of := func(p *fleet.Program, name string) float64 {
		return gateway.Metric(t, "petgate_gateway_upstream_"+name, `upstream="`+p.Addr()+`"`)
	}
	await := func(p *fleet.Program, isOut float64, in string) {
		t.Helper()
		testkit.Eventually(t, fleet.ReplyWithin, "the gateway notices that a pet service is "+in, func() bool { return of(p, "ejected") == isOut })
	}
	ask := func(in string) {
		t.Helper()
		failures := of(pets[0], "failures_total") + of(pets[1], "failures_total")
		for range each {
			sent++
			if got := gateway.Ask(key.Token); got.Status != 200 {
				lost++
				t.Errorf("while one is %s: %d %s", in, got.Status, got.Body)
			}
		}
		if met := of(pets[0], "failures_total") + of(pets[1], "failures_total") - failures; met != 0 {
			t.Errorf("while one is %s: %v requests met it", in, met)
		}
	}
	ask("not disturbed")

	pets[0].Kill()
	await(pets[0], 1, "killed")
	ask("killed")
	if page := gateway.AdminPage(t, "/readyz"); !gateway.Ready() || !strings.Contains(page, "the check of "+pets[0].Addr()+" fails") {
		t.Errorf("/readyz says %s", page)
	}
	pets[0].Start(t)
	await(pets[0], 0, "started")
	ask("started")
	if n := pets[0].Metric(t, "petgate_petsvc_requests_total", `outcome="ok"`); n == 0 {
		t.Error("the pet service that was started gets no requests")
	}

	pets[1].Pause(t)
	await(pets[1], 1, "paused")
	ask("paused")
	pets[1].Resume()
	await(pets[1], 0, "continued")
	ask("continued")

	pets[0].Signal(syscall.SIGTERM)
	await(pets[0], 1, "stopping")
	ask("stopping")
	testkit.Eventually(t, fleet.ReplyWithin, "the log has the reason that a pet service gave", func() bool {
		return strings.Contains(gateway.Stderr.String(), "the service is stopping")
	})
	pets[0].Kill()
	pets[0].Start(t)
	await(pets[0], 0, "started again")

	load := startLoad(t, key.Token, 4, trafficPace, gateway)
	testkit.Eventually(t, fleet.ReplyWithin, "answers", func() bool { return load.count(200) > each })
	restart(t, pets[1])
	for _, s := range load.end() {
		sent++
		if s.Status != 200 {
			lost++
			t.Errorf("during a restart: %d %s", s.Status, s.Body)
		}
	}
	for _, p := range pets {
		left := func(line string) bool {
			return strings.Contains(line, "an upstream gets only requests that no other takes, until its check succeeds") && strings.Contains(line, p.Addr())
		}
		if !slices.ContainsFunc(gateway.Stderr.Lines(), left) {
			t.Errorf("the log does not say that %s left", p.Addr())
		}
	}
	t.Logf("figure: two pet services with checks, one of them killed, started, paused, continued and restarted: %d of %d GETs lost", lost, sent)
}

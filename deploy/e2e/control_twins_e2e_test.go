//go:build e2e

package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// Another process is started with the ID of a gateway, and its supervisor starts it again whenever it ends. The first one serves all the
// time, and the other one says each time which process has the ID. When the first one is killed, the other one takes over.
func TestProcessesWithOneID(t *testing.T) {
	t.Parallel()
	f := fleet.Start(t, fleet.Spec{Database: testkit.Postgres(t), Gateways: 1})
	key, first := f.NewTenant("twins", "--minute", "1000000", "--day", "1000000"), f.Gateways[0]
	answered := 0
	ask := func() {
		if reply := first.Ask(key.Token); reply.Status != 200 {
			t.Fatalf("after %d requests: %v", answered, reply)
		}
		answered++
		<-time.After(10 * time.Millisecond)
	}
	twin := f.NewGateway("GATEWAY_ID="+first.ID, "GATEWAY_SNAPSHOT=")
	for range 3 {
		twin.Launch(t)
		for ended := false; !ended; {
			ask()
			var code int
			if code, ended = twin.Wait(0); ended && code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
		}
		if want := fmt.Sprintf("process %d on host", first.PID()); !strings.Contains(twin.Stderr.String(), want) {
			t.Errorf("the other one does not say %q: %s", want, twin.Stderr)
		}
	}
	twin.Launch(t)
	ask()
	first.Kill()
	twin.AwaitReady(t)
	t.Logf("figure: a process with the ID of a living gateway ended 3 times; the gateway answered all %d requests meanwhile", answered)
}

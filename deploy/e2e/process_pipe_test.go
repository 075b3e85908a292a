package e2e_test

import (
	"net/http"
	"os"
	"testing"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// `gateway | head -n 1`, a log shipper that restarts or hangs: the reader of standard output and
// standard error ends, or reads nothing. The programs continue to serve, and end when they are told
// to.
func TestReaderOfTheLogsHoldsUpNothing(t *testing.T) {
	t.Parallel()
	f := fleet.Start(t, fleet.Spec{
		Database: testkit.SQLite(t), Gateways: 1, GatewayEnv: []string{"GATEWAY_LOG_LEVEL=debug"},
		PetsEnv: []string{"PETSVC_LOG_LEVEL=debug"},
	})
	for p, want := range map[*fleet.Program]int{f.Gateways[0]: http.StatusUnauthorized, f.Pets: http.StatusOK} {
		// Lines of more than 64 KiB fill a pipe.
		for name, requests := range map[string]int{"ends": 5, "reads nothing": 1500} {
			reader, writer, err := os.Pipe()
			must.Do(t, err)
			defer reader.Close()
			p.Stop()
			p.LogTo = writer
			p.Launch(t)
			writer.Close()
			if name == "ends" {
				reader.Close()
			}
			p.AwaitReady(t)
			for n := range requests {
				if got := p.Ask("none"); got.Status != want {
					t.Fatalf("%s, its reader %s, request %d: %v, want %d", p.URL, name, n+1, got, want)
				}
			}
			must.Equal(t, p.Stop(), 0, "%s, its reader %s: exit code", p.URL, name)
		}
	}
}

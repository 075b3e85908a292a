package e2e_test

import (
	"net/http"
	"os"
	"testing"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// pipeOutput launches a program again, with a pipe for its standard output and standard error.
func pipeOutput(t *testing.T, p *fleet.Program) (reader *os.File) {
	t.Helper()
	reader, writer, err := os.Pipe()
	must.Do(t, err)
	defer writer.Close()
	t.Cleanup(func() { _ = reader.Close() })
	p.Stop()
	p.LogTo = writer
	p.Launch(t)
	return reader
}

// `gateway | head -n 1`, a log shipper that restarts: the reader of standard output and standard error ends. The
// programs continue to serve.
func TestClosedStandardOutputKillsNothing(t *testing.T) {
	t.Parallel()
	f := fleet.Start(t, fleet.Spec{
		Database: testkit.SQLite(t), Gateways: 1, GatewayEnv: []string{"GATEWAY_LOG_LEVEL=debug"}, PetsEnv: []string{"PETSVC_LOG_LEVEL=debug"},
	})
	for p, want := range map[*fleet.Program]int{f.Gateways[0]: http.StatusUnauthorized, f.Pets: http.StatusOK} {
		_ = pipeOutput(t, p).Close()
		p.AwaitReady(t)
		for n := range 5 {
			if got := p.Ask("none"); got.Status != want {
				t.Fatalf("%s, request %d: %v, want %d", p.URL, n+1, got, want)
			}
		}
		if code := p.Stop(); code != 0 {
			t.Errorf("%s: exit code %d", p.URL, code)
		}
	}
}

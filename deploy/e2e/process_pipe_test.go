package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// `gateway | head -n 1`, a log shipper that restarts: the reader of standard output and standard error ends. The
// programs continue to serve.
func TestClosedStandardOutputKillsNothing(t *testing.T) {
	together(t)
	f := fleet.Start(t, fleet.Spec{Database: testkit.SQLite(t)})
	for _, program := range []struct {
		name, path string
		status     int
	}{{"gateway", "/v1/pets", http.StatusUnauthorized}, {"petsvc", "/v1/pets", http.StatusOK}} {
		prefix := strings.ToUpper(program.name)
		listen := fmt.Sprintf("127.0.0.1:%d", testkit.FreePort(t))
		admin := fmt.Sprintf("127.0.0.1:%d", testkit.FreePort(t))
		cmd := exec.Command(testkit.Build(t, "petgate/"+program.name))
		cmd.Env = []string{
			"PATH=" + os.Getenv("PATH"), "DATABASE_URL=" + f.Database, "GATEWAY_SNAPSHOT=", "GATEWAY_ID=gw-pipe",
			prefix + "_LISTEN=" + listen, prefix + "_ADMIN_LISTEN=" + admin, prefix + "_LOG_LEVEL=debug",
			prefix + "_DRAIN_DELAY=0s",
		}
		reader, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdout, cmd.Stderr = writer, writer
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = cmd.Wait()
		}()
		t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
		_ = writer.Close()
		_ = reader.Close()

		get := func(url string) int {
			response, err := http.Get(url)
			if err != nil {
				return 0
			}
			_ = response.Body.Close()
			return response.StatusCode
		}
		testkit.Eventually(t, fleet.ReplyWithin, program.name+" is ready", func() bool {
			select {
			case <-ended:
				t.Fatalf("%s ended at its first log line: %v", program.name, cmd.ProcessState)
			default:
			}
			return get("http://"+admin+"/readyz") == http.StatusOK
		})
		for n := range 5 {
			if status := get("http://" + listen + program.path); status != program.status {
				t.Fatalf("%s, request %d: status %d, want %d", program.name, n+1, status, program.status)
			}
		}
		_ = cmd.Process.Signal(os.Interrupt)
		<-ended
		if code := cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("%s: exit code %d", program.name, code)
		}
	}
}

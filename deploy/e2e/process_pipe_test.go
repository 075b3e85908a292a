package e2e_test

import (
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// piped is a program whose standard output and standard error are one pipe.
type piped struct {
	url, admin string
	reader     *os.File

	t     testing.TB
	name  string
	cmd   *exec.Cmd
	ended chan struct{}
}

// startPiped starts a gateway or a pet service. It does not wait until the program is ready.
func startPiped(t testing.TB, name string, env ...string) *piped {
	t.Helper()
	address := func() string { return "127.0.0.1:" + strconv.Itoa(testkit.FreePort(t)) }
	listen, admin, prefix := address(), address(), strings.ToUpper(name)
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &piped{
		url: "http://" + listen, admin: "http://" + admin, reader: reader, t: t, name: name,
		cmd: exec.Command(testkit.Build(t, "petgate/"+name)), ended: make(chan struct{}),
	}
	p.cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "GATEWAY_SNAPSHOT=", "GATEWAY_ID=gw-pipe",
		prefix + "_LISTEN=" + listen, prefix + "_ADMIN_LISTEN=" + admin, prefix + "_DRAIN_DELAY=0s",
	}, env...)
	p.cmd.Stdout, p.cmd.Stderr = writer, writer
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = writer.Close()
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		_ = reader.Close()
	})
	return p
}

// get returns the status of a page, 0 without a response.
func (p *piped) get(url string) int {
	response, err := http.Get(url)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

func (p *piped) awaitReady() {
	p.t.Helper()
	testkit.Eventually(p.t, fleet.ReplyWithin, p.name+" is ready", func() bool {
		select {
		case <-p.ended:
			p.t.Fatalf("%s ended at its first log line: %v", p.name, p.cmd.ProcessState)
		default:
		}
		return p.get(p.admin+"/readyz") == http.StatusOK
	})
}

// stop sends SIGTERM and waits for an orderly end.
func (p *piped) stop() {
	p.t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	testkit.Eventually(p.t, fleet.ReplyWithin, p.name+" ends", func() bool {
		select {
		case <-p.ended:
			return true
		default:
			return false
		}
	})
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		p.t.Errorf("%s: exit code %d", p.name, code)
	}
}

// `gateway | head -n 1`, a log shipper that restarts: the reader of standard output and standard error ends. The
// programs continue to serve.
func TestClosedStandardOutputKillsNothing(t *testing.T) {
	t.Parallel()
	f := fleet.Start(t, fleet.Spec{Database: testkit.SQLite(t)})
	for name, want := range map[string]int{"gateway": http.StatusUnauthorized, "petsvc": http.StatusOK} {
		p := startPiped(t, name, "DATABASE_URL="+f.Database, strings.ToUpper(name)+"_LOG_LEVEL=debug")
		_ = p.reader.Close()
		p.awaitReady()
		for n := range 5 {
			if status := p.get(p.url + "/v1/pets"); status != want {
				t.Fatalf("%s, request %d: status %d, want %d", name, n+1, status, want)
			}
		}
		p.stop()
	}
}

//go:build e2e

package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"petgate/shared/testkit"
)

// TestOnAFreshMachine runs the documented command from an unpacked archive with nothing but the go command in PATH, and
// with empty HOME, GOPATH and GOCACHE. Modules come from the test's own module cache, which serves as a proxy: the
// test measures compilation.
func TestOnAFreshMachine(t *testing.T) {
	l := newLocal(t)
	goCommand, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	path, modules := t.TempDir(), ""
	if err := os.Symlink(goCommand, filepath.Join(path, "go")); err != nil {
		t.Fatal(err)
	}
	empty := t.TempDir()
	for _, setting := range l.env {
		if cache, ok := strings.CutPrefix(setting, "GOMODCACHE="); ok {
			modules = cache
		}
	}
	l.env = append(l.env[:2:2], "PATH="+path, "HOME="+empty, "GOPATH="+empty+"/go", "GOCACHE="+empty+"/cache",
		"GOFLAGS=-modcacherw", "GOPROXY=file://"+modules+"/cache/download", "GONOSUMDB=*", "GOTOOLCHAIN=local")

	began := time.Now()
	l.Process = testkit.Start(t, goCommand, l.env, "run", "petgate/deploy/local")
	testkit.Eventually(t, 10*time.Minute, "the welcome", func() bool {
		if code, ended := l.Wait(0); ended {
			t.Fatalf("it ended with exit code %d:\n%s", code, l.Stderr)
		}
		return strings.Contains(l.Stdout.String(), "set-plan demo pro")
	})
	t.Logf("figure: from empty caches to the first answer: %.0f s", time.Since(began).Seconds())
	if response, body := l.call(t, l.token(t), http.MethodGet, "/v1/pets", ""); response.StatusCode != http.StatusOK {
		t.Errorf("GET /v1/pets: %d %s", response.StatusCode, body)
	}
	l.keyadmin(t, "tenant", "show", "demo")

	// A terminal's Ctrl-C goes to the whole process group. The go command then always exits with 1, and
	// names the program's exit code if it was not 0.
	if err := syscall.Kill(-l.PID(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if l.ExitCode(t); strings.Contains(l.Stderr.String(), "exit status") {
		t.Errorf("after Ctrl-C: %s", l.Stderr)
	}
}

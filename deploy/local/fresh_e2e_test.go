//go:build e2e

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// TestOnAFreshMachine runs the documented command from an unpacked archive with nothing but the go
// command in PATH, and with an empty HOME. It compiles as `make build` does, so that it finds most
// packages in the cache.
func TestOnAFreshMachine(t *testing.T) {
	l := newLocal(t)
	goCommand := must.Get[string](t)(exec.LookPath("go"))
	path := t.TempDir()
	must.Do(t, os.Symlink(goCommand, filepath.Join(path, "go")))
	l.env = append(l.env, "PATH="+path, "HOME="+t.TempDir(), "GOFLAGS=-trimpath", "GOTOOLCHAIN=local")

	l.Process = testkit.Start(t, goCommand, l.env, "run", "petgate/deploy/local")
	l.awaitWelcome(t, 10*time.Minute)
	l.want(t, 200, l.token(t), "GET", "/v1/pets", "")
	l.keyadmin(t, "tenant", "show", "demo")

	// A terminal's Ctrl-C goes to the whole process group. The go command then always exits with 1,
	// and names the program's exit code if it was not 0.
	must.Do(t, syscall.Kill(-l.PID(), syscall.SIGINT))
	if l.ExitCode(t); strings.Contains(l.Stderr.String(), "exit status") {
		t.Errorf("after Ctrl-C: %s", l.Stderr)
	}
}

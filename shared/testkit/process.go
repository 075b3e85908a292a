package testkit

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// stopWithin bounds how long Stop waits: longer than any drain that a test asks for.
const stopWithin = 60 * time.Second

var builds struct {
	sync.Mutex
	dir  watchedDir
	done map[string]string
}

// Build returns the path of a package's binary, built once per test process without the race
// detector. If PETGATE_BIN is set, the binary in that directory is used instead, as in `make e2e`.
func Build(t testing.TB, pkg string) string {
	t.Helper()
	name := path.Base(pkg)
	if given := filepath.Join(os.Getenv("PETGATE_BIN"), name); os.Getenv("PETGATE_BIN") != "" {
		if _, err := os.Stat(given); err == nil {
			return given
		}
	}
	builds.Lock()
	defer builds.Unlock()
	if built := builds.done[name]; built != "" {
		return built
	}
	if builds.done == nil {
		builds.done = make(map[string]string)
	}
	out := filepath.Join(builds.dir.get(t, baseDir()), name)
	cmd := exec.Command("go", "build", "-trimpath", "-o", out, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("testkit: build %s: %v\n%s", pkg, err, text)
	}
	builds.done[name] = out
	return out
}

// HearHangups makes the programs that a test starts hear SIGHUP, even if the tests run under nohup:
// programs inherit an ignored signal, but not a handled one.
func HearHangups(t testing.TB) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(hangups) })
}

// Process is a program under test. It is killed at the end of the test.
type Process struct {
	Stdout, Stderr *Output

	cmd  *exec.Cmd
	life watch
	done chan struct{} // closed once code is set
	code int
}

// Start runs a program in the test's directory with the given environment. Of the test's
// environment it gets only PATH, HOME and TMPDIR, so settings in the developer's shell have no
// effect.
func Start(t testing.TB, path string, env []string, args ...string) *Process {
	t.Helper()
	return start(t, nil, path, env, args...)
}

// StartTo is Start for a program whose standard output and standard error are a file.
func StartTo(t testing.TB, output *os.File, path string, env []string, args ...string) *Process {
	t.Helper()
	return start(t, output, "/bin/sh", env, append([]string{"-c", `exec "$0" "$@" >&3 2>&3 3>&-`, path}, args...)...)
}

// start is Start for a program that inherits a file as descriptor 3, if the file is not nil.
func start(t testing.TB, inherited *os.File, path string, env []string, args ...string) *Process {
	t.Helper()
	p := &Process{Stdout: &Output{}, Stderr: &Output{}, cmd: exec.Command(path, args...), done: make(chan struct{})}
	for _, name := range []string{"PATH", "HOME", "TMPDIR"} {
		if value, ok := os.LookupEnv(name); ok {
			p.cmd.Env = append(p.cmd.Env, name+"="+value)
		}
	}
	p.cmd.Env = append(p.cmd.Env, env...)
	p.cmd.Stdout, p.cmd.Stderr = p.Stdout, p.Stderr
	if inherited != nil {
		p.cmd.ExtraFiles = []*os.File{inherited}
	}
	p.cmd.WaitDelay = time.Second // its children may hold the pipes open
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("testkit: start %s: %v", path, err)
	}
	life, err := watchProcess(p.cmd.Process.Pid, syscall.SIGKILL, "")
	if err != nil {
		_ = p.cmd.Process.Kill()
		t.Fatal(err)
	}
	p.life = life
	go p.wait()
	t.Cleanup(func() {
		code, ended := p.Wait(0)
		p.Kill()
		if t.Failed() && (!ended || code != 0) {
			t.Logf("%s, exit code %d, standard error:\n%s", filepath.Base(path), p.code, p.Stderr.tail())
		}
	})
	return p
}

func (p *Process) wait() {
	err := p.cmd.Wait()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		p.code = exit.ExitCode()
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		p.code = -1
	}
	p.life.release()
	close(p.done)
}

// Signal sends a signal. If the process has ended, it does nothing.
func (p *Process) Signal(signal os.Signal) { _ = p.cmd.Process.Signal(signal) }

// Pause stops the process with SIGSTOP and returns when all its threads have stopped: connections
// stay open, the kernel accepts new ones, and nothing responds.
func (p *Process) Pause(t testing.TB) {
	t.Helper()
	p.Signal(syscall.SIGSTOP)
	awaitStopped(t, p.PID())
}

// Resume ends a Pause.
func (p *Process) Resume() { p.Signal(syscall.SIGCONT) }

// Stop sends SIGTERM, waits for the end and returns the exit code. It kills a process that does not
// end within a minute and then returns -1.
func (p *Process) Stop() int {
	p.Signal(syscall.SIGTERM)
	code, ended := p.Wait(stopWithin)
	if !ended {
		p.Kill()
		return -1
	}
	return code
}

// Kill ends the process at once and waits until it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Wait waits for the end and returns the exit code (-1 after a signal), or false if the process
// still runs.
func (p *Process) Wait(within time.Duration) (code int, ended bool) {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		select { // with a time of 0, both may be true
		case <-p.done:
		default:
			return 0, false
		}
	}
	return p.code, true
}

// ExitCode waits for the end and returns the exit code. It fails the test if that takes longer than
// a minute.
func (p *Process) ExitCode(t testing.TB) int {
	t.Helper()
	code, ended := p.Wait(stopWithin)
	if !ended {
		t.Fatalf("testkit: %s has not ended after %v", filepath.Base(p.cmd.Path), stopWithin)
	}
	return code
}

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

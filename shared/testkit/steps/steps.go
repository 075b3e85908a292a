//go:build linux && amd64

// Package steps counts the instructions that a Go program executes, without a hardware counter: it
// executes the program step by step, with ptrace(2). Neither a busy machine nor its speed changes
// the count, because nothing is left to chance:
//   - The program has one processor (GOMAXPROCS=1) and no garbage collector (GOGC=off), and uses no instructions that only some
//     processors have (GODEBUG=cpu.all=off).
//   - The thread of Go's monitor stands still meanwhile: what it does depends on the time.
//   - The peers of the program send only when it waits: see Gate. Otherwise it would sometimes find their data before it waits.
//   - The program's own code is counted, not the kernel's code in the program's memory, which reads the clock.
//
// A step takes some microseconds. Timers of the program still fire in time, so it should have none:
// in a bubble of testing/synctest, time stands still while a goroutine waits for a connection.
package steps

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"petgate/shared/testkit/must"
)

// Environment makes a program do the same each time.
var Environment = []string{"GOMAXPROCS=1", "GOGC=off", "GODEBUG=cpu.all=off,asyncpreemptoff=1"}

// errForbidden means that a process cannot trace another one here, as in some containers.
var errForbidden = errors.New("steps: no process can be traced here")

// restsWithin limits the wait for a program that should wait for its peers. It is for a very slow
// machine.
const restsWithin = time.Minute

// Program is a program whose instructions can be counted. It is killed at the end of the test.
type Program struct {
	pid    int
	path   string
	orders chan func() // for the thread that has started the program: only this thread may trace it

	tracing  atomic.Bool
	counting atomic.Bool  // steps belong to the profile
	ending   atomic.Bool  // tracing is to end
	steps    atomic.Int64 // since the start
	profile  Profile      // of the last count
}

// Start runs a program with the given environment and Environment. It inherits a file as descriptor
// 3. Its standard output goes to /dev/null.
func Start(t testing.TB, path string, args, env []string, inherited *os.File) *Program {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	must.Do(t, err)
	stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	must.Do(t, err)
	p := &Program{path: path, orders: make(chan func())}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with this goroutine
		var err error
		p.pid, err = syscall.ForkExec(path, append([]string{path}, args...), &syscall.ProcAttr{
			Env: append(
				append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, Environment...),
				env...),
			Files: []uintptr{null.Fd(), null.Fd(), stderr.Fd(), inherited.Fd()},
			// It ends with this thread, even if the test is killed. It has a group of its own: see
			// wait.
			Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true},
		})
		started <- err
		for order := range p.orders {
			order()
		}
	}()
	if err := <-started; err != nil {
		t.Fatalf("steps: start %s: %v", path, err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
		_ = p.do(func() error {
			_, err := unix.Wait4(p.pid, nil, unix.WALL, nil)
			return err
		})
		close(p.orders)
		if text, err := os.ReadFile(stderr.Name()); t.Failed() && err == nil {
			t.Logf("%s, standard error:\n%s", filepath.Base(path), text)
		}
		_, _ = null.Close(), stderr.Close()
	})
	return p
}

// do runs f on the thread that may trace the program.
func (p *Program) do(f func() error) error {
	done := make(chan error, 1)
	p.orders <- func() { done <- f() }
	return <-done
}

// Count returns the instructions that the program executes while f runs, and then until it waits
// again. It skips the test where no process can be traced.
func (p *Program) Count(t testing.TB, f func()) Profile {
	t.Helper()
	p.Rest(t)
	attached, ended := make(chan error, 1), make(chan error, 1)
	go func() { ended <- p.do(func() error { return p.trace(attached) }) }()
	if err := <-attached; err != nil {
		<-ended
		if errors.Is(err, errForbidden) {
			t.Skipf("figure: instructions are not counted: %v", err)
		}
		t.Fatal(err)
	}
	p.Rest(t) // the start of the trace interrupted its waits
	p.counting.Store(true)
	f()
	p.Rest(t)
	p.ending.Store(true)
	_ = unix.Tgkill(p.pid, p.pid, unix.SIGURG) // wakes the tracing thread; Go's runtime ignores this signal
	must.Do(t, <-ended)
	return p.profile
}

// Rest waits until all threads of the program wait.
func (p *Program) Rest(t testing.TB) {
	t.Helper()
	for began := time.Now(); !p.rests(); time.Sleep(100 * time.Microsecond) {
		if time.Since(began) > restsWithin {
			t.Errorf("steps: %s does not wait within %v", filepath.Base(p.path), restsWithin)
			return
		}
	}
}

// Gate is Rest during a count, and does nothing at other times. A peer of the program calls it
// before it sends.
func (p *Program) Gate(t testing.TB) {
	if p.tracing.Load() {
		p.Rest(t)
	}
}

func (p *Program) rests() bool {
	before := p.steps.Load()
	_, workers, err := p.threads()
	if err != nil {
		return false
	}
	for _, thread := range workers {
		if !p.isAsleep(thread) {
			return false
		}
	}
	return p.steps.Load() == before // otherwise one thread may have woken another one meanwhile
}

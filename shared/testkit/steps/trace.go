//go:build linux && amd64

package steps

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// options of a trace: new threads are traced too, and the program ends with its tracer.
const options = unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_EXITKILL

// threads returns the program's threads. The monitor is the first one that Go's runtime creates,
// and the kernel lists threads in the order of their creation.
func (p *Program) threads() (monitor int, workers []int, err error) {
	dir, err := os.Open(fmt.Sprintf("/proc/%d/task", p.pid))
	if err != nil {
		return 0, nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return 0, nil, err
	}
	if len(names) < 2 {
		return 0, nil, errors.New(
			"steps: the program has no monitor: it is not written in Go, or has just been started",
		)
	}
	for i, name := range names {
		thread, err := strconv.Atoi(name)
		if err != nil {
			return 0, nil, err
		}
		if i == 1 {
			monitor = thread
		} else {
			workers = append(workers, thread)
		}
	}
	return monitor, workers, nil
}

// isAsleep reports whether a thread waits in the kernel. A thread that is being stepped is not
// asleep between two steps.
func (p *Program) isAsleep(thread int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/stat", p.pid, thread))
	_, rest, found := bytes.Cut(text, []byte(") "))
	return err == nil && found && rest[0] == 'S'
}

// callOf returns the number of the system call that a stopped thread is in, or -1.
func (p *Program) callOf(thread int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/syscall", p.pid, thread))
	number, _, _ := bytes.Cut(text, []byte(" "))
	n, parseErr := strconv.Atoi(string(number))
	if err != nil || parseErr != nil {
		return -1
	}
	return n
}

// trace steps through the program until ending is set. It sends to attached when it has begun, or
// cannot begin.
func (p *Program) trace(attached chan<- error) error {
	monitor, err := p.attach()
	if err != nil {
		attached <- err
		return err
	}
	p.profile = Profile{}
	p.counting.Store(false)
	p.ending.Store(false)
	p.tracing.Store(true)
	defer p.tracing.Store(false)
	attached <- nil
	_, workers, err := p.threads()
	if err != nil {
		return err
	}
	for _, thread := range workers {
		if err := step(thread, 0); err != nil {
			return err
		}
	}
	stopped, err := p.run()
	if err != nil {
		return err
	}
	return p.detach(monitor, stopped)
}

// attach stops all threads. The monitor must be in its sleep, where it holds no lock of the
// runtime.
func (p *Program) attach() (monitor int, err error) {
	if _, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", p.pid)); err != nil { // not every kernel has this file
		return 0, fmt.Errorf("%w: %w", errForbidden, err)
	}
	for began := time.Now(); ; {
		if monitor, err = p.seizeAll(); err != nil {
			return 0, err
		}
		switch p.callOf(monitor) {
		case unix.SYS_NANOSLEEP,
			unix.SYS_FUTEX,
			unix.SYS_RESTART_SYSCALL: // the last one continues an interrupted sleep
			return monitor, nil
		}
		if time.Since(began) > restsWithin {
			return 0, fmt.Errorf("steps: the monitor does not sleep within %v", restsWithin)
		}
		_, workers, err := p.threads()
		if err != nil {
			return 0, err
		}
		for _, thread := range append(workers, monitor) {
			if err := release(thread, 0); err != nil {
				return 0, err
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// seizeAll seizes all threads, also those that start meanwhile.
func (p *Program) seizeAll() (monitor int, err error) {
	for seized := map[int]bool{}; ; {
		monitor, workers, err := p.threads()
		if err != nil {
			return 0, err
		}
		before := len(seized)
		for _, thread := range append(workers, monitor) {
			if !seized[thread] {
				if err := seize(thread); err != nil {
					return 0, err
				}
				seized[thread] = true
			}
		}
		if len(seized) == before {
			return monitor, nil
		}
	}
}

// seize stops a thread.
func seize(thread int) error {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(thread), 0, options, 0, 0)
	if errno == syscall.EPERM || errno == syscall.ENOSYS {
		return fmt.Errorf("%w: %w", errForbidden, errno)
	}
	if errno != 0 {
		return fmt.Errorf("steps: seize thread %d: %w", thread, errno)
	}
	_, err := interrupt(thread)
	return err
}

// run steps all threads that stop, until ending is set. It returns the thread that stopped last.
func (p *Program) run() (stopped int, err error) {
	for {
		var status unix.WaitStatus
		thread, err := wait(-p.pid, &status)
		switch {
		case err != nil:
			return 0, err
		case !status.Stopped():
			if thread == p.pid {
				return 0, fmt.Errorf("steps: the program has ended: %#x", status)
			}
			continue // one thread has ended
		}
		signal := syscall.Signal(0)
		switch cause := int(status) >> 16; {
		case cause != 0: // a new thread
		case status.StopSignal() == syscall.SIGTRAP:
			p.count(thread)
		default:
			signal = status.StopSignal()
		}
		if p.ending.Load() {
			return thread, nil
		}
		if err := step(thread, signal); err != nil {
			return 0, err
		}
	}
}

// programEnd is above all addresses of the program's own code and below those of the kernel's code
// for reading the clock.
const programEnd = 1 << 40

// ripOffset is where struct user (sys/user.h) has the address of the next instruction.
const ripOffset = 16 * 8

// count counts a step of a thread, by the instruction that is next.
func (p *Program) count(thread int) {
	var at uint64
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PTRACE, unix.PTRACE_PEEKUSR, uintptr(thread), ripOffset,
		uintptr(unsafe.Pointer(&at)), 0, 0)
	p.steps.Add(1)
	if errno == 0 && at < programEnd && p.counting.Load() {
		p.profile[at]++
	}
}

// detach lets all threads go. One has stopped, by Count's signal, and the others wait.
func (p *Program) detach(monitor, stopped int) error {
	_, workers, err := p.threads()
	if err != nil {
		return err
	}
	for _, thread := range workers {
		signal := syscall.Signal(0)
		if thread != stopped {
			if signal, err = interrupt(thread); err != nil {
				return err
			}
		}
		if p.hasTrap(thread) { // without its tracer, this signal would kill the program
			if err := unix.PtraceCont(thread, 0); err != nil {
				return fmt.Errorf("steps: continue thread %d: %w", thread, err)
			}
			if _, err := wait(thread, new(unix.WaitStatus)); err != nil {
				return err
			}
		}
		if err := release(thread, signal); err != nil {
			return err
		}
	}
	return release(monitor, 0)
}

// interrupt stops a thread that waits. If it stops for a signal, it must get that when it is
// released.
func interrupt(thread int) (pending syscall.Signal, err error) {
	if err := unix.PtraceInterrupt(thread); err != nil {
		return 0, fmt.Errorf("steps: interrupt thread %d: %w", thread, err)
	}
	var status unix.WaitStatus
	if _, err := wait(thread, &status); err != nil {
		return 0, err
	}
	if !status.Stopped() {
		return 0, fmt.Errorf("steps: thread %d has ended", thread)
	}
	if int(status)>>16 != 0 || status.StopSignal() == syscall.SIGTRAP {
		return 0, nil
	}
	return status.StopSignal(), nil
}

// release lets a stopped thread go, and gives it a signal unless that is 0.
func release(thread int, signal syscall.Signal) error {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(thread), 0, uintptr(signal), 0,
		0)
	if errno != 0 {
		return fmt.Errorf("steps: detach thread %d: %w", thread, errno)
	}
	return nil
}

// hasTrap reports whether a stopped thread is about to get the signal of a step: its last step was
// a system call, and the interruption was first.
func (p *Program) hasTrap(thread int) bool {
	text, _ := os.ReadFile(
		fmt.Sprintf("/proc/%d/task/%d/status", p.pid, thread),
	) // if the thread has gone, release says so
	_, rest, _ := bytes.Cut(text, []byte("SigPnd:"))
	line, _, _ := bytes.Cut(bytes.TrimSpace(rest), []byte("\n"))
	pending, err := strconv.ParseUint(string(line), 16, 64)
	return err == nil && pending&(1<<(syscall.SIGTRAP-1)) != 0
}

// step lets a stopped thread execute one instruction, and gives it a signal unless that is 0.
func step(thread int, signal syscall.Signal) error {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PTRACE, unix.PTRACE_SINGLESTEP, uintptr(thread), 0, uintptr(signal),
		0, 0)
	if errno != 0 && errno != syscall.ESRCH { // ESRCH: it was killed
		return fmt.Errorf("steps: step thread %d: %w", thread, errno)
	}
	return nil
}

// wait waits for a thread to stop or end, or if the argument is negative for any thread of that
// process group. Programs that other goroutines have started, perhaps on this very thread, are left
// to them.
func wait(thread int, status *unix.WaitStatus) (int, error) {
	for {
		got, err := unix.Wait4(thread, status, unix.WALL|unix.WNOTHREAD, nil)
		if err != unix.EINTR {
			if err != nil {
				err = fmt.Errorf("steps: wait: %w", err)
			}
			return got, err
		}
	}
}

package main

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// endWithParent has the kernel kill the process when bench ends, even if bench is killed.
func endWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// cpuOf is the processor time of a process, by the clock that the kernel has for it
// (clock_getcpuclockid(3)). 0: it has ended.
func cpuOf(pid int) time.Duration {
	var used unix.Timespec
	_ = unix.ClockGettime(int32(^pid<<3|2), &used)
	return time.Duration(used.Nano())
}

// sleepUntil blocks the thread until this instant.
func sleepUntil(at time.Time) {
	for left := time.Until(at); left > 0; left = time.Until(at) {
		t := unix.NsecToTimespec(left.Nanoseconds())
		_ = unix.Nanosleep(&t, nil)
	}
}

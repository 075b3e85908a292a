//go:build linux && (amd64 || arm64) && !race

package socket

import (
	"syscall"
	"unsafe"
)

// The calls of this file are recv(2) and send(2) without the announcement to the scheduler that the
// functions of package syscall make. With MSG_DONTWAIT they return at once even on a blocking
// descriptor: a thread that blocked here would stop the whole process at the next garbage
// collection. The race detector does not see what they read and write, so a program built with it
// makes announced calls: see calls_other.go.

func quietRead(fd uintptr, p []byte) (int, syscall.Errno) {
	return call(syscall.SYS_RECVFROM, fd, p, syscall.MSG_DONTWAIT)
}

func quietWrite(fd uintptr, p []byte) (int, syscall.Errno) {
	return call(syscall.SYS_SENDTO, fd, p, syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL)
}

func quietPeek(fd uintptr) (int, syscall.Errno) {
	var b [1]byte
	return call(syscall.SYS_RECVFROM, fd, b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
}

func call(number, fd uintptr, p []byte, flags uintptr) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall6(number, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), flags, 0, 0)
		if errno != syscall.EINTR {
			return int(n), errno
		}
	}
}

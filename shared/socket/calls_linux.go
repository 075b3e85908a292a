//go:build linux && (amd64 || arm64)

package socket

import (
	"syscall"
	"unsafe"
)

// The calls are those of read(2), write(2) and recv(2), without the announcement to the scheduler that the functions of
// package syscall begin with. They must be given non-blocking sockets only.

func read(fd uintptr, p []byte) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)))
		if errno == 0 {
			return int(n), 0
		}
		if errno != syscall.EINTR {
			return 0, errno
		}
	}
}

func write(fd uintptr, p []byte) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)))
		if errno == 0 {
			return int(n), 0
		}
		if errno != syscall.EINTR {
			return 0, errno
		}
	}
}

// peek returns EAGAIN where the connection is open and nothing is to be read, and 0 where there is something or it has
// ended.
func peek(fd uintptr) syscall.Errno {
	var b [1]byte
	for {
		_, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&b)), uintptr(len(b)),
			syscall.MSG_PEEK|syscall.MSG_DONTWAIT, 0, 0)
		if errno != syscall.EINTR {
			return errno
		}
	}
}

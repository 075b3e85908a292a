//go:build !(linux && (amd64 || arm64)) || race || announced

package socket

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// Here all calls are announced. With the build tag announced, the kernel counts the calls of a process: see proc(5), io.

func quietRead(fd uintptr, p []byte) (int, syscall.Errno) {
	for {
		n, err := unix.Read(int(fd), p)
		if err != unix.EINTR {
			return max(n, 0), number(err)
		}
	}
}

func quietWrite(fd uintptr, p []byte) (int, syscall.Errno) {
	for {
		n, err := unix.Write(int(fd), p)
		if err != unix.EINTR {
			return max(n, 0), number(err)
		}
	}
}

func quietPeek(fd uintptr) syscall.Errno {
	var b [1]byte
	for {
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if err != unix.EINTR {
			return number(err)
		}
	}
}

// number returns the kernel's number of an error. Package unix returns no other errors.
func number(err error) syscall.Errno {
	var errno syscall.Errno
	errors.As(err, &errno)
	return errno
}

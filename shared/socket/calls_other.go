//go:build !(linux && (amd64 || arm64))

package socket

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// Elsewhere the calls are announced.

func read(fd uintptr, p []byte) (int, syscall.Errno) {
	for {
		n, err := unix.Read(int(fd), p)
		if err != unix.EINTR {
			return max(n, 0), number(err)
		}
	}
}

func write(fd uintptr, p []byte) (int, syscall.Errno) {
	for {
		n, err := unix.Write(int(fd), p)
		if err != unix.EINTR {
			return max(n, 0), number(err)
		}
	}
}

func peek(fd uintptr) syscall.Errno {
	var b [1]byte
	for {
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if err != unix.EINTR {
			return number(err)
		}
	}
}

// number is the kernel's of an error; the package unix returns no other.
func number(err error) syscall.Errno {
	var errno syscall.Errno
	errors.As(err, &errno)
	return errno
}

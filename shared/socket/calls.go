package socket

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// The announced calls.

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

// peek returns EAGAIN if the connection is open and has no data. It returns 0 if it has data or the peer has closed it.
func peek(fd uintptr) syscall.Errno {
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

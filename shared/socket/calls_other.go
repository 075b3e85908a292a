//go:build !(linux && (amd64 || arm64)) || race || announced

package socket

import (
	"errors"
	"syscall"
)

// Here all calls are announced. They are those of package syscall, as package net's are: the race detector knows that what was written
// happened before it is read. With the build tag announced, the kernel counts the calls of a process: see proc(5), io.

func quietRead(fd uintptr, p []byte) (int, syscall.Errno) {
	for {
		n, err := syscall.Read(int(fd), p)
		if err != syscall.EINTR {
			return max(n, 0), number(err)
		}
	}
}

func quietWrite(fd uintptr, p []byte) (int, syscall.Errno) {
	for {
		n, err := syscall.Write(int(fd), p)
		if err != syscall.EINTR {
			return max(n, 0), number(err)
		}
	}
}

func quietPeek(fd uintptr) (int, syscall.Errno) {
	var b [1]byte
	for {
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		if err != syscall.EINTR {
			return n, number(err)
		}
	}
}

// number returns the kernel's number of an error of package syscall, whose errors are all such numbers.
func number(err error) syscall.Errno {
	var errno syscall.Errno
	errors.As(err, &errno)
	return errno
}

//go:build !(linux && (amd64 || arm64)) || race

package socket

import (
	"errors"
	"syscall"
)

// Here all calls are announced. They are those of package syscall, as package net's are: the race
// detector knows that what was written happened before it is read.

func quietRead(fd uintptr, p []byte) (int, syscall.Errno) {
	return call(func() (int, error) { return syscall.Read(int(fd), p) })
}

func quietWrite(fd uintptr, p []byte) (int, syscall.Errno) {
	return call(func() (int, error) { return syscall.Write(int(fd), p) })
}

func quietPeek(fd uintptr) (int, syscall.Errno) {
	var b [1]byte
	return call(func() (int, error) {
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return n, err
	})
}

func call(f func() (int, error)) (_ int, errno syscall.Errno) {
	for {
		n, err := f()
		if err != syscall.EINTR {
			errors.As(err, &errno) // all errors of package syscall are such numbers
			return n, errno
		}
	}
}

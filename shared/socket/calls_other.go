//go:build !(linux && (amd64 || arm64)) || race

package socket

import "syscall"

// Here all calls are announced.

const canCallQuietly = false

func quietRead(fd uintptr, p []byte) (int, syscall.Errno)  { return read(fd, p) }
func quietWrite(fd uintptr, p []byte) (int, syscall.Errno) { return write(fd, p) }
func quietPeek(fd uintptr) syscall.Errno                   { return peek(fd) }

//go:build !linux

package main

import "syscall"

// endWithParent does nothing: bench measures on Linux only.
func endWithParent(*syscall.SysProcAttr) {}

//go:build !linux

package main

import (
	"syscall"
	"time"
)

// Bench measures on Linux only.

func endWithParent(*syscall.SysProcAttr) {}
func cpuOf(int) time.Duration            { return 0 }
func sleepUntil(time.Time)               {}

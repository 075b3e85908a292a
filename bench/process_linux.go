package main

import "syscall"

// endWithParent has the kernel kill the process when bench ends, even if bench is killed.
func endWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

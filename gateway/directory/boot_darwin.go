package directory

import "syscall"

// bootID names this run of the host's kernel.
func bootID() string {
	name, err := syscall.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return name
}

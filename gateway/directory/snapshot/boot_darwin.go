package snapshot

import "syscall"

// bootID returns the ID of the host's current boot.
func bootID() string {
	name, err := syscall.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return name
}

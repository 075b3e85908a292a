package snapshot

import (
	"os"
	"strings"
)

// bootID returns the ID of the host's current boot. It is the same in all containers of the host.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

package directory

import (
	"os"
	"strings"
)

// bootID names this run of the host's kernel, for containers too.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

package directory

import (
	"os"
	"runtime/debug"
)

const (
	keyBytes    = 88 + 2*8 // a record and its places in two indexes
	tenantBytes = 120

	// What the process may allocate, beside a large directory, before the collector runs.
	headroomBytes = 40 << 20
	gcPercentMin  = 20
)

// settle keeps the process small after a load, whose garbage exceeds what stays, and while it works: records live for ever, and
// by Go's default the heap would grow to twice their size between collections. These are cheap, since records hold no pointers.
// Not a memory limit: at its edge the collector would run without end. GOGC, if set, is left alone.
func settle(keys, tenants int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent(keys, tenants))
	}
	debug.FreeOSMemory()
}

func gcPercent(keys, tenants int) int {
	held := keys*keyBytes + tenants*tenantBytes
	if held <= headroomBytes {
		return 100
	}
	return max(100*headroomBytes/held, gcPercentMin)
}

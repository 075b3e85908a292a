package app

import (
	"os"
	"runtime/debug"
)

const (
	// Sizes of the directory's data in memory.
	keyBytes    = 96 + 2*8 // a record and its entries in two indexes
	tenantBytes = 120

	// How much the process may allocate, in addition to a large directory, before the garbage
	// collector runs.
	headroomBytes = 40 << 20
	gcPercentMin  = 20
)

// tuneCollector keeps the process small after the directory was loaded. A load leaves more garbage
// than data, so the memory is returned to the system at once. Most of the directory is records of
// keys, which stay for a long time and hold no pointers, so a collection is cheap. It therefore
// runs earlier than by Go's default, which lets the heap grow to twice its size. If GOGC is set,
// the operator decides. Package service sets the memory limit.
func tuneCollector(keys, tenants int) {
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

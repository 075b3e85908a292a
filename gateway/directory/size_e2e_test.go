//go:build e2e

package directory

// Full sizes.
const (
	tenantsLoaded = 100_000
	keysLoaded    = 1_000_000
	bogusLookups  = 1_000_000
	lookupsTimed  = 1_000_000
	allocations   = 4_000_000
	changesMade   = 12_000 // attempts: one in nine finds nothing to change
)

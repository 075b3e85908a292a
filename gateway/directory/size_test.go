//go:build !e2e

package directory

// Reduced sizes, for every run.
const (
	tenantsLoaded = 2_000
	keysLoaded    = 20_000
	bogusLookups  = 50_000
	lookupsTimed  = 50_000
	allocations   = 50_000
	changesMade   = 800
)

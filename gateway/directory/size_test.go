package directory

import "petgate/shared/testkit"

// Sizes of the tests of this package.
var (
	tenantsLoaded = testkit.Size(500, 25_000)
	keysLoaded    = testkit.Size(5_000, 250_000)
	bogusLookups  = testkit.Size(20_000, 1_000_000)
	lookupsTimed  = testkit.Size(20_000, 1_000_000)
	allocations   = testkit.Size(50_000, 1_000_000)
	changesMade   = testkit.Size[int64](400, 4_000) // attempts: one in nine finds nothing to change
)

//go:build !e2e

package e2e_test

import "time"

// Reduced sizes, for every run.
const (
	confirmMedianMax    = time.Second // beside the tests of other packages
	revocations         = 6
	revocationsLost     = 2
	revocationsCut      = 2
	revocationsStarting = 4
	outage              = 2 // seconds without a database
	massTenants         = 2_000
	massKeys            = 20_000
	massBogus           = 20_000
)

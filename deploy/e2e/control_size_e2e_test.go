//go:build e2e

package e2e_test

import "time"

// Full sizes.
const (
	confirmMedianMax    = 5 * 50 * time.Millisecond // packages are tested one at a time
	revocations         = 40
	revocationsLost     = 20 // with every notification lost
	revocationsCut      = 10 // with the listening sessions cut again and again
	revocationsStarting = 30 // against a gateway that is just starting
	outage              = 10 // seconds without a database
	massTenants         = 100_000
	massKeys            = 1_000_000
	massBogus           = 1_000_000
)

//go:build e2e

package edge_test

import "time"

// Sizes of the slow tests in `make e2e`: zero is the product's own timeout.
const (
	slowClients  = 800
	slowReaders  = 800
	idleClients  = 10_000
	slowTimeout  = time.Duration(0)
	honestRounds = 2000

	// What a connection may cost in heap and stacks.
	idleBytesMax = 8 << 10
	slowBytesMax = 13 << 10
)

//go:build !e2e

package edge_test

import "time"

// Sizes of the slow tests in `make test`: a few seconds each. The e2e tests hold the product's own figures.
const (
	slowClients  = 100
	slowReaders  = 20
	idleClients  = 1000
	slowTimeout  = time.Second
	honestRounds = 300

	// What a connection may cost in heap and stacks, with room for what the race detector adds.
	idleBytesMax = 16 << 10
	slowBytesMax = 24 << 10
)

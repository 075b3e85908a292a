package edge_test

import (
	"time"

	"petgate/shared/testkit"
)

// Sizes of the slow tests.
var (
	slowClients  = testkit.Size[int64](100, 800)
	slowReaders  = testkit.Size[int64](20, 800)
	idleClients  = testkit.Size[int64](1000, 10_000)
	honestRounds = testkit.Size(300, 2000)

	// In full size they are the product's own timeouts: the default of GATEWAY_READ_TIMEOUT, and 0, which selects the edge's default.
	slowReadTimeout  = testkit.Size(time.Second, 4*time.Second)
	slowWriteTimeout = testkit.Size(time.Second, 0)

	// What a connection may cost in heap and stacks. Reduced tests have the race detector, which adds to it.
	idleBytesMax = testkit.Size[int64](16<<10, 8<<10)
	slowBytesMax = testkit.Size[int64](24<<10, 13<<10)
)

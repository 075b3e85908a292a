package quotas

import (
	"context"
	"slices"
	"sync/atomic"
	"time"
)

// fleetEvery is how often the number of registered gateways is read.
const fleetEvery = time.Second

// fleet remembers how many gateways were registered. What a gateway admitted in its last minute still counts after it has left, so
// shares divide by the largest number of the last window. It is safe for concurrent use.
type fleet struct {
	numbers []int64 // of a window and a slice; only watch uses it
	largest atomic.Int64
}

func newFleet(window time.Duration) *fleet {
	return &fleet{numbers: make([]int64, window/fleetEvery+2)}
}

// watch reads the number of gateways until closing ends, also while Redis answers.
func (f *fleet) watch(closing context.Context, registered func() int64) {
	tick := time.NewTicker(fleetEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		f.numbers[n%len(f.numbers)] = registered()
		f.largest.Store(slices.Max(f.numbers))
		select {
		case <-closing.Done():
			return
		case <-tick.C:
		}
	}
}

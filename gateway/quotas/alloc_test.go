//go:build !race

// The race detector makes pools forget at random, so that allocations say nothing.

package quotas

import (
	"runtime"
	"sync"
	"testing"
)

func TestTakeAllocations(t *testing.T) {
	l := openShared(t, Config{})
	// A batch allocates a context, a timer and a closure. Its requests share this cost.
	const requests, concurrency = 51_200, 512
	var all sync.WaitGroup
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range concurrency {
		all.Go(func() {
			for range requests / concurrency {
				mustTake(t, l, asking(i%8, 1_000_000))
			}
		})
	}
	all.Wait()
	runtime.ReadMemStats(&after)
	each := float64(after.Mallocs-before.Mallocs) / requests
	t.Logf("%.3f allocations a request at a concurrency of %d", each, concurrency)
	if each > 1 {
		t.Error("more than one")
	}
	refused := asking(2, 1)
	mustTake(t, l, refused)
	mustTake(t, l, refused)
	if n := testing.AllocsPerRun(100, func() { mustTake(t, l, refused) }); n != 0 {
		t.Errorf("a remembered refusal allocates %v times", n)
	}
}

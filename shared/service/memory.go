package service

import (
	"log/slog"
	"math"
	"os"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// memoryRatio is the part of a container's memory that Go may use. The rest is for memory that Go does not count but the container
// does, above all the kernel's buffers of sockets.
const memoryRatio = 0.8

// limitMemory makes the garbage collector run more often when the process comes near the memory limit of its container. Without it,
// the kernel would kill the process although much of its memory is garbage. If GOMEMLIMIT is set, the operator decides.
func limitMemory(container memlimit.Provider, log *slog.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	limit, err := memlimit.Set(memlimit.WithProvider(container), memlimit.WithRatio(memoryRatio))
	if err != nil || limit == math.MaxInt64 { // not Linux, or no limit
		return
	}
	log.Info("Go's memory limit is a part of the container's: set GOMEMLIMIT for another one", "limitBytes", limit)
}

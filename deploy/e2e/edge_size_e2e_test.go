//go:build e2e

package e2e_test

import (
	"testing"
	"time"
)

// Full sizes of the edge's tests.
const (
	edgeDrainDelay = "2s"
	edgeHeldFor    = 5 * time.Second // a request in flight
	edgeRestarts   = 2               // of each pet service
	edgeKills      = 5
	edgeQuota      = 2000
	edgeMutations  = 10_000
)

// together lets reduced tests overlap; in full size one would spoil another's figures.
func together(*testing.T) {}

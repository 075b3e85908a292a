//go:build !e2e

package e2e_test

import (
	"testing"
	"time"
)

// Sizes of the edge's tests in every run.
const (
	edgeDrainDelay = "500ms"
	edgeHeldFor    = 2500 * time.Millisecond // a request in flight
	edgeRestarts   = 1                       // of each pet service
	edgeKills      = 1
	edgeQuota      = 200
	edgeMutations  = 300
)

// together lets reduced tests overlap; in full size one would spoil another's figures.
func together(t *testing.T) { t.Parallel() }

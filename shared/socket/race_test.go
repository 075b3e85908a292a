//go:build race

package socket

import "testing"

// The race detector does not see what a quiet call reads and writes, so there must be none in a program that has it.
func TestTheRaceDetectorSeesEveryCall(t *testing.T) {
	if canCallQuietly || saves.quiet {
		t.Error("calls are quiet")
	}
}

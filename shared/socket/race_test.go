//go:build race

package socket

import "testing"

// The race detector does not see what a quiet call reads and writes, so a program built with it must make none.
func TestTheRaceDetectorSeesEveryCall(t *testing.T) {
	if canCallQuietly || saves.quiet {
		t.Error("calls are quiet")
	}
}

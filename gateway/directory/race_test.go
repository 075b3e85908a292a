//go:build race

package directory

// raceEnabled: the race detector multiplies time and memory, so that figures say nothing.
const raceEnabled = true

//go:build race

package directory

// raceEnabled reports whether the race detector is on. It multiplies time and memory, so limits on them are not checked.
const raceEnabled = true

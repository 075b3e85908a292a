//go:build !race

package directory

// raceEnabled: see the other file of this name.
const raceEnabled = false

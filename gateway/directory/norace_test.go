//go:build !race

package directory

// raceEnabled: see race_test.go.
const raceEnabled = false

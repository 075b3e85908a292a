package testkit

import (
	"slices"
	"time"
)

// MostIn is the largest number of admissions in any window of that length.
func MostIn(admitted []time.Time, window time.Duration) (most int) {
	slices.SortFunc(admitted, time.Time.Compare)
	first := 0
	for i, at := range admitted {
		for at.Sub(admitted[first]) >= window {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

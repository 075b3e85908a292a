// Package soak holds the long run of `make soak`: the built programs under load, key churn, restarts and faults, while
// their memory, goroutines and descriptors are watched. The run itself is a test with the build tag soak.
package soak

import (
	"math"
	"slices"
	"time"
)

// series is the measurements of one process over a run.
type series struct {
	at     []time.Duration // since the run began, ascending
	values []float64
}

func (s *series) add(at time.Duration, value float64) {
	s.at, s.values = append(s.at, at), append(s.values, value)
}

const (
	// A run is cut into bins, and each bin counts with its median: neighbouring samples depend on one another, and a garbage
	// collection makes a sawtooth.
	bins = 12
	// sureness is the 99.9% quantile of Student's t with bins-2 degrees of freedom: of a thousand series that do not grow, one
	// looks as if it did.
	sureness = 4.14
)

// slope is how a series changes.
type slope struct {
	level   float64 // the median of all samples
	perHour float64
	noise   float64 // the possible error of the slope, per hour
}

// grows reports whether the series rises by more than its noise.
func (s slope) grows() bool { return s.perHour > s.noise }

// slope fits a line to the medians of the bins, by least squares. Growth over the whole run of less than resolution is noise.
// The second result is false if there are too few samples.
func (s *series) slope(resolution float64) (slope, bool) {
	if len(s.values) < 2*bins {
		return slope{}, false
	}
	var x, y [bins]float64
	for i := range bins {
		from, to := i*len(s.values)/bins, (i+1)*len(s.values)/bins
		x[i] = s.at[(from+to-1)/2].Hours()
		y[i] = median(s.values[from:to])
	}
	meanX, meanY := mean(x[:]), mean(y[:])
	var xx, xy, residuals float64
	for i := range bins {
		xx += (x[i] - meanX) * (x[i] - meanX)
		xy += (x[i] - meanX) * (y[i] - meanY)
	}
	rate := xy / xx
	for i := range bins {
		off := y[i] - meanY - rate*(x[i]-meanX)
		residuals += off * off
	}
	deviation := math.Sqrt(residuals / (bins - 2) / xx)
	length := (s.at[len(s.at)-1] - s.at[0]).Hours()
	return slope{median(s.values), rate, max(sureness*deviation, resolution/length)}, true
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

func mean(values []float64) (sum float64) {
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

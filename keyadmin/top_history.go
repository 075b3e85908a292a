package main

import (
	"math"
	"time"
)

// sparkFor is the time that a sparkline shows.
const sparkFor = time.Minute

// history has the rates of the last minute. It is never changed, so a drawing may use it while the next refresh is made.
type history struct{ samples []sample }

// sample is a mean rate over a time.
type sample struct {
	end  time.Time
	over time.Duration
	rate float64
}

// recent returns a history without what no sparkline shows any longer, and with more samples.
func (h history) recent(now time.Time, more ...sample) history {
	kept := make([]sample, 0, len(h.samples)+len(more))
	for _, s := range h.samples {
		if now.Sub(s.end) < 2*sparkFor {
			kept = append(kept, s)
		}
	}
	return history{append(kept, more...)}
}

// bins returns the mean rates of the last minute in n parts, the latest last. The parts begin at multiples of their length, so a
// rate does not move from one part to the next. NaN: nothing is known.
func (h history) bins(now time.Time, n int) []float64 {
	length := sparkFor / time.Duration(n)
	end := now.Truncate(length).Add(length)
	rates := make([]float64, n)
	for i := range rates {
		from := end.Add(-length * time.Duration(n-i))
		sum, covered := 0.0, time.Duration(0)
		for _, s := range h.samples {
			part := min(s.end.Sub(from), length) - max(s.end.Add(-s.over).Sub(from), 0)
			if part > 0 {
				sum, covered = sum+s.rate*part.Seconds(), covered+part
			}
		}
		rates[i] = math.NaN()
		if covered > 0 {
			rates[i] = sum / covered.Seconds()
		}
	}
	return rates
}

// The characters of sparklines, from nothing to the largest.
var (
	sparkBlocks = []rune("▁▂▃▄▅▆▇█")
	sparkASCII  = []rune("_.:-=+*#")
)

// spark draws rates. The largest one has the highest character; only a rate of 0 has the lowest.
func spark(rates []float64, signs []rune) string {
	most := 0.0
	for _, r := range rates {
		if r > most { // not NaN
			most = r
		}
	}
	text := make([]rune, len(rates))
	for i, r := range rates {
		switch {
		case math.IsNaN(r):
			text[i] = ' '
		case r <= 0:
			text[i] = signs[0]
		default:
			text[i] = signs[max(1, int(math.Ceil(r/most*float64(len(signs)-1))))]
		}
	}
	return string(text)
}

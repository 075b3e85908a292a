package app

import (
	"testing"
	"time"

	"petgate/gateway/edge"
)

func TestPercentile(t *testing.T) {
	bounds := []float64{0.001, 0.01, 0.1}
	for _, c := range []struct {
		name   string
		counts []uint64
		all    uint64
		part   float64
		want   float64 // ms; -1: none
	}{
		{"no requests", []uint64{0, 0, 0}, 0, 0.5, -1},
		{"all in the first bucket", []uint64{10, 10, 10}, 10, 0.5, 0.5},
		{"in the middle of the second", []uint64{0, 10, 10}, 10, 0.5, 5.5},
		{"an empty bucket between", []uint64{5, 5, 10}, 10, 0.99, 98.2},
		{"above the last bound", []uint64{0, 0, 0}, 10, 0.99, 100},
	} {
		got := percentile(edge.Latencies{Bounds: bounds, Counts: c.counts, All: c.all}, c.part)
		switch {
		case got == nil && c.want >= 0, got != nil && (*got-c.want > 1e-6 || c.want-*got > 1e-6):
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// The latencies are those of the last 10 to 20 s, or since the question before. After a pause of more than 90 s, older ones do not count.
// They are read with the lock: otherwise, a second call could remember later counts in between.
func TestLatencyWindow(t *testing.T) {
	var w latencyWindow
	start := time.Now()
	for _, c := range []struct {
		after     time.Duration
		all, want uint64
	}{
		{0, 100, 0},
		{time.Second, 101, 1},
		{9 * time.Second, 109, 9},
		{10 * time.Second, 110, 10},
		{19 * time.Second, 119, 19},
		{20 * time.Second, 120, 10},
		{21 * time.Second, 121, 11},
		{50 * time.Second, 150, 30},
		{110 * time.Second, 210, 60},
		{170 * time.Second, 270, 60},
		{171 * time.Second, 271, 61},
		{261 * time.Second, 900, 0},
		{262 * time.Second, 901, 1},
	} {
		got := w.next(start.Add(c.after), func() edge.Latencies {
			if w.mu.TryLock() {
				t.Errorf("after %v: the latencies are read without the lock", c.after)
				w.mu.Unlock()
			}
			return edge.Latencies{Bounds: []float64{1}, Counts: []uint64{c.all}, All: c.all}
		})
		if got.All != c.want || got.Counts[0] != c.want {
			t.Errorf("after %v: %+v, want %d", c.after, got, c.want)
		}
	}
}

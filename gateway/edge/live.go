package edge

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Latencies are the counts of a histogram since the start: Counts[i] requests took at most Bounds[i] seconds, All requests took any
// time.
type Latencies struct {
	Bounds []float64
	Counts []uint64
	All    uint64
}

// Latencies returns the times of all requests since the start.
func (e *Edge) Latencies() Latencies {
	var l Latencies
	for _, one := range e.metrics.all {
		h := read(one.seconds.(prometheus.Metric)).GetHistogram()
		l.All += h.GetSampleCount()
		for i, bucket := range h.GetBucket() {
			if i == len(l.Bounds) {
				l.Bounds, l.Counts = append(l.Bounds, bucket.GetUpperBound()), append(l.Counts, 0)
			}
			l.Counts[i] += bucket.GetCumulativeCount()
		}
	}
	return l
}

// Bans returns how many bans this gateway has imposed since the start.
func (e *Edge) Bans() int64 { return int64(read(e.metrics.bans).GetCounter().GetValue()) }

func read(metric prometheus.Metric) *dto.Metric {
	var m dto.Metric
	if err := metric.Write(&m); err != nil {
		panic(fmt.Sprintf("bug: a metric cannot be read: %v", err))
	}
	return &m
}

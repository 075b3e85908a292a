package redis

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are what the package counts.
type Metrics struct {
	tripOK, tripFailed, tripUnsure           prometheus.Counter
	tripSeconds, batchRequests, batchTenants prometheus.Histogram
	timeouts, recordErrors                   prometheus.Counter
	serversDown                              prometheus.Gauge
}

// NewMetrics registers the metrics; a nil registerer registers none.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	auto := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return auto.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	}
	trips := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "petgate_gateway_limits_trips_total",
		Help: "Batches sent to Redis: ok, failed (not executed), or unsure (may have been executed).",
	}, []string{"result"})
	powers := prometheus.ExponentialBuckets(1, 2, 11)
	return &Metrics{
		tripOK:     trips.WithLabelValues("ok"),
		tripFailed: trips.WithLabelValues("failed"),
		tripUnsure: trips.WithLabelValues("unsure"),
		tripSeconds: histogram("petgate_gateway_limits_trip_seconds", "Duration of a trip to Redis.",
			prometheus.ExponentialBuckets(0.0001, 2, 11)),
		batchRequests: histogram("petgate_gateway_limits_batch_requests", "Requests decided by one trip to Redis.",
			powers),
		batchTenants: histogram("petgate_gateway_limits_batch_tenants", "Tenants decided by one trip to Redis.",
			powers),
		timeouts: counter("petgate_gateway_limits_timeouts_total",
			"Requests whose budget ended before Redis had decided them."),
		recordErrors: counter("petgate_gateway_limits_record_errors_total",
			"Decisions for which a tenant's record in Redis was unusable."),
		serversDown: auto.NewGauge(prometheus.GaugeOpts{
			Name: "petgate_gateway_limits_redis_servers_down",
			Help: "Redis servers that are considered down and get no batches.",
		}),
	}
}

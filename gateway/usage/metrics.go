package usage

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	droppedRequests, droppedAttempts prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) metrics {
	counter := func(name, help string) prometheus.Counter {
		return promauto.With(reg).NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return metrics{
		droppedRequests: counter("petgate_gateway_usage_dropped_requests_total",
			"Requests that the usage lacks: the database was unavailable for too long."),
		droppedAttempts: counter("petgate_gateway_usage_dropped_attempts_total",
			"Requests that the usage by minute lacks: the database was unavailable for too long."),
	}
}

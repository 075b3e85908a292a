package pets

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are the metrics of requests. An outcome is ok, created, replayed or the code of an error,
// as in the access log.
type metrics struct {
	requests       *prometheus.CounterVec
	seconds        *prometheus.HistogramVec
	acceptFailures prometheus.Counter
}

// newMetrics also registers the metrics of the store.
func newMetrics(reg prometheus.Registerer, s *store) metrics {
	with := promauto.With(reg)
	gauge := func(name, help string, value func() int) {
		with.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
	}
	gauge("petgate_petsvc_database_up", "1 while the database is available and requests may use it.", func() int {
		if s.fault.Load() != nil {
			return 0
		}
		return 1
	})
	gauge("petgate_petsvc_queue_requests", "Requests waiting for a connection to the database.",
		func() int { return int(s.waiting.Load()) })
	gauge("petgate_petsvc_busy_connections", "Connections to the database in use by requests.",
		func() int { return int(s.busy.Load()) })
	gauge("petgate_petsvc_usable_connections", "Connections to the database available to requests, in use or not.",
		func() int { return s.usable })
	return metrics{
		requests: with.NewCounterVec(prometheus.CounterOpts{
			Name: "petgate_petsvc_requests_total", Help: "Requests served, by operation and outcome.",
		}, []string{"operation", "outcome"}),
		seconds: with.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "petgate_petsvc_request_seconds",
			Help:    "Time from a request's last byte to its response's first, by operation.",
			Buckets: []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}, []string{"operation"}),
		acceptFailures: with.NewCounter(prometheus.CounterOpts{
			Name: "petgate_petsvc_accept_failures_total",
			Help: "Connections that could not be accepted, for example for lack of file descriptors.",
		}),
	}
}

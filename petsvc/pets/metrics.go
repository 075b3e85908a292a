package pets

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"petgate/shared/trace"
)

// metrics are the metrics of petsvc. An outcome is ok, created, replayed or the code of an error, as in the access log.
type metrics struct {
	requests   *prometheus.CounterVec
	seconds    *prometheus.HistogramVec
	databaseUp prometheus.Gauge

	acceptFailures prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	with := promauto.With(reg)
	return &metrics{
		requests: with.NewCounterVec(prometheus.CounterOpts{
			Name: "petgate_petsvc_requests_total", Help: "Requests served, by operation and outcome.",
		}, []string{"operation", "outcome"}),
		seconds: with.NewHistogramVec(prometheus.HistogramOpts{
			Name: "petgate_petsvc_request_seconds", Help: "Time from a request's last byte to its response's first, by operation.",
			Buckets: []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}, []string{"operation"}),
		acceptFailures: with.NewCounter(prometheus.CounterOpts{
			Name: "petgate_petsvc_accept_failures_total", Help: "Connections that could not be accepted, for example for lack of file descriptors.",
		}),
		databaseUp: with.NewGauge(prometheus.GaugeOpts{
			Name: "petgate_petsvc_database_up", Help: "1 while the database is available and requests may use it.",
		}),
	}
}

// watch adds the metrics of the store.
func (*metrics) watch(reg prometheus.Registerer, s *store) {
	gauge := func(name, help string, value func() float64) {
		promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	gauge("petgate_petsvc_queue_requests", "Requests waiting for a connection to the database.",
		func() float64 { return float64(s.waiting.Load()) })
	gauge("petgate_petsvc_busy_connections", "Connections to the database in use by requests.",
		func() float64 { return float64(len(s.slots)) })
	gauge("petgate_petsvc_usable_connections", "Connections to the database available to requests, in use or not.",
		func() float64 { return float64(cap(s.slots)) })
}

func (m *metrics) count(operation, outcome string, took time.Duration, span *trace.Span) {
	m.requests.WithLabelValues(operation, outcome).Inc()
	seconds := m.seconds.WithLabelValues(operation)
	if span == nil {
		seconds.Observe(took.Seconds())
		return
	}
	seconds.(prometheus.ExemplarObserver).ObserveWithExemplar(took.Seconds(), span.Trace().Exemplar())
}
